"""Read the items of `fields` into typed fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from yaml.nodes import MappingNode, Node, ScalarNode

from headrace.model.suggestion import nearest
from headrace.schema import language
from headrace.schema.mapping_reader import MappingReader, Notes, document_key, fold, mapping
from headrace.schema.relations import Parent, read_aggregate, read_join
from headrace.schema.tree import ColumnField, ConstantField, Field, GeoField, MapField, ObjectField, Scalar


def read_fields(record: MappingReader, parent: Parent) -> tuple[Field, ...]:
    """Read the fields under `fields`; document keys are unique among them."""
    result: list[Field] = []
    seen: dict[str, Field] = {}
    for node in record.sequence("fields", required=True):
        if not mapping(node, record.notes, "a field"):
            continue
        field = _field(record.notes, node, parent)
        if field is None:
            continue
        if field.key and field.key in seen:
            first = seen[field.key].place.line
            record.notes.add(
                field.place,
                f"the document key {field.key!r} stands twice (first in line {first})",
                "Rename one of them and set `column:`.",
            )
        seen.setdefault(field.key, field)
        result.append(field)
    return tuple(result)


def _field(notes: Notes, node: MappingNode, parent: Parent) -> Field | None:
    tag = _tag(notes, node)
    if tag is None:
        return None
    record = MappingReader(notes, node, (tag, *language.SIBLINGS[tag]), f"the {tag} field")
    named = record.need(tag, "Write the document key after the type.")
    key = "" if named is None else document_key(notes, named)
    if tag in language.SCALARS or tag == "custom":
        return _column_field(record, tag, key)
    if tag in language.JOINS:
        return read_join(record, tag, key, parent, read_fields)
    if tag in language.AGGREGATES:
        return read_aggregate(record, tag, key, parent)
    if tag == "object":
        return ObjectField(key, read_fields(record, parent), record.place, record.options())
    return _OTHERS[tag](record, key)


def _tag(notes: Notes, node: MappingNode) -> str | None:
    """Return the only type key of a field."""
    words = [str(key.value) for key, _ in node.value if isinstance(key, ScalarNode)]
    tags = [word for word in dict.fromkeys(words) if word in language.TAGS]
    if len(tags) == 1:
        return tags[0]
    if tags:
        notes.add(node, f"a field has one type key, this one has {' and '.join(tags)}", "Keep one of them.")
        return None
    for word in words:
        near = nearest(word, language.TAGS)
        if near is not None and word not in _ALL_SIBLINGS:
            notes.add(_key_node(node, word), f"unknown type {word!r}", f"Did you mean {near!r}?")
            return None
    notes.add(
        node,
        f"a field without a type key (its keys: {', '.join(words) or 'none'})",
        "Begin it with `- keyword: name`; types are " + ", ".join(language.TAGS) + ".",
    )
    return None


_ALL_SIBLINGS = {word for words in language.SIBLINGS.values() for word in words}


def _key_node(node: MappingNode, word: str) -> Node:
    return next((key for key, _ in node.value if key.value == word), node)


def _own_column(record: MappingReader, key: str) -> str:
    """Return `column`, or the document key folded as PostgreSQL folds it."""
    if record.has("column"):
        return record.identifier("column")
    return fold(record.notes, record.node, key) if key else ""


def _column_field(record: MappingReader, tag: str, key: str) -> ColumnField:
    custom = tag == "custom"
    default = record.get("default")
    transforms = record.texts("transforms")
    for word in transforms:
        if word not in ("lowercase", "trim"):
            near = nearest(word, ("lowercase", "trim"))
            record.notes.add(
                record.at("transforms"),
                f"unknown transform {word!r}",
                f"Did you mean {near!r}?" if near else "There are lowercase and trim.",
            )
    variants = record.texts("variants") if tag == "enum" else ()
    if len(set(variants)) < len(variants):
        record.notes.add(record.at("variants"), "a variant stands twice", "Name each once, lowest first.")
    return ColumnField(
        key=key,
        tag=tag,
        column=_own_column(record, key),
        required=record.boolean("required", default=False),
        opensearch=record.text("opensearch") if custom else language.SCALARS[tag],
        place=record.place,
        postgres=record.texts("postgres", required=True) if custom else (),
        options=record.options(),
        transforms=cast(Any, transforms),
        default=_default(record, default),
        variants=variants,
    )


def _default(record: MappingReader, node: Node | None) -> Scalar | None:
    return None if node is None else record.scalar(node)


def _constant(record: MappingReader, key: str) -> ConstantField:
    value = record.get("value")
    return ConstantField(key, None if value is None else record.scalar(value), record.place)


def _geo(record: MappingReader, key: str) -> GeoField:
    pair = record.has("lat"), record.has("lon")
    if any(pair) and (not all(pair) or record.has("column")):
        record.notes.add(
            record.place, "a geo field takes lat and lon, or one column", "Give both, or `column:` alone."
        )
    return GeoField(
        key=key,
        lat=record.identifier("lat") if all(pair) else None,
        lon=record.identifier("lon") if all(pair) else None,
        column=None if any(pair) else _own_column(record, key),
        required=record.boolean("required", default=False),
        place=record.place,
        options=record.options(),
    )


def _map(record: MappingReader, key: str) -> MapField:
    values = record.choice("values", language.MAP_VALUES, required=False)
    dynamic = record.boolean("dynamic", default=False)
    if not record.has("values") and not dynamic:
        record.notes.add(
            record.place, "a map needs 'values', the type that all its values share", "Write `values: text`."
        )
    return MapField(
        key=key,
        column=_own_column(record, key),
        values=values or None,
        dynamic=dynamic,
        required=record.boolean("required", default=False),
        place=record.place,
        options=record.options(),
    )


_OTHERS: dict[str, Callable[[MappingReader, str], Field]] = {"geo": _geo, "map": _map, "constant": _constant}
