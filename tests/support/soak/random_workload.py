"""Make random statements of every kind on a random database, as SQL text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from random import Random

from headrace.model.names import TableName
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as table_sql
from support.soak.column_types import LONG
from support.soak.random_database import Column, Database, Reference, Table

_BULK = 400


class Writer:
    """Makes up statements; the same random numbers make the same ones.

    Args:
        random: the numbers.
        database: whose tables are written.
        read: those that somebody reads, which are written more often.
    """

    def __init__(self, random: Random, database: Database, read: Collection[TableName]) -> None:
        self._random = random
        self._database = database
        self._read = [table for table in database.tables if table.name in read]
        self._fresh = 0
        self._kinds: dict[Callable[[Table], str], float] = {
            self.insert: 10,
            self.upsert: 6,
            self.update: 14,
            self.move: 10,
            self.change_key: 4,
            self.delete: 6,
            self.delete_some: 1.5,
            self.update_many: 3,
            self.update_from: 4,
            self.insert_many: 1,
            self.touch: 1,
            self.move_row: 1,
            self.merge_in: 2,
            self.truncate: 0.6,
            self.call_otherwise: 0.6,
            self.take_out: 3,
        }

    def statement(self) -> str:
        """One statement on one table."""
        some = self._read if self._random.random() < 0.85 else self._database.tables
        table = self._random.choice(some)
        [kind] = self._random.choices(list(self._kinds), list(self._kinds.values()))
        return kind(table)

    def fill(self) -> list[str]:
        """Single rows for every table, so that writers find something."""
        rows = self._random.choice((6, 14, 14, 40))
        tables = [table for table in self._database.tables for _ in range(rows)]
        half = len(tables) // 2
        self._random.shuffle(tables)
        return [
            self._inserted(table, nulls=0.4 if number < half else 0.1) + " ON CONFLICT DO NOTHING"
            for number, table in enumerate(tables)
        ]

    # values

    def _value(self, column: Column, nulls: float) -> str:
        if column.kind == "long" and self._random.random() < 0.5:
            self._fresh += 1
            return LONG.format(seed=f"'{self._fresh}'")
        return column.type.any(self._random, 0 if column.not_null else nulls)

    def _assignments(self, columns: Iterable[Column], nulls: float = 0.2) -> str:
        return ", ".join(f"{identifier(one.name)} = {self._value(one, nulls)}" for one in columns)

    def _matching(self, columns: Iterable[Column], alias: str = "") -> str:
        return " AND ".join(
            f"{alias}{identifier(one.name)} = {one.type.value(self._random)}" for one in columns
        )

    def _row(self, table: Table) -> str:
        """A condition that finds one row, or none."""
        return self._matching(table.column(name) for name in table.key)

    def _some_rows(self, table: Table) -> str:
        """A condition that finds some rows."""
        comparable = [one for one in table.columns if one.type.compared]
        return self._matching([self._random.choice(comparable)])

    def _shown(self, table: Table) -> list[Column]:
        shown = list(table.shown) or list(table.columns)
        return self._random.sample(shown, self._random.randint(1, min(2, len(shown))))

    # statements

    def insert(self, table: Table) -> str:
        """A row, or several."""
        if self._random.random() < 0.4:
            return self._inserted(table)
        return self._inserted(table, rows=self._random.choice((1, 2, 6))) + " ON CONFLICT DO NOTHING"

    def _inserted(self, table: Table, nulls: float = 0.15, rows: int = 1) -> str:
        values = [", ".join(self._value(one, nulls) for one in table.columns) for _ in range(rows)]
        listed = "), (".join(values)
        return f"INSERT INTO {table_sql(table.name)} ({_names(table.columns)}) VALUES ({listed})"

    def upsert(self, table: Table) -> str:
        """A row, or a change of it where it is there."""
        changed = [one for one in table.columns if one.name not in table.key] or list(table.columns)
        some = self._random.sample(changed, self._random.randint(1, min(3, len(changed))))
        new = ", ".join(f"{identifier(one.name)} = EXCLUDED.{identifier(one.name)}" for one in some)
        key = ", ".join(map(identifier, table.key))
        return f"{self._inserted(table)} ON CONFLICT ({key}) DO UPDATE SET {new}"

    def update(self, table: Table) -> str:
        """What one row shows."""
        return self._updated(table, self._assignments(self._shown(table)), self._row(table))

    def move(self, table: Table) -> str:
        """A row, or all of a parent, to another parent."""
        if not table.references:
            return self.update(table)
        columns = [table.column(name) for name in self._random.choice(table.references).columns]
        where = self._row(table) if self._random.random() < 0.7 else self._matching(columns)
        return self._updated(table, self._assignments(columns), where)

    def change_key(self, table: Table) -> str:
        """A row's key, or a part of it."""
        part = table.column(self._random.choice(table.key))
        new = f"{identifier(part.name)} = {part.type.value(self._random)}"
        if self._random.random() < 0.2 and table.shown:
            new += f", {self._assignments(self._shown(table)[:1])}"
        return self._updated(table, new, self._row(table))

    def delete(self, table: Table) -> str:
        """One row."""
        return f"DELETE FROM {table_sql(table.name)} WHERE {self._row(table)}"

    def delete_some(self, table: Table) -> str:
        """Some rows, now and then all."""
        where = "true" if self._random.random() < 0.15 else self._some_rows(table)
        return f"DELETE FROM {table_sql(table.name)} WHERE {where}"

    def update_many(self, table: Table) -> str:
        """Some rows or all."""
        columns = self._shown(table)
        if table.references and self._random.random() < 0.4:
            columns = [table.column(name) for name in self._random.choice(table.references).columns]
        where = "true" if self._random.random() < 0.4 else self._some_rows(table)
        return self._updated(table, self._assignments(columns), where)

    def update_from(self, table: Table) -> str:
        """Children by what their parents hold."""
        found = self._reference(table)
        if found is None:
            return self.update_many(table)
        reference, parent = found
        pairs = [
            (own, other)
            for own in table.shown
            for other in parent.columns
            if own.kind == other.kind and (other.not_null or not own.not_null)
        ]
        joined = _joined(reference, parent)
        if not pairs:
            some = self._matching([parent.column(parent.key[0])], "p.")
            both = f"{table_sql(table.name)} AS c USING {table_sql(parent.name)} AS p"
            return f"DELETE FROM {both} WHERE {joined} AND {some}"
        own, other = self._random.choice(pairs)
        new = f"{identifier(own.name)} = p.{identifier(other.name)}"
        return (
            f"UPDATE {table_sql(table.name)} AS c SET {new} FROM {table_sql(parent.name)} AS p WHERE {joined}"
        )

    def insert_many(self, table: Table) -> str:
        """Hundreds of rows, so that a transaction is sent before its end."""
        last = table.column(table.key[-1])
        fresh = next((table.column(one) for one in table.key if table.column(one).type.fresh), None)
        if fresh is None:
            return self.insert(table)
        values = []
        for number, column in enumerate(table.columns):
            if column is fresh:
                values.append(column.type.fresh)
            elif column.type.compared:
                values.append(column.type.cycling(number + 1))
            else:
                values.append(f"{column.type.value(self._random)}::{column.type.sql}")
        start = self._random.randint(1, 3) * 100
        stop = start + self._random.choice((20, 60, _BULK if last.kind == "int" else 60))
        return (
            f"INSERT INTO {table_sql(table.name)} ({_names(table.columns)}) SELECT {', '.join(values)} "
            f"FROM generate_series({start}, {stop}) AS i ON CONFLICT DO NOTHING"
        )

    def touch(self, table: Table) -> str:
        """All rows, and nothing in them."""
        name = identifier(self._random.choice(table.columns).name)
        return self._updated(table, f"{name} = {name}", "true")

    def move_row(self, table: Table) -> str:
        """A row out of the table and in again under another key, in one statement."""
        key = table.column(table.key[0])
        values = [
            key.type.value(self._random) if one is key else identifier(one.name) for one in table.columns
        ]
        typed = [
            f"{value}::{one.type.sql}" if one is key else value
            for value, one in zip(values, table.columns, strict=True)
        ]
        name = table_sql(table.name)
        return (
            f"WITH gone AS (DELETE FROM {name} WHERE {self._row(table)} RETURNING *) "
            f"INSERT INTO {name} ({_names(table.columns)}) SELECT {', '.join(typed)} FROM gone"
        )

    def merge_in(self, table: Table) -> str:
        """Rows that are there are changed, all others deleted or left."""
        found = self._reference(table)
        if found is None or not table.shown:
            return self.upsert(table)
        reference, parent = found
        matched = self._random.choice(("DELETE", f"UPDATE SET {self._assignments(self._shown(table))}"))
        return (
            f"MERGE INTO {table_sql(table.name)} AS c USING {table_sql(parent.name)} AS p "
            f"ON {_joined(reference, parent)} AND {self._matching([parent.column(parent.key[0])], 'p.')} "
            f"WHEN MATCHED THEN {matched}"
        )

    def truncate(self, table: Table) -> str:
        """A table, two, a partition, or all that depend on it."""
        names = {table.name, *self._random.choices([one.name for one in self._database.tables], k=1)}
        if self._random.random() < 0.7:
            names = {table.name}
        if table.parts and self._random.random() < 0.5:
            names = {TableName(table.name.schema, f"{table.name.name}_0")}
        listed = ", ".join(table_sql(name) for name in sorted(names))
        return f"TRUNCATE {listed}{self._random.choice((' CASCADE', ' CASCADE', ''))}"

    def call_otherwise(self, table: Table) -> str:
        """What one table holds, changed while it has another name."""
        away = replace(table, name=TableName(table.name.schema, f"{table.name.name}_away"))
        change = self._random.choice((self.update_many, self.delete_some, self.insert, self.move))
        there = f"ALTER TABLE {table_sql(table.name)} RENAME TO {identifier(away.name.name)}"
        back = f"ALTER TABLE {table_sql(away.name)} RENAME TO {identifier(table.name.name)}"
        return f"{there}; {change(away)}; {back}"

    def take_out(self, table: Table) -> str:
        """What a partition holds, changed while it belongs to no table: the log says nothing of it."""
        if not table.parts:
            return self.update(table)
        part = replace(table, name=TableName(table.name.schema, f"{table.name.name}_0"), parts=0)
        change = self._random.choice((self.update_many, self.update_many, self.delete_some))
        whole, bounds = table_sql(table.name), f"FOR VALUES WITH (MODULUS {table.parts}, REMAINDER 0)"
        out = f"ALTER TABLE {whole} DETACH PARTITION {table_sql(part.name)}"
        back = f"ALTER TABLE {whole} ATTACH PARTITION {table_sql(part.name)} {bounds}"
        return f"{out}; {change(part)}; {back}"

    def _updated(self, table: Table, new: str, where: str) -> str:
        return f"UPDATE {table_sql(table.name)} SET {new} WHERE {where}"

    def _reference(self, table: Table) -> tuple[Reference, Table] | None:
        others = [one for one in table.references if one.target != table.name]
        if not others:
            return None
        reference = self._random.choice(others)
        return reference, self._database[reference.target]


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(identifier(one.name) for one in columns)


def _joined(reference: Reference, parent: Table) -> str:
    return " AND ".join(
        f"c.{identifier(own)} = p.{identifier(other)}"
        for own, other in zip(reference.columns, parent.key, strict=True)
    )
