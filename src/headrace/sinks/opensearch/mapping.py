"""Build the settings and mappings of an index from its schema. Pure.

Everything that the schema declares is typed and `dynamic: strict` refuses the rest, so a mistake shows at
the first document and no field's type is guessed. Only `json` and `map` fields, whose keys are data, are
open. Text is searched through the analyzers and normalizers that `analysis` defines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from headrace.schema.language import SCALARS
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    ConstantField,
    Field,
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    ObjectField,
)
from headrace.sinks.opensearch.settings import IndexOptions, merge

_TIME = "HH:mm:ss[.SSSSSS][.SSSSS][.SSSS][.SSS][.SS][.S][XXX][X]"
DATE_FORMAT = f"strict_date_optional_time||{_TIME}||uuuuu-MM-dd['T'{_TIME}]||uuuuuu-MM-dd['T'{_TIME}]"
"""What PostgreSQL's to_json prints for date, time and timestamp, with and without zone, to its last year.

Not the years before Christ and not `infinity`, which OpenSearch has no notion of.
"""

_LONGEST_TERM = 8191
"""Lucene refuses a document with a term over 32,766 bytes; this many characters always fit."""
_SUBFIELD_TERM = 256
_CONSTANTS = {bool: "boolean", int: "long", float: "double", str: "keyword"}

Properties = dict[str, Any]

TEXT = "headrace_text"
"""Analyzer for prose: words, without case and accents."""
CODE = "headrace_code"
"""Analyzer for short codes and names: `C-01234` is found as `c01234`, `C-01234` and `01234`."""
LOWERCASE = "headrace_lowercase"
"""Normalizer: one token without case and accents, for exact lookup and sorting."""

_SPLIT = "headrace_split"


def mapping(spec: IndexSpec, options: IndexOptions) -> dict[str, Any]:
    """Build the body of an index's creation: `{"settings": {"index": …}, "mappings": …}`."""
    build = _Build(options)
    properties = build.properties(spec.fields, "")
    # With date_detection the first text of an open field that looks like a date would decide its type.
    mappings: dict[str, Any] = {"dynamic": "strict", "date_detection": False, "properties": properties}
    if build.templates:
        mappings["dynamic_templates"] = build.templates
    settings = {
        "number_of_shards": options.number_of_shards,
        "number_of_replicas": options.number_of_replicas,
        "refresh_interval": options.refresh_interval,
        "gc_deletes": options.gc_deletes,
        # OpenSearch's own limit is 1000 fields, and subfields count.
        "mapping": {"total_fields": {"limit": max(1000, 2 * sum(1 for _ in _leaves(properties)))}},
        "analysis": analysis(options.text_analysis, build.ranks),
    }
    return {
        "settings": {"index": merge(settings, options.settings)},
        "mappings": merge(mappings, options.mappings),
    }


class _Build:
    """Walks the field tree and collects what stands outside of the properties."""

    def __init__(self, options: IndexOptions) -> None:
        self._subfields = options.auto_subfields
        self.templates: list[dict[str, Any]] = []
        self.ranks: dict[tuple[str, ...], str] = {}

    def properties(self, fields: tuple[Field, ...], above: str) -> Properties:
        return {field.key: self._property(field, above + field.key) for field in fields}

    def _property(self, field: Field, where: str) -> Properties:
        match field:
            case ConstantField():
                return _plain(_CONSTANTS.get(type(field.value), "keyword"))
            case JoinField(scalar=True, fields=(only,)):
                derived = self._property(only, where)
            case JoinField():
                inner = self.properties(field.fields, where + ".")
                derived = {"type": "nested" if field.to_many else "object", "properties": inner}
            case ObjectField():
                derived = {"type": "object", "properties": self.properties(field.fields, where + ".")}
            case ColumnField():
                derived = self._column(field)
            case GeoField():
                derived = {"type": "geo_point"}
            case MapField():
                derived = self._map(field, where)
            case AggregateField():
                derived = _aggregate(field)
        return {**derived, **dict(field.options)}

    def _column(self, field: ColumnField) -> Properties:
        result = _plain(field.opensearch)
        if self._subfields and field.tag != "uuid":
            result |= _search_subfields(field)
        if field.variants:
            # A keyword is sorted as text: the normalizer puts the variant's rank in its place.
            name = self.ranks.setdefault(field.variants, f"headrace_rank_{len(self.ranks) + 1}")
            subfields = result.get("fields", {})
            result["fields"] = {**subfields, "sort": {"type": "keyword", "normalizer": name}}
        return result

    def _map(self, field: MapField, where: str) -> Properties:
        if field.values is not None:
            leaf = _plain(SCALARS.get(field.values, field.values))
            self.templates.append({where: {"path_match": f"{where}.*", "mapping": leaf}})
        elif not field.dynamic:
            # Its keys become no fields of the mapping, however many there are.
            return {"type": "flat_object"}
        return {"type": "object", "dynamic": True}


