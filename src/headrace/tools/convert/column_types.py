"""Choose the schema language's type for a column that a PGSync schema shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.catalog.table import Column
from headrace.catalog.type_check import fitting_tags, holds_texts
from headrace.model.names import quote_if_needed
from headrace.schema.language import SCALARS
from headrace.tools.convert.schema_text import FieldEntry

_UNSEARCHED = {"enabled": False}
_TEXT_MAPPING = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
"""What a cluster makes of a text that no mapping names."""


def column_field(key: str, column: Column, mapping: Mapping[str, Any]) -> FieldEntry:
    """Return the field for a column.

    Args:
        key: its document key.
        column: the column.
        mapping: its mapping in PGSync; empty where the cluster decides.
    """
    wanted = str(mapping.get("type", ""))
    options = {word: value for word, value in mapping.items() if word != "type"}
    field = _typed(key, column, wanted)
    [tag] = (word for word in field if word not in ("postgres", "opensearch"))
    if quote_if_needed(column.name) != key or key != key.lower():
        field["column"] = quote_if_needed(column.name)
    if tag == "json" and not wanted:
        options = {**_UNSEARCHED, **options}
    if options:
        field["options"] = options
    return field


def is_unsearched(field: FieldEntry) -> bool:
    """Return whether a field is json that is only shown."""
    return "json" in field and field.get("options") == _UNSEARCHED


def plain_mapping(field: FieldEntry) -> dict[str, Any]:
    """Return a mapping for the values of a field, for a key that the schema file cannot hold."""
    tag = next(iter(field))
    if "fields" in field and not field.get("scalar"):
        properties = {_key(inner): plain_mapping(inner) for inner in field["fields"]}
        return {"type": implied_type(field), "properties": properties, **field.get("options", {})}
    if field.get("scalar"):
        return plain_mapping(field["fields"][0])
    kind = field.get("opensearch") or ("geo_point" if tag == "geo" else SCALARS[tag])
    base = dict(_TEXT_MAPPING) if kind == "text" else {"type": kind}
    return {**base, **field.get("options", {})}


def implied_type(join: FieldEntry) -> str:
    """Return the type that the objects of a join have where its options name none."""
    return "nested" if "has_many" in join or "many_to_many" in join else "object"


def added_mapping(mapping: Mapping[str, Any], *, is_json: bool) -> dict[str, Any]:
    """Return the mapping of a value that a step adds: PGSync's, or else one that takes every value."""
    if mapping:
        return dict(mapping)
    # A cluster would fix the types of all keys by the first document that has them, and refuse others later.
    return {"type": "object", **_UNSEARCHED} if is_json else dict(_TEXT_MAPPING)


def _key(field: FieldEntry) -> str:
    return str(next(iter(field.values())))


def _typed(key: str, column: Column, wanted: str) -> FieldEntry:
    fitting = fitting_tags(column)
    if wanted == "geo_point":
        return {"geo": key}
    if wanted:
        tag = next((tag for tag in fitting if SCALARS[tag] == wanted), None)
        return _custom(key, column, wanted) if tag is None else {tag: key}
    if holds_texts(column):
        return {"text": key}  # with subfields for exact values, as clusters map texts
    if fitting:
        return {fitting[0]: key}
    return _custom(key, column, "long" if column.category == "N" else "text")


def _custom(key: str, column: Column, kind: str) -> FieldEntry:
    return {"custom": key, "postgres": [column.type.replace('"', "")], "opensearch": kind}
