"""Describe a schema as the designer shows it: of each table what is taken, and what could be. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headrace.catalog.relations import TableRelation, find_relations
from headrace.catalog.suggestion import why_not
from headrace.catalog.table import Column, Table
from headrace.model.names import TableName
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    Field,
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    ObjectField,
)
from headrace.tools.designer.database import DatabaseFacts

Json = dict[str, Any]
FieldPath = tuple[str, ...]
"""The document keys that lead to a field."""


def describe_tables(facts: DatabaseFacts) -> list[Json]:
    """Describe the database's tables for the list and the picture."""
    return [
        {
            "table": str(name),
            "rows": table.row_estimate,
            "columns": len(table.columns),
            "has_key": bool(table.primary_key),
            "comment": facts.hints.comments.get((name, ""), ""),
            "points": [
                [", ".join(key.columns), str(key.target)]
                for key in table.foreign_keys
                if key.target in facts.catalog
            ],
        }
        for name, table in sorted(facts.catalog.tables.items(), key=lambda pair: str(pair[0]))
    ]


def describe_schema(spec: IndexSpec, facts: DatabaseFacts) -> Json:
    """Describe a schema as a tree of tables."""
    return {
        **_node(spec.table, spec.primary_key, spec.fields, (), facts),
        "kind": "root",
        "key": spec.name,
        "line": spec.place.line,
        "filters": [str(condition) for condition in spec.filters],
        "soft_delete": None if spec.soft_delete is None else spec.soft_delete.column,
    }


def owned_fields(fields: Iterable[Field], above: FieldPath = ()) -> Iterator[tuple[FieldPath, Field]]:
    """Yield the fields of a row, also those in objects, each with the keys that lead to it."""
    for each in fields:
        yield (*above, each.key), each
        if isinstance(each, ObjectField):
            yield from owned_fields(each.fields, (*above, each.key))


def reads_column(field: Field, column: str) -> bool:
    """Return whether a field is made of a column of its row."""
    if isinstance(field, ColumnField | MapField):
        return field.column == column
    return isinstance(field, GeoField) and column in field.columns


def _node(
    name: TableName, key: tuple[str, ...], fields: Sequence[Field], at: FieldPath, facts: DatabaseFacts
) -> Json:
    owned = list(owned_fields(fields, at))
    table = facts.catalog.tables.get(name)
    columns = () if table is None else table.columns
    return {
        "at": at,
        "table": str(name),
        "missing": table is None,
        **_offered(table, key, owned, facts),
        "aggregates": [_aggregate(path, field) for path, field in owned if isinstance(field, AggregateField)],
        "others": [{"at": path, "key": field.key} for path, field in owned if _is_other(field, columns)],
        "joins": [_join(path, field, facts) for path, field in owned if isinstance(field, JoinField)],
    }


def _offered(
    table: Table | None, key: tuple[str, ...], owned: Sequence[tuple[FieldPath, Field]], facts: DatabaseFacts
) -> Json:
    """Describe what a table has that a document can take."""
    if table is None:
        return {"primary_key": (), "columns": [], "relations": []}
    relations = find_relations(facts.catalog, table, key)
    return {
        "primary_key": table.primary_key,
        "columns": [_column(table.name, column, owned, facts) for column in table.columns],
        "relations": [_relation(relation, owned, facts) for relation in relations],
    }


def _is_other(field: Field, columns: Iterable[Column]) -> bool:
    """Whether a field is shown neither as a column, nor as a join, an aggregate or an object."""
    is_own = isinstance(field, JoinField | AggregateField | ObjectField)
    return not is_own and not any(reads_column(field, column.name) for column in columns)


def _join(path: FieldPath, join: JoinField, facts: DatabaseFacts) -> Json:
    order = join.order_by[0] if join.order_by else None
    return {
        **_node(join.table, join.primary_key, join.fields, path, facts),
        "kind": join.kind,
        "key": join.key,
        "line": join.place.line,
        "to_many": join.to_many,
        "filters": [str(condition) for condition in join.filters],
        "limit": join.limit,
        "order": None if order is None else {"column": order.column, "descending": order.descending},
    }


def _column(
    table: TableName, column: Column, owned: Sequence[tuple[FieldPath, Field]], facts: DatabaseFacts
) -> Json:
    taken = next((path for path, each in owned if reads_column(each, column.name)), None)
    return {
        "name": column.name,
        "type": column.type,
        "number": column.category == "N",
        "ordered": column.category in {"N", "D", "S", "E"},
        "comment": facts.hints.comments.get((table, column.name), ""),
        "at": taken,
        "why_not": why_not(column),
    }


def _relation(
    relation: TableRelation, owned: Sequence[tuple[FieldPath, Field]], facts: DatabaseFacts
) -> Json:
    taken = next((path for path, each in owned if isinstance(each, JoinField) and relation.is_of(each)), None)
    fanout = facts.hints.fanouts.get(relation.link) if relation.to_many else None
    target = facts.catalog[relation.target]
    return {
        "id": relation.id,
        "kind": relation.kind,
        "table": str(relation.target),
        "via": ", ".join(relation.columns) if relation.through is None else str(relation.through.table),
        "name": relation.name,
        "at": taken,
        "most": None if fanout is None else round(fanout.most),
        "numbers": _names_of(target, "N"),
        "ordered": _names_of(target, "ND"),
    }


def _names_of(table: Table, categories: str) -> list[str]:
    """Return the columns whose types are of some categories, as PostgreSQL letters them."""
    return [column.name for column in table.columns if column.category in categories]


def _aggregate(path: FieldPath, field: AggregateField) -> Json:
    return {"at": path, "key": field.key, "op": field.op, "table": str(field.table), "column": field.column}
