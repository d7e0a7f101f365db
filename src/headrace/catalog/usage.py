"""Collect the columns that documents read; all others may change freely."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from headrace.catalog.table import Catalog
from headrace.model.names import TableName
from headrace.schema.raw import folded
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
    """Return the columns that the documents of `specs` read, by table; every named table has an entry.

    A `raw` condition counts every column of the index's tables whose name occurs in it.
    """
    used: dict[TableName, set[str]] = {}
    for spec in specs:
        for table in spec.tables():
            used.setdefault(table, set())
        # Raw SQL is not parsed: any word in it may be a column.
        words: set[str] = set()
        for table, names in _index_columns(spec, words):
            used[table].update(names)
        for table in spec.tables():
            if words and table in catalog:
                used[table].update(column.name for column in catalog[table].columns if column.name in words)
    return {table: frozenset(names) for table, names in used.items()}


_UsedColumns = tuple[TableName, Iterable[str]]


def _index_columns(spec: IndexSpec, words: set[str]) -> Iterator[_UsedColumns]:
    yield spec.table, spec.primary_key
    yield spec.table, _filter_columns(spec.filters, words)
    if spec.routing is not None:
        yield spec.table, (spec.routing,)
    if spec.soft_delete is not None:
        yield spec.table, (spec.soft_delete.column, *_filter_columns(spec.soft_delete.when, words))
    yield from _field_columns(spec.table, spec.fields, words)


def own_columns(fields: Iterable[Field]) -> Iterator[str]:
    """Yield the columns of a row that its own fields read, and those that refer to other rows."""
    for field in fields:
        match field:
            case ColumnField() | MapField():
                yield field.column
            case GeoField():
                yield from field.columns
            case ObjectField():
                yield from own_columns(field.fields)
            case JoinField() | AggregateField():
                yield from (*field.references, *(field.column if isinstance(field, JoinField) else ()))
                if field.through is not None and field.through.left_references:
                    yield field.through.left_references
            case _:
                pass


def _field_columns(table: TableName, fields: Iterable[Field], words: set[str]) -> Iterator[_UsedColumns]:
    yield table, own_columns(fields)
    for field in _relations(fields):
        yield from _relation_columns(field, words)
        if isinstance(field, JoinField):
            yield field.table, [term.column for term in field.order_by]
            yield from _field_columns(field.table, field.fields, words)
        else:
            yield field.table, () if field.column is None else (field.column,)


def _relations(fields: Iterable[Field]) -> Iterator[JoinField | AggregateField]:
    for field in fields:
        if isinstance(field, ObjectField):
            yield from _relations(field.fields)
        elif isinstance(field, JoinField | AggregateField):
            yield field


def _relation_columns(field: JoinField | AggregateField, words: set[str]) -> Iterator[_UsedColumns]:
    yield field.table, (*field.primary_key, *field.foreign_key, *_filter_columns(field.filters, words))
    if field.through is not None:
        through = field.through
        names = _filter_columns(through.filters, words)
        yield through.table, (through.left_key, through.right_key, *names)
        yield field.table, filter(None, (through.right_references,))


def _filter_columns(filters: Iterable[Filter], words: set[str]) -> list[str]:
    names = []
    for condition in filters:
        if condition.column is not None:
            names.append(condition.column)
        if condition.raw is not None:
            words.update(folded(word) for word in _WORD.findall(condition.raw))
    return names
