"""Typed values of a schema file.

The tree mirrors the schema language one to one and needs no database. Column and table names are as the
catalog holds them (folded, or their case kept where the file quotes them). A `description` is for readers and
determines no document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from headrace.errors import Place
from headrace.model.names import TableName

Scalar = str | int | float | bool
"""A literal of a filter, a constant or a default."""

_Comparison = Literal["eq", "neq", "lt", "lte", "gt", "gte", "like", "ilike"]


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a row; conditions of a list are ANDed.

    `op` is `raw` (then `raw` is SQL), `is_null`, `is_not_null` (no values), `in`, `not_in` (any number of
    values), `between` (two), or a comparison (one). `unsafe` accepts a raw condition as it is.
    """

    op: Literal["raw", "is_null", "is_not_null", _Comparison, "in", "not_in", "between"]
    column: str | None
    values: tuple[Scalar, ...]
    raw: str | None
    place: Place
    unsafe: bool = False

    def __str__(self) -> str:
        """Write the condition as a person would."""
        if self.raw is not None:
            return self.raw
        values = ", ".join(str(value) for value in self.values)
        return " ".join(filter(None, (self.column, self.op, values)))


@dataclass(frozen=True, slots=True)
class OrderBy:
    """A term of an `order_by`."""

    column: str
    descending: bool


@dataclass(frozen=True, slots=True)
class Through:
    """A junction table: `left_key` refers to the parent, `right_key` to the related row.

    Attributes:
        left_references: the parent's column that `left_key` equals; empty: its key.
        right_references: the related row's column that `right_key` equals; empty: its key.
        filters: conditions on the junction's own rows.
    """

    table: TableName
    left_key: str
    right_key: str
    left_references: str = ""
    right_references: str = ""
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mapped:
    """A field with a mapping of its own, of which `options` are further properties."""

    options: tuple[tuple[str, object], ...] = ()
    description: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ColumnField(_Mapped):
    """A scalar, an enum or a custom field: one column of the row under one document key.

    Attributes:
        tag: the type key of the schema file (`keyword`, `decimal`, `custom`, …).
        postgres: the types that a `custom` field accepts; empty otherwise.
        opensearch: the mapping type.
        variants: the ranks of an enum, first to last; empty where none were given.
    """

    key: str
    tag: str
    column: str
    required: bool
    opensearch: str
    place: Place
    postgres: tuple[str, ...] = ()
    transforms: tuple[Literal["lowercase", "trim"], ...] = ()
    default: Scalar | None = None
    variants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GeoField(_Mapped):
    """A point: from two columns (`lat`, `lon`) or from one that already holds a point."""

    key: str
    lat: str | None
    lon: str | None
    column: str | None
    required: bool
    place: Place

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold the point."""
        return tuple(name for name in (self.lat, self.lon, self.column) if name is not None)


@dataclass(frozen=True, slots=True)
class MapField(_Mapped):
    """A json column whose keys are data.

    `values` is the type key that all values share; where it is None, `dynamic` is true and the index infers
    the types.
    """

    key: str
    column: str
    values: str | None
    dynamic: bool
    required: bool
    place: Place


@dataclass(frozen=True, slots=True)
class ObjectField(_Mapped):
    """Columns of the same row under one document key; never null."""

    key: str
    fields: tuple[Field, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class ConstantField:
    """The same value in every document."""

    key: str
    value: Scalar | None
    place: Place
    description: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class JoinField(_Mapped):
    """Rows of a related table, as an object (to-one) or a nested list (to-many).

    Exactly one of `column` (belongs_to: this row's columns that hold the related row's key, in its order),
    `foreign_key` (has_one, has_many: the related row's columns that hold this row's key) and `through`
    (many_to_many) is set.

    Attributes:
        references: this row's columns that `foreign_key` equals; empty: its key.
        scalar: whether the value of the only field stands in place of an object.
    """

    key: str
    kind: Literal["belongs_to", "has_one", "has_many", "many_to_many"]
    table: TableName
    primary_key: tuple[str, ...]
    fields: tuple[Field, ...]
    place: Place
    column: tuple[str, ...] = ()
    foreign_key: tuple[str, ...] = ()
    through: Through | None = None
    filters: tuple[Filter, ...] = ()
    order_by: tuple[OrderBy, ...] = ()
    limit: int | None = None
    required: bool = False
    table_place: Place | None = None
    references: tuple[str, ...] = ()
    scalar: bool = False

    @property
    def to_many(self) -> bool:
        """Whether the document holds a list."""
        return self.kind in ("has_many", "many_to_many")


@dataclass(frozen=True, slots=True)
class AggregateField(_Mapped):
    """Related rows reduced to one value; exactly one of `foreign_key` and `through` is set.

    `column` is None for `count` and `ids`; `primary_key` is the related table's, empty until the spec is
    completed from the catalog; `value_type` is the type key of a scalar (`long`, `decimal`, …) and for `ids`
    that of its elements. `references` is as of a join.
    """

    key: str
    op: Literal["count", "sum", "avg", "min", "max", "ids"]
    table: TableName
    place: Place
    column: str | None = None
    value_type: str | None = None
    foreign_key: tuple[str, ...] = ()
    through: Through | None = None
    primary_key: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()
    table_place: Place | None = None
    references: tuple[str, ...] = ()


Field = ColumnField | GeoField | MapField | ObjectField | ConstantField | JoinField | AggregateField


@dataclass(frozen=True, slots=True)
class SoftDelete:
    """A row counts as deleted where `column` is true (boolean) or not null (else), and `when` holds."""

    column: str
    when: tuple[Filter, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index: its root table and the content of its documents.

    `name` and `transform` (`module:function`, which changes its documents) come from the deployment file.
    `routing` is the root's column that decides the shard of a document; None: its id does.
    """

    name: str
    table: TableName
    primary_key: tuple[str, ...]
    fields: tuple[Field, ...]
    place: Place
    filters: tuple[Filter, ...] = ()
    soft_delete: SoftDelete | None = None
    transform: str | None = None
    routing: str | None = None
    hash: str = field(default="", compare=False)
    description: str = field(default="", compare=False)

    def tables(self) -> frozenset[TableName]:
        """Return every table that a document of this index reads, junction tables too."""
        # All of them must be published, with the junctions.
        related = list(related_fields(self.fields))
        junctions = (node.through.table for node in related if node.through is not None)
        return frozenset({self.table, *(node.table for node in related), *junctions})

    def conditions(self) -> Iterator[tuple[TableName, Filter]]:
        """Yield every filter of the index, with the table whose rows it selects."""
        when = self.soft_delete.when if self.soft_delete is not None else ()
        # Of the root too: a change of what they test makes a document come or go.
        yield from ((self.table, condition) for condition in (*self.filters, *when))
        for node in related_fields(self.fields):
            yield from ((node.table, condition) for condition in node.filters)
            if node.through is not None:
                yield from ((node.through.table, condition) for condition in node.through.filters)


def own_fields(fields: Iterable[Field]) -> Iterator[Field]:
    """Yield the fields of a row, in the place of its objects what these hold."""
    for node in fields:
        if isinstance(node, ObjectField):
            yield from own_fields(node.fields)
        else:
            yield node


def related_fields(fields: Iterable[Field]) -> Iterator[JoinField | AggregateField]:
    """Yield the joins and aggregates among fields, and below them."""
    for node in own_fields(fields):
        if isinstance(node, JoinField | AggregateField):
            yield node
        if isinstance(node, JoinField):
            yield from related_fields(node.fields)
