"""What does a document consist of, once every name has found its column?

The nodes between the user's tree (`headrace.schema.tree`) and SQL: `lowering` makes them, `render` turns them
into text. Pure values; a node knows columns and tables as the catalog describes them, and no alias.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from headrace.catalog.table import Column, Table
from headrace.schema.tree import Filter


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A filter and the column that it tests; None for `raw`."""

    filter: Filter
    column: Column | None


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """One column; `default` is the JSON text that stands where it is null."""

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
    """The same JSON text in every document."""

    json: str


@dataclass(frozen=True, slots=True)
class ObjectValue:
    """Members from the same row."""

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Junction:
    """The table between a parent and its related rows: `left` equals `parent`, `right` equals `related`."""

    table: Table
    left: Column
    parent: Column
    right: Column
    related: Column


@dataclass(frozen=True, slots=True)
class RelationPlan:
    """The rows of `table` that belong to a parent row.

    Exactly one of `links` (pairs: the related row's column, the parent's) and `junction` is set. Each
    related row counts once, however often a junction names it. `key` tells the related rows apart.
    `linked_first`: see the function of this name.
    """

    table: Table
    key: tuple[Column, ...]
    links: tuple[tuple[Column, Column], ...]
    junction: Junction | None
    conditions: tuple[RowCondition, ...]
    linked_first: bool = False

    @property
    def above(self) -> tuple[Column, ...]:
        """The parent's columns that lead to its related rows."""
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


@dataclass(frozen=True, slots=True)
class AggregateValue:
    """Related rows reduced to one value; `column` is None where rows are counted."""

    op: Literal["count", "sum", "avg", "min", "max", "ids"]
    relation: RelationPlan
    column: Column | None


Joined = RelatedValue | AggregateValue
"""What comes from related rows."""
Value = ColumnValue | PointValue | LocationValue | ConstantValue | ObjectValue | Joined


@dataclass(frozen=True, slots=True)
class Member:
    """A key of a JSON object and its value."""

    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class Deletion:
    """A root row is no document where `column` is true (a boolean) or not null, and `conditions` hold."""

    column: Column
    conditions: tuple[RowCondition, ...]


@dataclass(frozen=True, slots=True)
class DocumentPlan:
    """The documents of one index; `key` in the order in which ids are formed.

    `routing` says where a document lies; None: its id does.
    """

    index: str
    table: Table
    key: tuple[Column, ...]
    members: tuple[Member, ...]
    conditions: tuple[RowCondition, ...]
    deletion: Deletion | None
    routing: Column | None = None


def joined_values(members: tuple[Member, ...]) -> Iterator[Joined]:
    """Those of these members, and of the objects among them, that come from related rows."""
    for member in members:
        match member.value:
            case ObjectValue(inner):
                yield from joined_values(inner)
            case RelatedValue() | AggregateValue() as value:
                yield value


def columns_read(members: tuple[Member, ...]) -> Iterator[Column]:
    """The columns of a row that its members show, or that lead to its related rows; some twice."""
    for member in members:
        match member.value:
            case ColumnValue(column=column) | LocationValue(column):
                yield column
            case PointValue(lat, lon):
                yield from (lat, lon)
            case ObjectValue(inner):
                yield from columns_read(inner)
            case RelatedValue(relation=relation) | AggregateValue(relation=relation):
                yield from relation.above


def linked_first(members: tuple[Member, ...]) -> tuple[Member, ...]:
    """The same members, whose raw conditions are tested on rows that belong to the parent, and on no others.

    Else PostgreSQL may test them on all rows of a table first, and fail for one that leads nowhere.
    """
    return tuple(replace(one, value=_linked_first(one.value)) for one in members)


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
