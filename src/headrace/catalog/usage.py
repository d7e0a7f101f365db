"""Which columns of which tables do documents read? Everything else may come, go and change freely."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from headrace.catalog.table import Catalog
from headrace.model import TableName
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    Field,
    Filter,
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    ObjectField,
)

Usage = Mapping[TableName, frozenset[str]]

_WORD = re.compile(r'"(?:[^"]|"")+"|[^\W\d][\w$]*')


def used_columns(specs: Iterable[IndexSpec], catalog: Catalog) -> dict[TableName, frozenset[str]]:
    """The columns that the documents of `specs` read, by table; every table that they name has an entry.

    Of a `raw` condition, every column of any of the index's tables that it may mean.
    """
    found: dict[TableName, set[str]] = {}
    for spec in specs:
        for table in spec.tables():
            found.setdefault(table, set())
        words: set[str] = set()
        for table, names in _of_index(spec, words):
            found[table].update(names)
        for table in spec.tables():
            if words and table in catalog:
                found[table].update(one.name for one in catalog[table].columns if one.name in words)
    return {table: frozenset(names) for table, names in found.items()}


_Found = tuple[TableName, Iterable[str]]


def _of_index(spec: IndexSpec, words: set[str]) -> Iterator[_Found]:
    yield spec.table, spec.primary_key
    yield spec.table, _filtered(spec.filters, words)
    if spec.routing is not None:
        yield spec.table, (spec.routing,)
    if spec.soft_delete is not None:
        yield spec.table, (spec.soft_delete.column, *_filtered(spec.soft_delete.when, words))
    yield from _of_fields(spec.table, spec.fields, words)


def own_columns(fields: Iterable[Field]) -> Iterator[str]:
    """The columns of a row that its own fields read, and those by which it points at other rows."""
    for field in fields:
        match field:
            case ColumnField() | MapField():
                yield field.column
            case GeoField():
                yield from (name for name in (field.lat, field.lon, field.column) if name is not None)
            case ObjectField():
                yield from own_columns(field.fields)
            case JoinField():
                yield from field.column
            case _:
                pass


def _of_fields(table: TableName, fields: Iterable[Field], words: set[str]) -> Iterator[_Found]:
    yield table, own_columns(fields)
    for field in _relations(fields):
        yield from _related(field, words)
        if isinstance(field, JoinField):
            yield field.table, [term.column for term in field.order_by]
            yield from _of_fields(field.table, field.fields, words)
        else:
            yield field.table, () if field.column is None else (field.column,)


def _relations(fields: Iterable[Field]) -> Iterator[JoinField | AggregateField]:
    for field in fields:
        if isinstance(field, ObjectField):
            yield from _relations(field.fields)
        elif isinstance(field, JoinField | AggregateField):
            yield field


def _related(field: JoinField | AggregateField, words: set[str]) -> Iterator[_Found]:
    yield field.table, (*field.primary_key, *field.foreign_key, *_filtered(field.filters, words))
    if field.through is not None:
        yield field.through.table, (field.through.left_key, field.through.right_key)


def _filtered(filters: Iterable[Filter], words: set[str]) -> list[str]:
    names = []
    for one in filters:
        if one.column is not None:
            names.append(one.column)
        if one.raw is not None:
            words.update(_unquoted(word) for word in _WORD.findall(one.raw))
    return names


def _unquoted(word: str) -> str:
    return word[1:-1].replace('""', '"') if word.startswith('"') else word.lower()
