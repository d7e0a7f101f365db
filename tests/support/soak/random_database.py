"""Make random databases.

Tables in several schemas, some with names that need quotes, with keys of one or two columns, with references
to each other, to themselves and twice to the same table, junctions among them, some of them partitioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from headrace.model.names import TableName
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as table_sql
from support.soak.column_types import KEYS, KINDS, PARTS, PLAIN, Kind

_SCHEMAS = ("public", "public", "public", "shop", "Mixed Case")
_TABLES = ("user", "order", "Line Item", "tag", "select", "Größe", "item", "a", "Table", "note")
_COLUMNS = ("name", "state", "Qty", "when", "x y", "label", "kind", 'q"t', "note", "grp", "m", "n")
_KEY_COLUMNS = ("id", "id", "no", "Id", "key")
_CONSTRAINTS = (
    "",
    "",
    "",
    "ON DELETE CASCADE ON UPDATE CASCADE",
    "ON DELETE SET NULL ON UPDATE CASCADE",
    "DEFERRABLE INITIALLY DEFERRED",
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `kind` is a name in `KINDS`."""

    name: str
    kind: str
    not_null: bool = False

    @property
    def type(self) -> Kind:
        """What it holds."""
        return KINDS[self.kind]


@dataclass(frozen=True, slots=True)
class Reference:
    """Columns that hold another table's key; `constraint` is what a foreign key does, empty for none."""

    columns: tuple[str, ...]
    target: TableName
    constraint: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        key: its columns in the order of the key.
        primary: whether the key is a primary key, or only a unique index.
        parts: how many partitions it has; 0: it is not partitioned.
    """

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    references: tuple[Reference, ...] = ()
    primary: bool = True
    parts: int = 0

    def column(self, name: str) -> Column:
        """The column called `name`."""
        return next(one for one in self.columns if one.name == name)

    @property
    def linked(self) -> frozenset[str]:
        """The columns that are a key or a part of a reference."""
        return frozenset(self.key).union(*(one.columns for one in self.references))

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that are neither."""
        return tuple(one for one in self.columns if one.name not in self.linked)


@dataclass(frozen=True, slots=True)
class Database:
    """The tables, in an order in which they can be made."""

    tables: tuple[Table, ...]

    def __getitem__(self, name: TableName) -> Table:
        return next(one for one in self.tables if one.name == name)

    def pointing_at(self, name: TableName) -> Iterator[tuple[Table, Reference]]:
        """The references to a table, with the tables that hold them."""
        for table in self.tables:
            for reference in table.references:
                if reference.target == name:
                    yield table, reference

    def junctions_from(self, name: TableName) -> Iterator[tuple[Table, Reference, Reference]]:
        """Tables that lead from one row of `name` to rows of others: reference here, reference there."""
        for table, here in self.pointing_at(name):
            for there in table.references:
                if there is not here and len(there.columns) == 1 == len(here.columns):
                    yield table, here, there

    def statements(self) -> Iterator[str]:
        """The DDL."""
        for schema in sorted({one.name.schema for one in self.tables} - {"public"}):
            yield f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)}"
        for table in self.tables:
            yield _create(table)
            for number in range(table.parts):
                leaf = TableName(table.name.schema, f"{table.name.name}_{number}")
                of = f"PARTITION OF {table_sql(table.name)}"
                bounds = f"FOR VALUES WITH (MODULUS {table.parts}, REMAINDER {number})"
                yield f"CREATE TABLE {table_sql(leaf)} {of} {bounds}"
            for reference in table.references:
                yield f"CREATE INDEX ON {table_sql(table.name)} ({_listed(reference.columns)})"
        for table in self.tables:
            for reference in table.references:
                if reference.constraint:
                    yield _constrain(table, reference, self[reference.target].key)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(identifier, names))