def _plain(kind: str) -> Properties:
    match kind:
        case "keyword":
            return {"type": kind, "ignore_above": _LONGEST_TERM}
        case "date" | "date_nanos":
            return {"type": kind, "format": DATE_FORMAT}
        case "object":
            # Inner objects inherit `strict` from the root: an open one says so itself.
            return {"type": kind, "dynamic": True}
        case _:
            return {"type": kind}


def _search_subfields(field: ColumnField) -> Properties:
    lowercase = {"type": "keyword", "normalizer": LOWERCASE, "ignore_above": _SUBFIELD_TERM}
    if field.opensearch == "text":
        exact = {"type": "keyword", "ignore_above": _SUBFIELD_TERM}
        analyzer = TEXT if field.tag == "text" else CODE
        return {"analyzer": analyzer, "fields": {"keyword": exact, "keyword_lowercase": lowercase}}
    if field.opensearch == "keyword":
        text = {"type": "text", "analyzer": CODE}
        return {"fields": {"text": text, "keyword_lowercase": lowercase}}
    return {}


def _aggregate(field: AggregateField) -> Properties:
    if field.op == "count":
        return _plain("long")
    if field.op == "avg":
        return _plain("double")
    value_type = field.value_type or "keyword"
    return _plain(SCALARS.get(value_type, value_type))


def _leaves(properties: Properties) -> Iterator[str]:
    for key, value in properties.items():
        yield key
        yield from _leaves(value.get("properties", {}))
        yield from value.get("fields", {})


def analysis(backend: Literal["builtin", "icu"], ranks: Mapping[tuple[str, ...], str]) -> dict[str, Any]:
    """Build the `analysis` settings; `ranks` names a normalizer for each list of enum variants."""
    icu = backend == "icu"
    fold = ["icu_folding"] if icu else ["lowercase", "asciifolding"]
    analyzers = {
        TEXT: {"type": "custom", "tokenizer": "icu_tokenizer" if icu else "standard", "filter": fold},
        # A Lucene index has no token graphs: what word_delimiter_graph makes has to be flattened.
        CODE: {"type": "custom", "tokenizer": "whitespace", "filter": [_SPLIT, *fold, "flatten_graph"]},
    }
    split = {"type": "word_delimiter_graph", "preserve_original": True, "catenate_all": True}
    normalizers: dict[str, Any] = {LOWERCASE: {"type": "custom", "filter": fold}}
    filters: dict[str, Any] = {}
    for variants, name in ranks.items():
        filters[name] = {"type": "mapping", "mappings": rank_mappings(variants)}
        normalizers[name] = {"type": "custom", "char_filter": [name]}
    return {
        "analyzer": analyzers,
        "filter": {_SPLIT: split},
        "normalizer": normalizers,
        **({"char_filter": filters} if filters else {}),
    }


def rank_mappings(variants: Sequence[str]) -> list[str]:
    """Build rules that turn each variant into its rank, padded so that text order is rank order."""
    width = len(str(max(len(variants) - 1, 0)))
    return [f"{_escape(variant)} => {rank:0{width}}" for rank, variant in enumerate(variants)]


def _escape(text: str) -> str:
    """Write everything that the rule syntax could interpret as UTF-16 escapes."""
    return "".join(
        character if character.isascii() and character.isalnum() else _utf16(character) for character in text
    )


def _utf16(character: str) -> str:
    # The rules know four digits: a character beyond them is written as two surrogates.
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
