"""Check that an enum field's variants name the labels of its column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.catalog.binding import BindingFinding
from headrace.catalog.table import Catalog, Table
from headrace.errors import Kind
from headrace.model.suggestion import meant
from headrace.postgres.session import ReadSession
from headrace.schema.problems import LocatedError
from headrace.schema.tree import ColumnField, Field, IndexSpec, JoinField, ObjectField

_LABELS = """
SELECT wanted.name, array_agg(e.enumlabel::text ORDER BY e.enumsortorder)
FROM unnest($1::text[]) AS wanted (name)
JOIN (pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace)
  ON t.typtype = 'e' AND quote_ident(n.nspname) || '.' || quote_ident(t.typname) = wanted.name
JOIN pg_enum e ON e.enumtypid = t.oid
GROUP BY 1
"""


def label_findings(
    session: ReadSession, specs: Iterable[IndexSpec], catalog: Catalog
) -> list[BindingFinding]:
    """Warn of variants that no row can have, and of labels that are missing in the order; one query.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    wanted: list[tuple[ColumnField, str]] = []
    for spec in specs:
        if spec.table in catalog:
            wanted += _enum_fields(catalog[spec.table], spec.fields, catalog)
    if not wanted:
        return []
    names = sorted({name for _, name in wanted})
    labels = dict(session.query(_LABELS, (names,)))
    return [finding for field, name in wanted for finding in _compare(field, labels.get(name, []))]


def _enum_fields(
    table: Table, fields: Iterable[Field], catalog: Catalog
) -> Iterator[tuple[ColumnField, str]]:
    for field in fields:
        if isinstance(field, ColumnField) and field.variants and not field.transforms:
            column = table.column(field.column)
            if column is not None and column.category == "E":
                yield field, column.base_type
        elif isinstance(field, ObjectField):
            yield from _enum_fields(table, field.fields, catalog)
        elif isinstance(field, JoinField) and field.table in catalog:
            yield from _enum_fields(catalog[field.table], field.fields, catalog)


def _compare(field: ColumnField, labels: list[str]) -> Iterator[BindingFinding]:
    unknown = [variant for variant in field.variants if variant not in labels]
    if unknown:
        problem = f"the enum has no label {unknown[0]!r}, which the variants name"
        yield _warning(field, problem, meant(unknown[0], labels))
    left_out = [label for label in labels if label not in field.variants]
    if left_out:
        problem = f"the variants leave out {', '.join(map(repr, left_out))}: no place in their order"
        yield _warning(field, problem, "Name every label, the lowest first.")


def _warning(field: ColumnField, problem: str, remedy: str) -> BindingFinding:
    return BindingFinding("warning", LocatedError(Kind.BINDING, field.place, problem, remedy))
