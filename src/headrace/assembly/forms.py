"""In which form are related rows read: looked up for each parent, or as sets for many parents at once?

A lookup costs an index access, or a reading of the whole table where no index serves it; a set costs one pass
over the table, whatever the number of parents. docs/decisions/0025-two-forms-of-assembly.md has the figures.
"""

from __future__ import annotations

from enum import Enum

from headrace.assembly.plan import DocumentPlan, Joined, RelatedValue, Relation, joined_values
from headrace.catalog.comparison import as_stored, is_hashed


class Form(Enum):
    """How the related rows of a statement are read."""

    CORRELATED = "correlated"
    """Each relation by lookups."""
    MIXED = "mixed"
    """As sets those that no index serves, and those above them; the others by lookups."""
    AGGREGATED = "aggregated"
    """As sets all that can be."""


def by_sets(value: Joined, form: Form) -> bool:
    """Whether the rows of `value` are read as sets, if those of its parent are at hand as one."""
    if form is Form.CORRELATED or not _is_hashed(value.relation):
        return False
    if form is Form.AGGREGATED or not is_served(value.relation):
        return True
    return isinstance(value, RelatedValue) and any(by_sets(one, form) for one in joined_values(value.members))


def uses_sets(plan: DocumentPlan, form: Form) -> bool:
    """Whether the statement differs from the correlated one."""
    return any(by_sets(one, form) for one in joined_values(plan.members))


def is_served(relation: Relation) -> bool:
    """Whether indexes lead from one parent to its related rows."""
    between = relation.junction
    if between is None:
        names = [ours.name for ours, _ in relation.links]
        return relation.table.serves(names) and all(as_stored(*pair) for pair in relation.links)
    return (
        between.table.serves([between.left.name])
        and as_stored(between.left, between.parent)
        and as_stored(between.related, between.right)
    )


def _is_hashed(relation: Relation) -> bool:
    between = relation.junction
    if between is None:
        return all(is_hashed(*pair) for pair in relation.links)
    return is_hashed(between.left, between.parent) and is_hashed(between.right, between.related)
