"""Describe tables and columns as the database's catalog has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headrace.errors import Kind, LocatedError, Place
from headrace.model.names import TableName


@dataclass(frozen=True, slots=True)
class Column:
    """A column as pg_attribute and pg_type describe it.

    Attributes:
        type: the type's name with its modifier, as `format_type` prints it (`numeric(10,2)`).
        base_type: the name in pg_type, domains followed to their base (`numeric`, `int4`, `_text`, `citext`);
            an enum, a range or a composite type of the users as SQL with its schema (`public.mood`,
            `_public.mood`), also where it shares its name with a built-in type.
        type_schema: the schema of the declared type.
        category: pg_type.typcategory of the base type (`N`, `S`, `E`, `A`, …).
        generated: whether the column is generated (absent from the log before PostgreSQL 18).
        base_schema: the schema of the base type, where its operators and aggregates are.
        domain: whether the declared type is a domain.
        collation: the collation's name as SQL; empty for the database's default, or where the type has none.
        element_category: pg_type.typcategory of an array's elements; empty where the column is no array.
        nondeterministic: whether the collation takes texts of different bytes for equal.
    """

    name: str
    type: str
    base_type: str
    type_schema: str
    category: str
    not_null: bool
    generated: bool
    base_schema: str = ""
    domain: bool = False
    collation: str = ""
    element_category: str = ""
    nondeterministic: bool = False

    @property
    def home(self) -> str:
        """The schema in which the type's own operators and functions are found."""
        return self.base_schema or self.type_schema


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A valid unique index without predicate or expression; `columns` in index order.

    `immediate` is false where the constraint is deferrable: such a key identifies no row in the log.
    """

    index: str
    columns: tuple[str, ...]
    primary: bool
    not_null: bool
    immediate: bool = True


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign-key constraint of the table that holds the columns.

    Attributes:
        holds: whether every row without NULL has its target; of one that is NOT VALID or NOT ENFORCED it may
            lack it.
    """

    columns: tuple[str, ...]
    target: TableName
    target_columns: tuple[str, ...]
    holds: bool = True


ReplicaIdentity = Literal["default", "nothing", "full", "index"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `kind` is pg_class.relkind (`r` ordinary, `p` partitioned, `v` view, `m`, `f`)."""

    name: TableName
    oid: int
    kind: str
    columns: tuple[Column, ...]
    unique_keys: tuple[UniqueKey, ...]
    foreign_keys: tuple[ForeignKey, ...]
    indexed: tuple[tuple[str, ...], ...]
    """The leading columns of every valid index without predicate that serves an equality (`serves`)."""
    replica_identity: ReplicaIdentity
    identity_columns: tuple[str, ...]
    """The columns that an old tuple carries now; empty under `nothing`, all under `full`."""
    row_estimate: int
    partitions: tuple[TableName, ...] = ()
    """The leaf partitions, where `kind` is `p`."""
    page_estimate: int = 0
    """Blocks of 8 kB; as of the last VACUUM or ANALYZE, like the rows; 0 before the first."""
    inherited: bool = False
    """Whether an ordinary table has children by INHERITS."""
    reads: tuple[TableName, ...] = ()
    """The tables that a view reads."""

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns in key order; empty where there is none."""
        return next((key.columns for key in self.unique_keys if key.primary), ())

    def serves(self, columns: Sequence[str]) -> bool:
        """Return whether a valid index begins with `columns`, in any order: then a lookup reads few rows."""
        wanted, count = set(columns), len(columns)
        return any(set(leading[:count]) == wanted for leading in self.indexed)

    def column(self, name: str) -> Column | None:
        """Return the column called `name`, or None."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tables that were looked up, by name.

    Attributes:
        existing: the names that the database has, where a looked-up table does not exist; else empty.
    """

    tables: dict[TableName, Table]
    existing: tuple[TableName, ...] = field(default=(), compare=False)

    def __getitem__(self, name: TableName) -> Table:
        return self.tables[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tables


def find_table(catalog: Catalog, name: TableName, place: Place) -> Table:
    """Return a table that a schema file names.

    Raises:
        LocatedError: SCHEMA, where there is none.
    """
    if name not in catalog:
        raise LocatedError(Kind.SCHEMA, place, f"there is no table {name}", "Correct its name or its schema.")
    return catalog[name]


def find_column(table: Table, name: str, place: Place) -> Column:
    """Return a column that a schema file names.

    Raises:
        LocatedError: SCHEMA, where there is none.
    """
    column = table.column(name)
    if column is None:
        raise LocatedError(
            Kind.SCHEMA, place, f"table {table.name} has no column {name}", "Correct the column's name."
        )
    return column


def find_columns(table: Table, names: Iterable[str], place: Place) -> tuple[Column, ...]:
    """Return columns that a schema file names; as `find_column`."""
    return tuple(find_column(table, name, place) for name in names)
