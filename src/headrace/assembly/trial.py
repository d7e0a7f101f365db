"""Render statements that show, without reading a row, whether the server accepts filters and documents.

Only the server knows its functions, operators and types. When a statement is planned, it rejects for example
a filter's value that does not fit its column's type, or an unknown name in a raw filter.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.assembly.conditions import row_conditions
from headrace.assembly.plan import DocumentPlan, RowCondition
from headrace.assembly.read_strategies import ReadStrategy
from headrace.assembly.statement import keys_statement
from headrace.catalog.table import Catalog
from headrace.model import TableName
from headrace.postgres.quoting import table as table_sql
from headrace.schema.tree import Filter, IndexSpec

_ALIAS = "t0"


def filter_trials(spec: IndexSpec, catalog: Catalog) -> Iterator[tuple[TableName, Filter, str]]:
    """Yield each filter whose table and column exist, with a query that applies it alone.

    The query is to be explained, not run.
    """
    for name, filter_ in spec.conditions():
        if name not in catalog:
            continue
        table = catalog[name]
        column = None if filter_.column is None else table.column(filter_.column)
        if (column is None) == (filter_.raw is not None):
            condition = " AND ".join(row_conditions(table, (RowCondition(filter_, column),), _ALIAS))
            yield name, filter_, f"SELECT 1 FROM {table_sql(name)} AS {_ALIAS} WHERE {condition}"


def document_trial(plan: DocumentPlan) -> tuple[str, list[list[str]]]:
    """Render a statement that reads documents, to be explained, and its parameters: no key.

    Of both strategies it uses the one that demands more of the server: sets are joined where lookups only
    compare.
    """
    return keys_statement(plan, ReadStrategy.AGGREGATED), [[] for _ in plan.key]
