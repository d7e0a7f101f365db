"""Which statements show, without reading a row, whether the server takes what documents are made with?

The server is the only one who knows its functions, operators and types: a filter's value that is none of its
column's type, or a name in a raw filter that does not exist, is refused when a statement is planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.assembly.conditions import row_conditions
from headrace.assembly.plan import (
    AggregateValue,
    Condition,
    DocumentPlan,
    Member,
    ObjectValue,
    RelatedValue,
)
from headrace.assembly.statement import keys_statement
from headrace.catalog.table import Table
from headrace.postgres.quoting import table as table_sql
from headrace.spec.tree import Filter

_ALIAS = "t0"


def filter_trials(plan: DocumentPlan) -> Iterator[tuple[Filter, str]]:
    """Each filter with a query that applies it alone; it is to be explained, not run."""
    deletion = plan.deletion.conditions if plan.deletion is not None else ()
    own = ((plan.table, one) for one in (*plan.conditions, *deletion))
    for table, one in (*own, *_related(plan.members)):
        condition = " AND ".join(row_conditions(table, (one,), _ALIAS))
        yield one.filter, f"SELECT 1 FROM {table_sql(table.name)} AS {_ALIAS} WHERE {condition}"


def document_trial(plan: DocumentPlan) -> tuple[str, list[list[str]]]:
    """The statement that reads documents, to be explained, and its parameters: no key."""
    return keys_statement(plan), [[] for _ in plan.key]


def _related(members: Iterable[Member]) -> Iterator[tuple[Table, Condition]]:
    for member in members:
        match member.value:
            case RelatedValue(relation, below):
                yield from ((relation.table, one) for one in relation.conditions)
                yield from _related(below)
            case AggregateValue(_, relation):
                yield from ((relation.table, one) for one in relation.conditions)
            case ObjectValue(below):
                yield from _related(below)
            case _:
                pass
