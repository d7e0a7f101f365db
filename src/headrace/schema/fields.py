"""Read the items of `fields` into typed fields: columns, objects, joins and aggregates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from yaml.nodes import MappingNode, ScalarNode

from headrace.model.names import TableName
from headrace.model.suggestion import meant, nearest
from headrace.model.units import quantity
from headrace.schema import language
from headrace.schema.conditions import read_filters, read_order
from headrace.schema.mapping_reader import MappingReader, Mistakes, fold_name, is_mapping, read_document_key
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    ConstantField,
    Field,
    GeoField,
    JoinField,
    MapField,
    ObjectField,
    Through,
)


@dataclass(frozen=True, slots=True)
class Parent:
    """The row that a field belongs to: its schema (the default of joined tables) and its key, if declared."""

    schema: str
    primary_key: tuple[str, ...]


def read_fields(record: MappingReader, parent: Parent) -> tuple[Field, ...]:
    """Read the fields under `fields`; document keys are unique among them."""
    result: list[Field] = []
    seen: dict[str, Field] = {}
    nodes = record.sequence("fields", required=True)
    mappings = (node for node in nodes if is_mapping(node, record.mistakes, "a field"))
    for field in (_field(record.mistakes, node, parent) for node in mappings):
        if field is None:
            continue
        # JSON with one key twice: a reader takes either value.
        if field.key and field.key in seen:
            first = seen[field.key].place.line
            problem = f"the document key {field.key!r} stands twice (first in line {first})"
            record.mistakes.add(field.place, problem, "Rename one of them and set `column:`.")
        seen.setdefault(field.key, field)
        result.append(field)
    return tuple(result)


def _field(mistakes: Mistakes, node: MappingNode, parent: Parent) -> Field | None:
    tag = _tag(mistakes, node)
    if tag is None:
        return None
    record = MappingReader(mistakes, node, (tag, *language.SIBLINGS[tag]), f"the {tag} field")
    for sibling, remedy in language.REFUSED.get(tag, {}).items():
        record.refuse(sibling, f"{tag} takes no {sibling!r}", remedy)
    named = record.need(tag, "Write the document key after the type.")
    key = "" if named is None else read_document_key(mistakes, named)
    field = _read_tagged(tag, record, key, parent)
    return replace(field, description=record.text("description", required=False))


def _read_tagged(tag: str, record: MappingReader, key: str, parent: Parent) -> Field:
    """Read the rest of a field by its type key."""
    if tag in language.SCALARS or tag == "custom":
        return _column_field(record, tag, key)
    if tag in language.JOINS:
        return _join(record, tag, key, parent)
    if tag in language.AGGREGATES:
        return _aggregate(record, tag, key, parent)
    if tag == "object":
        return ObjectField(key, read_fields(record, parent), record.place, options=record.options())
    return _OTHERS[tag](record, key)


def _tag(mistakes: Mistakes, node: MappingNode) -> str | None:
    """Return the only type key of a field."""
    words = [str(key.value) for key, _ in node.value if isinstance(key, ScalarNode)]
    # A field is known by its type key, whose value is the document key.
    tags = [word for word in dict.fromkeys(words) if word in language.TAGS]
    if len(tags) == 1:
        return tags[0]
    if tags:
        problem = f"a field has one type key, this one has {' and '.join(tags)}"
        mistakes.add(node, problem, "Keep one of them.")
    else:
        _add_missing_tag(mistakes, node, words)
    return None


def _add_missing_tag(mistakes: Mistakes, node: MappingNode, words: Sequence[str]) -> None:
    """Report a field without a type key: a word that resembles one was meant as it."""
    for word in words:
        near = nearest(word, language.TAGS)
        if near is not None and word not in _ALL_SIBLINGS:
            key = next(key for key, _ in node.value if key.value == word)
            mistakes.add(key, f"unknown type {word!r}", f"Did you mean {near!r}?")
            return
    problem = f"a field without a type key (its keys: {', '.join(words) or 'none'})"
    remedy = f"Begin it with `- keyword: name`; types are {', '.join(language.TAGS)}."
    mistakes.add(node, problem, remedy)


_ALL_SIBLINGS = {word for words in language.SIBLINGS.values() for word in words}


def _own_column(record: MappingReader, key: str) -> str:
    """Return `column`, or the document key folded as PostgreSQL folds it."""
    if record.has("column"):
        return record.identifier("column")
    return fold_name(record.mistakes, record.node, key) if key else ""


def _column_field(record: MappingReader, tag: str, key: str) -> ColumnField:
    custom = tag == "custom"
    default = record.get("default")
    transforms = record.texts("transforms")
    for word in transforms:
        if word not in ("lowercase", "trim"):
            remedy = meant(word, ("lowercase", "trim"))
            record.note(f"unknown transform {word!r}", remedy, "transforms")
    variants = record.texts("variants") if tag == "enum" else ()
    # Their order is the order in searches: twice would have two places.
    if len(set(variants)) < len(variants):
        record.note("a variant stands twice", "Name each once, lowest first.", "variants")
    return ColumnField(
        key=key,
        tag=tag,
        column=_own_column(record, key),
        required=record.boolean("required"),
        opensearch=record.text("opensearch") if custom else language.SCALARS[tag],
        place=record.place,
        postgres=record.texts("postgres", required=True) if custom else (),
        options=record.options(),
        transforms=cast(Any, transforms),
        default=None if default is None else record.scalar(default),
        variants=variants,
    )


def _constant(record: MappingReader, key: str) -> ConstantField:
    node = record.get("value")
    value = None if node is None else record.scalar(node)
    if node is not None and isinstance(value, int) and not -(2**63) <= value < 2**63:
        text = f"{value} is larger than 64 bits, and the index refuses it"
        record.mistakes.add(node, text, "Write it in quotes, as a text.")
    return ConstantField(key, value, record.place)


def _geo(record: MappingReader, key: str) -> GeoField:
    pair = record.has("lat"), record.has("lon")
    if any(pair) and (not all(pair) or record.has("column")):
        record.note("a geo field takes lat and lon, or one column", "Give both, or `column:` alone.")
    return GeoField(
        key=key,
        lat=record.identifier("lat") if all(pair) else None,
        lon=record.identifier("lon") if all(pair) else None,
        column=None if any(pair) else _own_column(record, key),
        required=record.boolean("required"),
        place=record.place,
        options=record.options(),
    )


def _map(record: MappingReader, key: str) -> MapField:
    values = record.choice("values", language.MAP_VALUES, required=False)
    dynamic = record.boolean("dynamic")
    if not record.has("values") and not dynamic:
        record.note("a map needs 'values', the type that all its values share", "Write `values: text`.")
    return MapField(
        key=key,
        column=_own_column(record, key),
        values=values or None,
        dynamic=dynamic,
        required=record.boolean("required"),
        place=record.place,
        options=record.options(),
    )


_OTHERS: dict[str, Callable[[MappingReader, str], Field]] = {"geo": _geo, "map": _map, "constant": _constant}


def _join(record: MappingReader, kind: str, key: str, parent: Parent) -> JoinField:
    table = TableName(record.identifier("schema", parent.schema), record.identifier("table"))
    primary_key = record.identifiers("primary_key", required=True)
    column: tuple[str, ...] = ()
    if kind == "belongs_to":
        # `belongs_to: customer_id`: the key names the column.
        listed = record.identifiers("column", required=False)
        column = listed if record.has("column") else (_own_column(record, key),)
    foreign_key = record.identifiers("foreign_key", required=True) if kind in ("has_one", "has_many") else ()
    references = record.identifiers("references", required=False) if foreign_key else ()
    through = _through(record, parent, primary_key) if kind == "many_to_many" else None
    if kind == "belongs_to":
        _check_same_count(record, "column", column, primary_key)
    elif foreign_key:
        _check_same_count(record, "foreign_key", foreign_key, references or parent.primary_key)
    fields = read_fields(record, Parent(table.schema, primary_key))
    return JoinField(
        key=key,
        kind=cast(Any, kind),
        table=table,
        primary_key=primary_key,
        fields=fields,
        place=record.place,
        column=column,
        foreign_key=foreign_key,
        through=through,
        filters=read_filters(record),
        order_by=read_order(record),
        limit=record.integer("limit"),
        required=record.boolean("required"),
        options=record.options(),
        table_place=record.at("table"),
        references=references,
        scalar=_scalar(record, fields),
    )


def _scalar(record: MappingReader, fields: tuple[Field, ...]) -> bool:
    """Read whether the value of the join's only field stands in place of an object."""
    scalar = record.boolean("scalar")
    if scalar and not (len(fields) == 1 and isinstance(fields[0], ColumnField | GeoField | MapField)):
        problem = "scalar takes exactly one field, of a column of the related table"
        record.note(problem, "Leave one such field, or remove `scalar:`.", "scalar")
    return scalar