def _create(table: Table) -> str:
    columns = [
        f"{identifier(one.name)} {one.type.sql}{' NOT NULL' if one.not_null else ''}" for one in table.columns
    ]
    key = f"{'PRIMARY KEY' if table.primary else 'UNIQUE'} ({_listed(table.key)})"
    parts = f" PARTITION BY HASH ({identifier(table.key[0])})" if table.parts else ""
    return f"CREATE TABLE {table_sql(table.name)} ({', '.join([*columns, key])}){parts}"


def _constrain(table: Table, reference: Reference, key: Sequence[str]) -> str:
    return (
        f"ALTER TABLE {table_sql(table.name)} ADD FOREIGN KEY ({_listed(reference.columns)}) "
        f"REFERENCES {table_sql(reference.target)} ({_listed(key)}) {reference.constraint}"
    )


def invent_database(random: Random) -> Database:
    """Two to seven tables; the first one is never a mere junction."""
    names = random.sample(_TABLES, random.randint(2, 6))
    tables = [_table(random, TableName(random.choice(_SCHEMAS), name)) for name in names]
    tables = [_with_references(random, table, tables) for table in tables]
    single = [table for table in tables if len(table.key) == 1]
    if single and random.random() < 0.7:
        ends = random.choice(single), random.choice(single)
        tables.append(_junction(random, TableName(random.choice(_SCHEMAS), "linked"), ends))
    return Database(tuple(tables))


def _table(random: Random, name: TableName) -> Table:
    names = random.sample(_COLUMNS, random.randint(1, 6))
    shown = [Column(one, random.choice(PLAIN), not_null=random.random() < 0.2) for one in names]
    key = _key(random)
    return Table(
        name,
        (*key, *shown) if random.random() < 0.7 else (*shown, *key),
        tuple(one.name for one in random.sample(key, len(key))),
        primary=random.random() < 0.9,
        parts=random.randint(2, 3) if random.random() < 0.25 else 0,
    )


def _key(random: Random) -> list[Column]:
    if random.random() < 0.75:
        return [Column(random.choice(_KEY_COLUMNS), random.choice(KEYS), not_null=True)]
    first, last = Column("shop", random.choice(PARTS), not_null=True), random.choice(("int", "text", "uuid"))
    return [first, Column(random.choice(_KEY_COLUMNS), last, not_null=True)]


def _with_references(random: Random, table: Table, tables: Sequence[Table]) -> Table:
    """A few references, some to the same table, some to itself."""
    for number in range(random.choice((0, 1, 1, 2, 2, 3))):
        target = random.choice(tables)
        table = _pointing(random, table, target, f"ref{number}")
    return table


def _pointing(random: Random, table: Table, target: Table, name: str, *, not_null: bool = False) -> Table:
    columns = tuple(
        Column(
            name if len(target.key) == 1 else f"{name} {part}",
            _holding(random, target.column(part).kind),
            not_null=not_null,
        )
        for part in target.key
    )
    alike = all(one.kind == target.column(part).kind for one, part in zip(columns, target.key, strict=True))
    constraint = random.choice(_CONSTRAINTS) if alike else ""
    if not_null:
        constraint = constraint.replace("SET NULL", "CASCADE")
    reference = Reference(tuple(one.name for one in columns), target.name, constraint)
    return replace(table, columns=(*table.columns, *columns), references=(*table.references, reference))


def _holding(random: Random, kind: str) -> str:
    """The kind of a column that holds a key of this kind: sometimes another one that compares with it."""
    others = {"int": "big", "big": "numeric", "text": "varchar", "varchar": "text", "code": "text"}
    return others.get(kind, kind) if random.random() < 0.15 else kind


def _junction(random: Random, name: TableName, ends: tuple[Table, Table]) -> Table:
    """With a key of its own, where the same pair may stand twice, or with the pair as its key."""
    surrogate = random.random() < 0.5
    own = (Column("id", "int", not_null=True),) if surrogate else ()
    table = Table(name, (*own, Column("rank", "int")), ("id",))
    for side, target in zip(("left", "right"), ends, strict=True):
        table = _pointing(random, table, target, side, not_null=not surrogate)
    if not surrogate:
        table = replace(table, key=tuple(column for one in table.references for column in one.columns))
    return table
