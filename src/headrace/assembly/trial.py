"""Which statements show, without reading a row, whether the server takes what documents are made with?

The server is the only one who knows its functions, operators and types: a filter's value that is none of its
column's type, or a name in a raw filter that does not exist, is refused when a statement is planned.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.assembly.conditions import row_conditions
from headrace.assembly.forms import ReadStrategy
from headrace.assembly.plan import DocumentPlan, RowCondition
from headrace.assembly.statement import keys_statement
from headrace.catalog.table import Catalog
from headrace.model import TableName
from headrace.postgres.quoting import table as table_sql
from headrace.schema.tree import Filter, IndexSpec

_ALIAS = "t0"


def filter_trials(spec: IndexSpec, catalog: Catalog) -> Iterator[tuple[TableName, Filter, str]]:
    """Each filter whose table and column exist, with a query that applies it alone.

    The query is to be explained, not run.
    """
    for name, one in spec.conditions():
        if name not in catalog:
            continue
        table = catalog[name]
        column = None if one.column is None else table.column(one.column)
        if (column is None) == (one.raw is not None):
            condition = " AND ".join(row_conditions(table, (RowCondition(one, column),), _ALIAS))
            yield name, one, f"SELECT 1 FROM {table_sql(name)} AS {_ALIAS} WHERE {condition}"


def document_trial(plan: DocumentPlan) -> tuple[str, list[list[str]]]:
    """A statement that reads documents, to be explained, and its parameters: no key.

    Of both forms the one that asks more of the server: it joins what the other one only compares.
    """
    return keys_statement(plan, ReadStrategy.AGGREGATED), [[] for _ in plan.key]
