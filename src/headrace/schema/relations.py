"""Read joins and aggregates of a schema file, and check which keys they name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from headrace.model import TableName
from headrace.schema import language
from headrace.schema.conditions import read_filters, read_order, read_through
from headrace.schema.mapping_reader import MappingReader, fold
from headrace.schema.tree import AggregateField, Field, JoinField, Through


@dataclass(frozen=True, slots=True)
class Parent:
    """The row that a field belongs to: its schema (the default of joined tables) and its key, if declared."""

    schema: str
    primary_key: tuple[str, ...]


_KEY_OF = {
    "belongs_to": ("column", "this table's column that points at the related row"),
    "has_one": ("foreign_key", "the related table's column that points back at this row"),
    "has_many": ("foreign_key", "the related table's column that points back at this row"),
    "many_to_many": ("through", "the junction table and its two keys"),
}


def read_join(
    record: MappingReader,
    kind: str,
    key: str,
    parent: Parent,
    read_fields: Callable[[MappingReader, Parent], tuple[Field, ...]],
) -> JoinField:
    """Read a join; `read_fields` reads its own fields."""
    _refuse_other_keys(record, kind)
    table = TableName(record.identifier("schema", parent.schema), record.identifier("table"))
    primary_key = record.identifiers("primary_key", required=True)
    column = record.identifiers("column", required=False) if kind == "belongs_to" else ()
    if kind == "belongs_to" and not record.has("column"):
        column = (fold(record.notes, record.node, key) if key else "",)
    foreign_key = record.identifiers("foreign_key", required=True) if kind in ("has_one", "has_many") else ()
    through = _through(record, parent, primary_key) if kind == "many_to_many" else None
    if kind == "belongs_to":
        _check_same_count(record, "column", column, primary_key)
    elif foreign_key:
        _check_same_count(record, "foreign_key", foreign_key, parent.primary_key)
    return JoinField(
        key=key,
        kind=cast(Any, kind),
        table=table,
        primary_key=primary_key,
        fields=read_fields(record, Parent(table.schema, primary_key)),
        place=record.place,
        column=column,
        foreign_key=foreign_key,
        through=through,
        filters=read_filters(record),
        order_by=read_order(record),
        limit=record.integer("limit"),
        required=record.boolean("required", default=False),
        options=record.options(),
        table_place=record.at("table"),
    )


def _refuse_other_keys(record: MappingReader, kind: str) -> None:
    wanted, meaning = _KEY_OF[kind]
    for sibling in ("column", "foreign_key", "through"):
        if sibling != wanted:
            record.refuse(sibling, f"{kind} takes no {sibling!r}", f"Write `{wanted}:`, {meaning}.")
    if kind in ("belongs_to", "has_one"):
        record.refuse("limit", f"{kind} takes no 'limit', it is one row at most")
    else:
        record.refuse("required", f"{kind} takes no 'required', a list is never null")
    if kind == "belongs_to":
        record.refuse("order_by", "belongs_to takes no 'order_by', its row is unique")


def _through(record: MappingReader, parent: Parent, primary_key: tuple[str, ...]) -> Through | None:
    """Read the junction table; it has one column for each side."""
    if record.need("through", "Add `through: {table: …, left_key: …, right_key: …}`.") is None:
        return None
    read = read_through(record, parent.schema)
    if read is None:
        return None
    through, place = read
    if len(primary_key) > 1 or len(parent.primary_key) > 1:
        record.notes.add(
            place,
            "a junction joins by one column on each side, and a key here has several",
            "Join the junction table with has_many and its target with belongs_to.",
        )
    return through


def _check_same_count(
    record: MappingReader, key: str, columns: tuple[str, ...], target: tuple[str, ...]
) -> None:
    if target and len(columns) != len(target):
        record.notes.add(
            record.at(key),
            f"{key!r} names {len(columns)} column(s) for a key of {len(target)} ({', '.join(target)})",
            "Name as many columns as the key has, in its order.",
        )


def read_aggregate(record: MappingReader, op: str, key: str, parent: Parent) -> AggregateField:
    """Read an aggregate; `count` and `avg` may have an unused type, as older files do."""
    table = TableName(record.identifier("schema", parent.schema), record.identifier("table"))
    primary_key = record.identifiers("primary_key", required=False)
    both = record.has("foreign_key") and record.has("through")
    if both or not (record.has("foreign_key") or record.has("through")):
        record.notes.add(
            record.place,
            f"{op} needs exactly one of 'foreign_key' and 'through'",
            "Keep one of them."
            if both
            else "Add `foreign_key:`, the related table's column that points here.",
        )
    foreign_key = record.identifiers("foreign_key", required=False)
    _check_same_count(record, "foreign_key", foreign_key, parent.primary_key if foreign_key else ())
    through = _through(record, parent, primary_key) if record.has("through") else None
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
    )


def _operand(record: MappingReader, op: str) -> tuple[str | None, str | None]:
    """Read the column that is reduced, and the type of the result."""
    if op == "ids":
        for sibling in ("column", "value_type"):
            record.refuse(sibling, f"ids takes no {sibling!r}, it collects the related table's key")
        return None, record.choice("element_type", language.SCALARS)
    record.refuse("element_type", f"{op} takes no 'element_type'", "Only ids has one; write `value_type:`.")
    if op == "count":
        return None, None
    column = record.identifier("column")
    if op == "avg":
        return column, None
    return column, record.choice("value_type", language.SCALARS)
