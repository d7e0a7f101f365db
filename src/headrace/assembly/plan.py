"""The plan of a document: the schema's tree with every name resolved to its column.

The nodes stand between the schema's tree (`headrace.schema.tree`) and SQL: `lowering` creates them, `render`
turns them into text. Pure values; a node has columns and tables of the catalog, but no alias.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from headrace.catalog.table import Column, Table
from headrace.schema.tree import Filter


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A filter and the column that it tests; None for a raw filter."""

    filter: Filter
    column: Column | None


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """The value of one column; `default` is the JSON text where it is null."""

    column: Column
    transforms: tuple[Literal["lowercase", "trim"], ...] = ()
    default: str = "null"


@dataclass(frozen=True, slots=True)
class PointValue:
    """A point from two numeric columns; null where either is."""

    lat: Column
    lon: Column


@dataclass(frozen=True, slots=True)
class LocationValue:
    """A point from one column that holds it."""

    column: Column


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """A JSON text that is the same in every document."""

    json: str


@dataclass(frozen=True, slots=True)
class ObjectValue:
    """An object whose members come from the same row."""

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Junction:
    """The table between a parent and its related rows: `left` equals `parent`, `right` equals `related`.

    Attributes:
        conditions: on the junction's own rows.
    """

    table: Table
    left: Column
    parent: Column
    right: Column
    related: Column
    conditions: tuple[RowCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class RelationPlan:
    """The rows of `table` that belong to a parent row.

    Each related row counts once, however often a junction names it.

    Attributes:
        table: the related table.
        key: identifies the related rows.
        links: pairs of the related row's column and the parent's; empty with a junction.
        junction: None with links.
        conditions: on the related rows.
        linked_first: see the function of this name.
    """

    table: Table
    key: tuple[Column, ...]
    links: tuple[tuple[Column, Column], ...]
    junction: Junction | None
    conditions: tuple[RowCondition, ...]
    linked_first: bool = False

    @property
    def above(self) -> tuple[Column, ...]:
        """Return the parent's columns that lead to its related rows."""
        return tuple(theirs for _, theirs in self.links) if self.junction is None else (self.junction.parent,)


@dataclass(frozen=True, slots=True)
class RelatedValue:
    """Related rows as a list, or the first of them as an object or null."""

    relation: RelationPlan
    members: tuple[Member, ...]
    order: tuple[tuple[Column, bool], ...]
    """Columns and whether they descend; the relation's key always follows."""
    limit: int | None
    many: bool
    scalar: bool = False
    """Whether the value of the only member stands in place of an object."""


@dataclass(frozen=True, slots=True)
class AggregateValue:
    """Related rows reduced to one value; `column` is None where rows are counted."""

    op: Literal["count", "sum", "avg", "min", "max", "ids"]
    relation: RelationPlan
    column: Column | None


Joined = RelatedValue | AggregateValue
"""Values that come from related rows."""
Value = ColumnValue | PointValue | LocationValue | ConstantValue | ObjectValue | Joined


@dataclass(frozen=True, slots=True)
class Member:
    """A key of a JSON object and its value."""

    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class Deletion:
    """Marks deleted root rows: `column` is true (a boolean) or not null, and `conditions` hold."""

    column: Column
    conditions: tuple[RowCondition, ...]


@dataclass(frozen=True, slots=True)
class DocumentPlan:
    """The documents of one index.

    Attributes:
        index: the logical index.
        table: the root table.
        key: in the order in which ids are formed.
        members: of the document.
        conditions: on root rows.
        deletion: marks deleted rows.
        routing: the column that decides on which shard a document lies; None: its id does.
    """

    index: str
    table: Table
    key: tuple[Column, ...]
    members: tuple[Member, ...]
    conditions: tuple[RowCondition, ...]
    deletion: Deletion | None
    routing: Column | None = None


def joined_values(members: tuple[Member, ...]) -> Iterator[Joined]:
    """Iterate over the values from related rows among these members and their objects."""
    for member in members:
        match member.value:
            case ObjectValue(inner):
                yield from joined_values(inner)
            case RelatedValue() | AggregateValue() as value:
                yield value


def columns_read(members: tuple[Member, ...]) -> Iterator[Column]:
    """Iterate over the columns of a row that its members show or link by; some twice."""
    for member in members:
        match member.value:
            case ColumnValue(column=column) | LocationValue(column):
                yield column
            case PointValue(lat, lon):
                yield from (lat, lon)
            case ObjectValue(inner):
                yield from columns_read(inner)
            case RelatedValue(relation=relation) | AggregateValue(relation=relation):
                # The parent's columns that relations start from are read too.
                yield from relation.above


def linked_first(members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Return the members with raw conditions that are tested only on rows that belong to the parent.

    Otherwise PostgreSQL may test them on all rows of a table first, and fail for a row that no document has.
    """
    return tuple(replace(member, value=_linked_first(member.value)) for member in members)


def _linked_first(value: Value) -> Value:
    match value:
        case ObjectValue(members):
            return ObjectValue(linked_first(members))
        case RelatedValue(relation=relation, members=members):
            return replace(
                value, relation=replace(relation, linked_first=True), members=linked_first(members)
            )
        case AggregateValue(relation=relation):
            return replace(value, relation=replace(relation, linked_first=True))
        case _:
            return value
