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
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    own_fields,
    related_fields,
)

Usage = Mapping[TableName, frozenset[str]]

_WORD = re.compile(r'"(?:[^"]|"")+"|[^\W\d][\w$]*')


def _raw_words(spec: IndexSpec) -> set[str]:
    """Return the words of raw filters; that SQL is not parsed, so any of them may be a column."""
    raws = (condition.raw or "" for _, condition in spec.conditions())
    return {folded(word) for raw in raws for word in _WORD.findall(raw)}


def used_columns(specs: Iterable[IndexSpec], catalog: Catalog) -> dict[TableName, frozenset[str]]:
    """Return the columns that the documents of `specs` read, by table; every named table has an entry.

    A `raw` condition counts every column of the index's tables whose name occurs in it.
    """
    used: dict[TableName, set[str]] = {}
    for spec in specs:
        for table, names in _index_columns(spec):
            used.setdefault(table, set()).update(names)
        words = _raw_words(spec)
        for table in spec.tables():
            if words and table in catalog:
                used[table].update(column.name for column in catalog[table].columns if column.name in words)
    return {table: frozenset(names) for table, names in used.items()}


def _index_columns(spec: IndexSpec) -> Iterator[tuple[TableName, Iterable[str]]]:
    yield spec.table, (*spec.primary_key, *own_columns(spec.fields))
    yield spec.table, filter(None, (spec.routing,))
    if spec.soft_delete is not None:
        yield spec.table, (spec.soft_delete.column,)
    for table, condition in spec.conditions():
        yield table, filter(None, (condition.column,))
    for field in related_fields(spec.fields):
        yield field.table, (*field.primary_key, *field.foreign_key)
        if isinstance(field, JoinField):
            yield field.table, (*own_columns(field.fields), *(term.column for term in field.order_by))
        else:
            yield field.table, filter(None, (field.column,))
        if field.through is not None:
            yield field.through.table, (field.through.left_key, field.through.right_key)
            yield field.table, filter(None, (field.through.right_references,))


def own_columns(fields: Iterable[Field]) -> Iterator[str]:
    """Yield the columns of a row that its own fields read, and those that refer to other rows."""
    for field in own_fields(fields):
        match field:
            case ColumnField() | MapField():
                yield field.column
            case GeoField():
                yield from field.columns
            case JoinField() | AggregateField():
                yield from (*field.references, *(field.column if isinstance(field, JoinField) else ()))
                if field.through is not None and field.through.left_references:
                    yield field.through.left_references