def _through(record: MappingReader, parent: Parent, primary_key: tuple[str, ...]) -> Through | None:
    """Read the junction table; it has one column for each side."""
    record.need("through", "Add `through: {table: …, left_key: …, right_key: …}`.")
    junction = record.record("through", language.THROUGH)
    if junction is None:
        return None
    through = Through(
        TableName(junction.identifier("schema", parent.schema), junction.identifier("table")),
        left_key=junction.identifier("left_key"),
        right_key=junction.identifier("right_key"),
        left_references=junction.identifier("left_references", ""),
        right_references=junction.identifier("right_references", ""),
        filters=read_filters(junction),
    )
    sides = (primary_key, through.right_references), (parent.primary_key, through.left_references)
    if any(len(side_key) > 1 and not references for side_key, references in sides):
        junction.note(
            "a junction joins by one column on each side, and a key here has several",
            "Join the junction table with has_many and its target with belongs_to, or name the columns that "
            "its own equal with `left_references` and `right_references`.",
        )
    return through


def _check_same_count(
    record: MappingReader, key: str, columns: tuple[str, ...], target: tuple[str, ...]
) -> None:
    if target and len(columns) != len(target):
        counted = f"{quantity(len(columns), 'column')} for a key of {len(target)}"
        problem = f"{key!r} names {counted} ({', '.join(target)})"
        record.note(problem, "Name as many columns as the key has, in its order.", key)


