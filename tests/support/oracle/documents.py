"""Compute the value of each declared field, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, assert_never

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
    OrderBy,
    SoftDelete,
)
from support.oracle.conditions import passes
from support.oracle.tables import Row, Table, Tables
from support.oracle.values import json_value
from support.shop_oracle import Average

_SPACES = " \t\n\r\f\v"


def evaluate(spec: IndexSpec, tables: Tables) -> dict[str, object]:
    """The documents of one index by id."""
    table = tables[spec.table]
    key = spec.primary_key or table.primary_key
    return {
        _id(row, table, key): _object(spec.fields, row, table, key, tables)
        for row in table.rows
        if None not in [row[name] for name in key]
        and passes(row, table, spec.filters)
        and not _is_deleted(row, table, spec.soft_delete)
    }


def _id(row: Row, table: Table, key: Sequence[str]) -> str:
    texts = [table.types[name].text(row[name]) for name in key]
    if len(texts) == 1:
        return texts[0]
    return ":".join(text.replace("%", "%25").replace(":", "%3A") for text in texts)


def _is_deleted(row: Row, table: Table, mark: SoftDelete | None) -> bool:
    if mark is None:
        return False
    value = row[mark.column]
    marked = value is True if table.types[mark.column].name == "bool" else value is not None
    return marked and passes(row, table, mark.when)


def _object(
    fields: Iterable[Field], row: Row, table: Table, key: Sequence[str], tables: Tables
) -> dict[str, object]:
    return {one.key: _value(one, row, table, key, tables) for one in fields}


def _value(  # noqa: PLR0911, one for each kind
    one: Field, row: Row, table: Table, key: Sequence[str], tables: Tables
) -> object:
    match one:
        case ColumnField():
            return _column(one, row)
        case MapField():
            return json_value(row[one.column])
        case ConstantField():
            return json_value(one.value)
        case GeoField():
            return _point(one, row)
        case ObjectField():
            return _object(one.fields, row, table, key, tables)
        case JoinField():
            return _joined(one, table.ranks(row, one.column or _referred(one, key)), tables)
        case AggregateField():
            return _aggregated(one, table.ranks(row, _referred(one, key)), tables)
        case _:
            assert_never(one)


def _column(one: ColumnField, row: Row) -> object:
    found = json_value(_transformed(one, row[one.column]))
    return json_value(one.default) if found is None else found


def _transformed(one: ColumnField, value: Any) -> Any:
    if isinstance(value, list) and one.transforms:
        return [_transformed(one, element) for element in value]
    for transform in one.transforms:
        if value is not None:
            value = value.lower() if transform == "lowercase" else value.strip(_SPACES)
    return value


def _point(one: GeoField, row: Row) -> object:
    if one.column is not None:
        return json_value(row[one.column])
    lat, lon = (json_value(row[name]) for name in (one.lat or "", one.lon or ""))
    return None if lat is None or lon is None else {"lat": lat, "lon": lon}


def _referred(one: JoinField | AggregateField, key: Sequence[str]) -> Sequence[str]:
    """The columns of a row that its related rows, or the junction's, refer to."""
    if one.through is not None and one.through.left_references:
        return (one.through.left_references,)
    return one.references or key


def _related(one: JoinField | AggregateField, ranks: Sequence[Any], tables: Tables) -> list[Row]:
    """The rows that belong to a parent, those that pass, by their key.

    `ranks` are the parent's columns as they compare: its key or what else is referred to, for `belongs_to`
    the columns that hold the other row's key.
    """
    table = tables[one.table]
    key = one.primary_key or table.primary_key
    rows: Iterable[Row]
    if one.through is not None:
        junction = tables[one.through.table]
        filters = one.through.filters
        rows = junction.where((one.through.left_key,), tuple(ranks))
        links = [row for row in rows if passes(row, junction, filters)]
        ends = {junction.ranks(link, (one.through.right_key,)) for link in links}
        met = (one.through.right_references,) if one.through.right_references else key
        rows = [row for end in ends for row in table.where(met, end)]
    else:
        rows = table.where(one.foreign_key or key, tuple(ranks))
    return table.in_order((row for row in rows if passes(row, table, one.filters)), key)


def _joined(one: JoinField, ranks: Sequence[Any], tables: Tables) -> object:
    table = tables[one.table]
    rows = _ordered(_related(one, ranks, tables), table, one.order_by)
    found: list[object] = [
        _value(one.fields[0], row, table, one.primary_key, tables)
        if one.scalar
        else _object(one.fields, row, table, one.primary_key, tables)
        for row in rows[: one.limit]
    ]
    if one.to_many:
        return found
    return found[0] if found else None


def _ordered(rows: Sequence[Row], table: Table, terms: Sequence[OrderBy]) -> list[Row]:
    """Sorted by the last term first: each sort keeps what the later ones decided."""
    found = list(rows)
    for term in reversed(terms):
        kind = table.types[term.column]
        absent = [row for row in found if row[term.column] is None]
        present = [row for row in found if row[term.column] is not None]
        present.sort(key=lambda row: kind.rank(row[term.column]), reverse=term.descending)
        found = [*absent, *present] if term.descending else [*present, *absent]
    return found


def _aggregated(  # noqa: PLR0911, one for each kind
    one: AggregateField, ranks: Sequence[Any], tables: Tables
) -> object:
    rows, table = _related(one, ranks, tables), tables[one.table]
    if one.op == "count":
        return len(rows)
    if one.op == "ids":
        key = one.primary_key or table.primary_key
        return [json_value(row[key[0]]) for row in rows]
    assert one.column is not None
    kind = table.types[one.column]
    known = [row[one.column] for row in rows if row[one.column] is not None]
    if not known:
        return None
    match one.op:
        case "min":
            return json_value(min(known, key=kind.rank))
        case "max":
            return json_value(max(known, key=kind.rank))
        case "sum" if not isinstance(known[0], float):
            return json_value(sum(known))
        case "sum":
            return Average(Decimal(sum(known)))
        case _:
            return Average(sum(map(Decimal, known)) / len(known))
