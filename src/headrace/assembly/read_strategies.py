"""Choose how related rows are read: by lookups for each parent, or as sets for many parents at once.

A lookup costs an index access, or a scan of the whole table where no index serves it; a set costs one pass
over the table, whatever the number of parents. Decision 0039 has the figures.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from math import ceil

from headrace.assembly.plan import (
    AggregateValue,
    DocumentPlan,
    Joined,
    Junction,
    Member,
    RelatedValue,
    RelationPlan,
    joined_values,
)
from headrace.catalog.comparison import as_stored, is_hashed
from headrace.catalog.table import Table


class ReadStrategy(Enum):
    """How the related rows of a statement are read."""

    CORRELATED = "correlated"
    """Every relation by lookups."""
    MIXED = "mixed"
    """Relations that no index serves, and those above them, as sets; the others by lookups."""
    AGGREGATED = "aggregated"
    """All relations as sets, where possible."""


FEW_KEYS = 3
"""Number of table scans that cost about as much as building a set from the table."""
MANY_KEYS = 100
"""From this number of keys on, sets are faster than index lookups, up to twice as fast."""
MOST_BYTES = 256 << 20
"""Limit of a range's related rows as sets (bytes, by the catalog's estimates)."""
_PAGE_BYTES = 8192


def strategy_for_keys(plan: DocumentPlan, count: int) -> ReadStrategy:
    """Return the fastest strategy for the documents of `count` keys."""
    if count >= MANY_KEYS:
        return ReadStrategy.AGGREGATED
    if count > FEW_KEYS or _is_multiplied(plan.members, many=False):
        return ReadStrategy.MIXED
    return ReadStrategy.CORRELATED


def strategy_for_blocks(plan: DocumentPlan, count: int) -> ReadStrategy:
    """Return the fastest strategy for the documents of `count` blocks of the root table (8 kB each).

    As sets all their related rows are held at once, by PostgreSQL in its temporary files.
    """
    table = plan.table
    if not table.page_estimate or not table.row_estimate:
        return ReadStrategy.MIXED
    rows = table.row_estimate * count / table.page_estimate
    held = _bytes(joined_values(plan.members), table, rows)
    return ReadStrategy.AGGREGATED if held <= MOST_BYTES else ReadStrategy.MIXED


def strategy_for_rows(plan: DocumentPlan, count: int) -> ReadStrategy:
    """Return the fastest strategy for `count` root rows, as `strategy_for_blocks`."""
    table = plan.table
    pages = count * table.page_estimate / table.row_estimate if table.row_estimate else 0
    return strategy_for_blocks(plan, ceil(pages))


def _bytes(values: Iterable[Joined], parent: Table, parents: float) -> float:
    """Estimate the bytes of the related rows of `parents` rows, from the last ANALYZE."""
    held = 0.0
    for value in values:
        relation = value.relation
        table = relation.table
        if not table.row_estimate:
            continue
        source = table if relation.junction is None else relation.junction.table
        rows = parents * source.row_estimate / max(parent.row_estimate, 1)
        if relation.junction is None and is_single(relation):
            rows = min(parents, table.row_estimate)
        held += rows * table.page_estimate * _PAGE_BYTES / table.row_estimate
        if isinstance(value, RelatedValue):
            held += _bytes(joined_values(value.members), table, rows)
    return held


def _is_multiplied(members: tuple[Member, ...], *, many: bool) -> bool:
    """Return whether a relation that no index serves is looked up for each row of a list."""
    return any(
        (many and not is_served(value.relation) and _is_hashed(value.relation))
        or (isinstance(value, RelatedValue) and _is_multiplied(value.members, many=many or value.many))
        for value in joined_values(members)
    )


def reads_as_set(value: Joined, strategy: ReadStrategy) -> bool:
    """Return whether the rows of `value` are read as sets, if those of its parent are available as one."""
    if strategy is ReadStrategy.CORRELATED or not _is_hashed(value.relation):
        return False
    if not is_served(value.relation):
        return True
    if strategy is ReadStrategy.AGGREGATED:
        return not _is_in_index(value)
    return isinstance(value, RelatedValue) and any(
        reads_as_set(inner, strategy) for inner in joined_values(value.members)
    )


def uses_sets(plan: DocumentPlan, strategy: ReadStrategy) -> bool:
    """Return whether the statement differs from the correlated one."""
    return any(reads_as_set(value, strategy) for value in joined_values(plan.members))


def is_served(relation: RelationPlan) -> bool:
    """Return whether indexes lead from one parent to its related rows."""
    junction = relation.junction
    if junction is None:
        names = [ours.name for ours, _ in relation.links]
        return relation.table.serves(names) and all(as_stored(*pair) for pair in relation.links)
    return leads_into(junction) and as_stored(junction.related, junction.right)


def leads_into(junction: Junction) -> bool:
    """Return whether an index leads from one parent to its rows of the junction."""
    return junction.table.serves([junction.left.name]) and as_stored(junction.left, junction.parent)


def is_single(relation: RelationPlan) -> bool:
    """Return whether a parent has at most one related row, whatever the data."""
    linked = {ours.name for ours, theirs in relation.links if as_stored(ours, theirs)}
    keys = [set(key.columns) for key in relation.table.unique_keys]
    return any(key <= linked for key in keys)


def _is_in_index(value: Joined) -> bool:
    """Return whether an index leads directly to the least or greatest value."""
    if value.relation.junction is not None or not isinstance(value, AggregateValue):
        return False
    if value.op not in ("min", "max") or value.column is None:
        return False
    return value.relation.table.serves([*(ours.name for ours, _ in value.relation.links), value.column.name])


def _is_hashed(relation: RelationPlan) -> bool:
    junction = relation.junction
    if junction is None:
        return all(is_hashed(*pair) for pair in relation.links)
    return is_hashed(junction.left, junction.parent) and is_hashed(junction.right, junction.related)