def _aggregate(record: MappingReader, op: str, key: str, parent: Parent) -> AggregateField:
    """Read an aggregate; `count` and `avg` may have an unused type, as older files do.

    `distinct` is read for the sake of flusso's files: behind a junction each related row counts once.
    """
    record.boolean("distinct")
    table = TableName(record.identifier("schema", parent.schema), record.identifier("table"))
    primary_key = record.identifiers("primary_key", required=False)
    has_key, has_junction = record.has("foreign_key"), record.has("through")
    if has_key == has_junction:
        add = "Add `foreign_key:`, the related table's column that points here."
        problem = f"{op} needs exactly one of 'foreign_key' and 'through'"
        record.note(problem, "Keep one of them." if has_key else add)
    foreign_key = record.identifiers("foreign_key", required=False)
    references = record.identifiers("references", required=False) if foreign_key else ()
    if has_junction:
        remedy = "Write `left_references` in `through`."
        record.refuse("references", "'references' belongs to 'foreign_key'", remedy)
    if foreign_key:
        _check_same_count(record, "foreign_key", foreign_key, references or parent.primary_key)
    through = _through(record, parent, primary_key) if has_junction else None
    column, value_type = _operand(record, op)
    return AggregateField(
        key=key,
        op=cast(Any, op),
        table=table,
        place=record.place,
        column=column,
        value_type=value_type,
        foreign_key=foreign_key,
        through=through,
        primary_key=primary_key,
        filters=read_filters(record),
        options=record.options(),
        table_place=record.at("table"),
        references=references,
    )


def _operand(record: MappingReader, op: str) -> tuple[str | None, str | None]:
    """Read the column that is reduced, and the type of the result."""
    if op == "ids":
        return None, record.choice("element_type", language.SCALARS)
    if op == "count":
        return None, None
    column = record.identifier("column")
    return column, None if op == "avg" else record.choice("value_type", language.SCALARS)
