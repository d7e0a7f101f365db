"""Random workloads with DDL and kills against a mirror's tables: `make mirror-soak ARGS="--minutes 30"`.

Each round some writers work at once, tables are altered, the mirror is killed or stopped; then everything
ends, and each table of the lake is compared with `SELECT *`, versions with what was read at each commit, and
changes by replaying them.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg

from headrace.config.mirror import Format
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.mirror.iceberg.table import IcebergTable
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from support.lake import FORMATS, Mirrored, comparable, is_table, lake_at

_TYPES: dict[str, Callable[[random.Random], str]] = {
    "int": lambda draw: str(draw.randint(-50, 50)),
    "bigint": lambda draw: str(draw.choice([0, 2**62, -(2**62), 7])),
    "text": lambda draw: _literal(
        draw.choice(["", "a", "ä'\"\\", "line\nbreak", "x" * 300, "NULL", "\u2603"])
    ),
    "varchar(400)": lambda draw: _literal(draw.choice(["", "b", "c" * 200])),
    "numeric(12,3)": lambda draw: f"{draw.randint(-(10**8), 10**8)}.{draw.randint(0, 999):03}",
    "numeric(10,1)": lambda draw: f"{draw.randint(-(10**8), 10**8)}.{draw.randint(0, 9)}",
    "numeric": lambda draw: draw.choice(
        ["1.50", "0.000000000000000000001", "-7", "12345678901234567890123.5"]
    ),
    "timestamptz": lambda draw: (
        f"timestamptz '2026-01-01 00:00:00+00' + interval '{draw.randint(0, 10**6)} s'"
    ),
    "varchar(40)": lambda draw: _literal(draw.choice(["", "short", "d" * 40])),
    "char(5)": lambda draw: _literal(draw.choice(["", "e", "eeeee"])),
    "char(9)": lambda draw: _literal(draw.choice(["", "f", "fffffffff"])),
    "number": lambda draw: str(draw.randint(-50, 50)),
    "timestamptz(0)": lambda draw: (
        f"timestamptz '2026-01-01 00:00:00.6+00' + interval '{draw.randint(0, 99)} s'"
    ),
    "timestamp": lambda draw: f"timestamp '1999-12-31 23:59:59.999999' + interval '{draw.randint(0, 99)} h'",
    "date": lambda draw: f"date '2024-02-29' + {draw.randint(-9999, 9999)}",
    "boolean": lambda draw: draw.choice(["true", "false"]),
    "float8": lambda draw: draw.choice(["1.5", "'-0'", "1e300", "0.1"]),
    "int[]": lambda draw: draw.choice(["'{}'", "'{1,NULL,3}'", "NULL::int[]"]),
    "jsonb": lambda draw: draw.choice(["'{}'", """'{"a": [1, null]}'""", "'null'"]),
    "uuid": lambda draw: f"md5('{draw.randint(0, 99)}')::uuid",
    "mood": lambda draw: draw.choice(["'sad'", "'happy'", "(enum_range(NULL::mood))[3]"]),
    "large": lambda draw: f"repeat('{draw.choice('abc')}', {draw.randint(3000, 9000)})",
}
_BULKY = "bulky"
_CURRENT = ("plain", "composite", "Quo ted", "parted", _BULKY)
_VERSIONS, _CHANGES, _HEAP, _DAYS, _KEPT = "versions", "events", "heap", "days", "kept"
_BLIND = "blind"
_KEYED = (*_CURRENT, _VERSIONS, _CHANGES, _DAYS, _KEPT, _BLIND)
_ALL = (*_KEYED, _HEAP)
_PARTS = (
    'tables = ["public.versions"]\nmode = "history"\npartition_by = ["month(at)"]',
    'tables = ["public.events"]\nmode = "changes"\npartition_by = ["_change_type"]',
    'tables = ["public.blind"]\nmode = "changes"\nexclude_columns = ["id"]',
    'tables = ["public.days"]\npartition_by = ["day(at)", "zone"]',
    'tables = ["public.composite"]\non_error = "wait"',
    'tables = ["public.kept"]\nsoft_delete = true\nmasks = { email = "sha256" }',
    'tables = ["public.*"]',
)
_SALT = "pepper"
_FIXED = {
    _VERSIONS: {"at": "timestamptz"},
    _DAYS: {"at": "timestamptz", "zone": "mood"},
    _KEPT: {"email": "numeric"},
}
"""Columns that the file names, so that they are not altered."""
_COLUMNS = "a int, b text, c numeric, d large, e timestamptz, f int[], g mood, h float8"
_ROWS = 60
_STUFF = """
INSERT INTO bulky (id, stuffing) SELECT 5000 + i, repeat(md5(i::text), 40) FROM generate_series(1, 4000) AS i
ON CONFLICT (id) DO UPDATE SET stuffing = excluded.stuffing WHERE bulky.stuffing IS NULL
"""
_CONVERGED_WITHIN = 300.0
"""Seconds; a difference stays, however long one waits, and the machine may be busy."""
_STARTED_WITHIN = 3.0


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _create(name: str) -> list[str]:
    """The statements that make a table."""
    key = {
        "composite": "id int, part text, PRIMARY KEY (part, id)",
        "parted": "id int, part text, PRIMARY KEY (id, part)",
    }
    head = key.get(name, "id int" if name == _HEAP else "id int PRIMARY KEY")
    table = identifier(name)
    tail = " PARTITION BY LIST (part)" if name == "parted" else ""
    fixed = "".join(f", {column} {kind}" for column, kind in _FIXED.get(name, {}).items())
    made = [f"CREATE TABLE {table} ({head}{fixed}, {_COLUMNS}){tail}"]
    if name == _BULKY:
        made += [f"ALTER TABLE {table} ADD COLUMN stuffing text", _STUFF]
    if name == "parted":
        # its columns stand in another order
        others = (
            "g mood, a int, part text NOT NULL, id int NOT NULL, "
            "b text, c numeric, d large, e timestamptz, f int[], h float8"
        )
        made += [
            f"CREATE TABLE parted_s ({others})",
            "ALTER TABLE parted ATTACH PARTITION parted_s FOR VALUES IN ('s')",
            "CREATE TABLE parted_n PARTITION OF parted DEFAULT",
        ]
    if name == _HEAP:
        made.append(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    storage = ["parted_s", "parted_n"] if name == "parted" else [name]
    return [*made, *(f"ALTER TABLE {identifier(one)} ALTER d SET STORAGE EXTERNAL" for one in storage)]


class MirrorSoak:
    """A database, its mirror, and what is done to both.

    Args:
        url: the database.
        folder: for the lake.
        seed: of all that is drawn.
        kind: the format of the lake's tables.
    """

    def __init__(self, url: str, folder: Path, seed: int, kind: Format = "delta") -> None:
        self._url = url
        self._random = random.Random(seed)
        self._mirror = Mirrored(
            folder,
            url,
            "mirror_soak",
            parts=_PARTS,
            more=f'mask_salt = "{_SALT}"',
            file_size="1MiB",
            kind=kind,
        )
        self._rounds = 0
        self._new = 0
        self._keys: set[int] = set()
        self.statements = 0
        self.done: list[str] = []

    def set_up(self) -> None:
        """Make the tables, and start the mirror."""
        with connect(self._url) as connection:
            execute(connection, "CREATE TYPE mood AS ENUM ('sad', 'happy', 'odd')")
            execute(connection, "CREATE DOMAIN large AS text")
            execute(connection, "CREATE DOMAIN number AS int")
            for name in _ALL:
                for statement in _create(name):
                    execute(connection, statement)
        for name in _ALL:
            self._write(name, self._random, transactions=20)
        self._mirror.start()
        self._converge()

    def close(self) -> None:
        """Stop the mirror."""
        self._mirror.close()

    @property
    def resumed(self) -> int:
        """How many loads took what those before them had read."""
        return self._mirror.output.read_text().count("were read before")

    def _count_loads(self) -> int:
        return self._mirror.output.read_text().count(f"loading {_VERSIONS}\n")

    def last_output(self) -> list[str]:
        """Return what the mirror has said at last."""
        return self._mirror.output.read_text().splitlines()[-80:]

    def round(self) -> None:
        """Write, alter and kill at once; then compare everything."""
        self._rounds += 1
        draw = self._random
        alters = draw.random() < 0.6
        self.done.clear()
        loads = self._count_loads()
        seeds = [draw.randrange(2**32) for _ in range(2)]
        snapshots: list[tuple[int, list[tuple[Any, ...]]]] = []
        writers = [
            threading.Thread(target=self._write_some, args=(random.Random(seed),), daemon=True)
            for seed in seeds
        ]
        with self._disturbed(draw):
            for writer in writers:
                writer.start()
            if alters:
                self._alter(draw)
            for writer in writers:
                writer.join()
            if not alters:
                for _ in range(6):
                    self._write(_VERSIONS, draw, transactions=1)
                    snapshots.append(self._read_versions())
        self._converge()
        # Of an alteration of before; a load tells nothing of what was between.
        if self._count_loads() > loads:
            return
        for position, rows in snapshots:
            found = self._versions_at(position)
            assert found == rows, f"versions at {position}: {_difference(found, rows)}"

    @contextlib.contextmanager
    def _disturbed(self, draw: random.Random) -> Iterator[None]:
        """Kill or stop the mirror while the block runs, and start it again behind it; or leave it alone.

        Or lock a table, so that it waits while the others go on.
        """
        what = draw.choice(
            ["nothing", "nothing", "kill", "stopped", "failpoint", "load", "load", "lock", "lock"]
        )
        self._say(f"-- mirror: {what}")
        if what == "failpoint":
            self._mirror.kill()
            self._mirror.start(
                f"{draw.choice(['mirror_commit', 'mirror_committed', 'mirror_noted'])}:{draw.randint(1, 4)}"
            )
        elif what == "load":
            self._kill_loads(draw)
        elif what == "stopped":
            time.sleep(_STARTED_WITHIN)  # a signal right after the start ends it as the system does
            self._mirror.terminate()
        with self._locked(draw) if what == "lock" else contextlib.nullcontext():
            yield
        if what == "kill":
            time.sleep(draw.random() * 2)
            self._mirror.kill()
        elif what == "failpoint":
            with contextlib.suppress(AssertionError):
                self._mirror.wait_until(self._mirror.is_at_failpoint, "was not there", 20)
            self._mirror.kill()
        if what not in {"nothing", "lock"}:
            self._mirror.start()

    @contextlib.contextmanager
    def _locked(self, draw: random.Random) -> Iterator[None]:
        """Add a column to a table and hold its lock for some seconds while the block runs."""
        name, seconds = draw.choice(["composite", "composite", "plain"]), draw.uniform(2, 12)
        self._new += 1
        sql = f"ALTER TABLE {identifier(name)} ADD COLUMN n{self._new} int DEFAULT {draw.randint(1, 9)}"

        def hold() -> None:
            with contextlib.suppress(psycopg.Error), connect(self._url, autocommit=False) as connection:
                self._execute(connection, sql)
                time.sleep(seconds)

        holder = threading.Thread(target=hold, daemon=True)
        holder.start()
        yield
        holder.join()

    def _kill_loads(self, draw: random.Random) -> None:
        """Let a large table be read anew, kill the mirror some times meanwhile, and leave it stopped."""
        self._mirror.kill()
        with connect(self._url) as connection:
            self._execute(connection, _STUFF)
            self._execute(connection, "ALTER TABLE bulky DROP COLUMN IF EXISTS filler")
            self._execute(connection, "ALTER TABLE bulky ADD COLUMN filler float8 DEFAULT random()")
        for _ in range(draw.randint(1, 3)):
            self._mirror.start(f"mirror_unit:{draw.randint(1, 5)}")
            with contextlib.suppress(AssertionError):
                self._mirror.wait_until(self._mirror.is_at_failpoint, "was not there", 30)
            self._mirror.kill()
            self._write(_BULKY, draw, transactions=draw.randint(0, 5))

    def _write_some(self, draw: random.Random) -> None:
        for _ in range(draw.randint(2, 12)):
            self._write(draw.choice(_ALL), draw, transactions=1)
            time.sleep(draw.random() * 0.1)

    def _write(self, name: str, draw: random.Random, transactions: int) -> None:
        """Write to one table, and now and then to another in the same transaction."""
        for _ in range(transactions):
            with contextlib.suppress(psycopg.Error), connect(self._url, autocommit=False) as connection:
                for _ in range(draw.choice([1, 1, 2, 5])):
                    self._execute(connection, self._statement(connection, draw, name))
                    if draw.random() < 0.1:
                        execute(connection, "SAVEPOINT s")
                        self._execute(connection, self._statement(connection, draw, name))
                        execute(connection, "ROLLBACK TO s")
                        self._say("ROLLBACK TO s")
                    name = draw.choice(_ALL) if draw.random() < 0.2 else name
                if draw.random() < 0.1:
                    connection.rollback()
                    self._say("ROLLBACK")

    def _execute(self, connection: Connection, statement: str) -> None:
        self._say(statement)
        execute(connection, statement)
        self.statements += 1

    def _say(self, text: str) -> None:
        self.done.append(text[:300])

    def _statement(self, connection: Connection, draw: random.Random, name: str) -> str:
        columns = _FIXED.get(name, {}) | _columns(connection, name)
        table = identifier(name)
        values = {
            column: "NULL" if draw.random() < 0.15 else _TYPES[kind](draw) for column, kind in columns.items()
        }
        number = draw.randint(1, _ROWS)
        kind = draw.choices(["insert", "update", "delete", "move", "truncate", "many"], [6, 6, 2, 1, 0.2, 1])[
            0
        ]
        if kind == "insert" or (not columns and kind in {"update", "many"}):
            key = {"id": str(number)} | (
                {"part": draw.choice(["'n'", "'s'"])} if name in {"composite", "parted"} else {}
            )
            names = ", ".join(map(identifier, [*key, *values]))
            ending = "" if name == _HEAP else " ON CONFLICT DO NOTHING"
            row = ", ".join([*key.values(), *values.values()])
            return f"INSERT INTO {table} ({names}) VALUES ({row}){ending}"
        if kind == "delete":
            return f"DELETE FROM {table} WHERE id BETWEEN {number} AND {number + draw.randint(0, 3)}"
        if kind == "move" and name != _HEAP:
            step = draw.choice([1000, -1000])
            return f"UPDATE {table} SET id = id + {step} WHERE id IN ({number}, {number + 1000})"
        if kind == "truncate":
            parts = ["parted_s", "parted_n", "parted"]
            emptied = draw.sample(parts, draw.randint(1, 2)) if name == "parted" else [table]
            return f"DO $$ BEGIN {' '.join(f'TRUNCATE {one};' for one in emptied)} END $$"
        chosen = draw.sample(sorted(values), draw.randint(1, min(3, len(values)))) if values else []
        if not chosen:
            return f"DELETE FROM {table} WHERE id = {number}"
        setting = ", ".join(f"{identifier(column)} = {values[column]}" for column in chosen)
        where = f"id % 7 = {draw.randint(0, 6)}" if kind == "many" else f"id = {number}"
        return f"UPDATE {table} SET {setting} WHERE {where}"

    def _alter(self, draw: random.Random) -> None:
        """Alter tables, alone or together with changes of the same transaction."""
        for _ in range(draw.randint(1, 4)):
            name = draw.choice(_ALL)
            with contextlib.suppress(psycopg.Error), connect(self._url, autocommit=False) as connection:
                execute(connection, "SET lock_timeout = '3s'")
                if draw.random() < 0.5:
                    self._execute(connection, self._statement(connection, draw, name))
                is_apart = draw.random() < 0.5
                for statement in self._alteration(connection, draw, name):
                    self._execute(connection, statement)
                    if is_apart:
                        connection.commit()
                if draw.random() < 0.5:
                    self._execute(connection, self._statement(connection, draw, name))
            if draw.random() < 0.25:
                with contextlib.suppress(psycopg.Error), connect(self._url) as connection:
                    execute(connection, "SET lock_timeout = '3s'")
                    cluster = f"CLUSTER {identifier(name)} USING {identifier(f'{name}_pkey')}"
                    self._execute(connection, draw.choice([f"VACUUM FULL {identifier(name)}", cluster]))
            time.sleep(draw.choice([0, 0, 0.3, 2]))

    def _alteration(self, connection: Connection, draw: random.Random, name: str) -> list[str]:
        columns = _columns(connection, name)
        table = f"ALTER TABLE {identifier(name)}"
        self._new += 1
        new = draw.choice([f"n{self._new}", "again", "a", "b"])
        kind = draw.choice(sorted(_TYPES))
        default = f" DEFAULT {_TYPES[kind](draw)}" if draw.random() < 0.6 and name != _CHANGES else ""
        choices: list[Callable[[], list[str]]] = [
            lambda: [f"{table} ADD COLUMN {identifier(new)} {kind}{default}"],
            lambda: [f"{table} ADD COLUMN {identifier(new)} {kind}{default}"],
            lambda: (
                [f"{table} REPLICA IDENTITY {draw.choice(['FULL', 'DEFAULT'])}"]
                if name not in {_HEAP, "parted"}
                else []
            ),
        ]
        if name != _CHANGES:
            choices.append(lambda: [f"{table} ADD COLUMN {identifier(new)} float8 DEFAULT random()"])
        if len(columns) > 2:
            one, other = draw.sample(sorted(columns), 2)
            retyped = {
                "int": draw.choice(["bigint", f"number USING {identifier(one)} * 2"]),
                "number": f"int USING {identifier(one)} + 1",
                "varchar(400)": draw.choice(["text", f"varchar(40) USING left({identifier(one)}, 40)"]),
                "varchar(40)": draw.choice(["text", "varchar(400)"]),
                "char(5)": "char(9)",
                "timestamptz": "timestamptz(0)",
                "timestamptz(0)": "timestamptz",
                "numeric(12,3)": draw.choice(["numeric", "numeric(10,1)"]),
                "numeric(10,1)": "numeric(12,3)",
                "text": "varchar(400)",
                "bigint": "text USING 'n' || " + identifier(one),
                "timestamp": "timestamptz",
            }
            choices += [
                lambda: [f"{table} DROP COLUMN {identifier(one)}"],
                lambda: [f"{table} RENAME COLUMN {identifier(one)} TO {identifier(new)}"],
                lambda: [
                    f"{table} RENAME COLUMN {identifier(one)} TO tmp",
                    f"{table} RENAME COLUMN {identifier(other)} TO {identifier(one)}",
                    f"{table} RENAME COLUMN tmp TO {identifier(other)}",
                ],
                lambda: [
                    f"{table} DROP COLUMN {identifier(one)}",
                    f"{table} ADD COLUMN {identifier(one)} {kind}{default}",
                ],
            ]
            if columns[one] in retyped:
                choices.append(
                    lambda: [f"{table} ALTER COLUMN {identifier(one)} TYPE {retyped[columns[one]]}"]
                )
                choices.append(choices[-1])
            choices += [lambda: self._use_names_twice(draw, name, columns)] * 3
            choices.append(
                lambda: [
                    f"{table} ALTER {identifier(one)} TYPE {columns[one]} USING {_TYPES[columns[one]](draw)}"
                ]
            )
        if draw.random() < 0.15:
            [(label,)] = execute(connection, "SELECT (enum_range(NULL::mood))[3]::text")
            choices = [lambda: [f"ALTER TYPE mood RENAME VALUE '{label}' TO 'odd{self._new}'"]]
        elif name == "parted":
            choices += [lambda: self._move_partition(connection, draw)] * 4
        if draw.random() < 0.08:
            # Without a limit: a table that nobody could rename back would be gone.
            away = ["SET lock_timeout = 0", f"{table} RENAME TO away", "DELETE FROM away WHERE id % 9 = 0"]
            choices = [
                lambda: [f"DROP TABLE {identifier(name)}", *_create(name)],
                lambda: [*away, f"ALTER TABLE away RENAME TO {identifier(name)}"],
            ]
        return draw.choice(choices)()

    def _use_names_twice(self, draw: random.Random, name: str, columns: dict[str, str]) -> list[str]:
        """Give a name to two columns in turn, with rows in between."""
        table = f"ALTER TABLE {identifier(name)}"
        one, other = (identifier(f"{letter}{self._new}") for letter in "xy")
        kind, later = (draw.choice(sorted(_TYPES)) for _ in range(2))
        later = draw.choice([kind, later])
        default = "" if name == _CHANGES or draw.random() < 0.3 else f" DEFAULT {_TYPES[later](draw)}"

        def written(*names: str) -> list[str]:
            settings = ", ".join(f"{column} = {_TYPES[kind](draw)}" for column in names)
            values = [str(draw.randint(1, _ROWS)), *(_TYPES[kind](draw) for _ in names)]
            heads = ["id", *names]
            if name in {"composite", "parted"}:
                heads.append("part")
                values.append("'n'")
            ending = "" if name == _HEAP else " ON CONFLICT DO NOTHING"
            rows = f"({', '.join(heads)}) VALUES ({', '.join(values)}){ending}"
            update = f"UPDATE {identifier(name)} SET {settings} WHERE id % 7 = {draw.randint(0, 6)}"
            return [draw.choice([f"INSERT INTO {identifier(name)} {rows}", update]) for _ in range(2)]

        def swapped(first: str, second: str) -> list[str]:
            pairs = ((first, "tmp"), (second, first), ("tmp", second))
            return [f"{table} RENAME COLUMN {old} TO {new}" for old, new in pairs]

        added = f"{table} ADD COLUMN {one} {kind}"
        again = f"{table} ADD COLUMN {one} {later}{default}"
        choices = [
            [added, *written(one), f"{table} DROP COLUMN {one}", again],
            [added, *written(one), f"{table} RENAME COLUMN {one} TO {other}", again],
            [added, *written(one), f"{table} RENAME COLUMN {one} TO {other}"],
            [f"{added}, ADD COLUMN {other} {kind}", *written(one, other), *swapped(one, other)],
            [f"{added}, ADD COLUMN {other} {kind}{default if later == kind else ''}", *written(one)],
        ]
        # a large value that an update leaves out hides which of two columns had its name
        alike = [column for column in sorted(columns) if columns[column] in {"int", "number", "bigint"}]
        if len(alike) > 1 and name != "parted":
            first, second = draw.sample(alike, 2)
            swap = swapped(identifier(first), identifier(second))
            settings = f"{identifier(first)} = 3, {identifier(second)} = 4"
            row = f"UPDATE {identifier(name)} SET {settings} WHERE id % 5 = 1"
            choices.append([*swap, row, *swap])
        return draw.choice(choices)

    def _move_partition(self, connection: Connection, draw: random.Random) -> list[str]:
        attach = "ALTER TABLE parted ATTACH PARTITION parted_s FOR VALUES IN ('s')"
        detach = "ALTER TABLE parted DETACH PARTITION parted_s"
        write = "DELETE FROM parted_s WHERE id % 3 = 0"
        [(oid, is_attached)] = execute(
            connection,
            "SELECT to_regclass('parted_s')::oid::bigint, EXISTS "
            "(SELECT FROM pg_inherits WHERE inhrelid = to_regclass('parted_s'))",
        )
        if is_attached:
            return draw.choice([[detach], [detach, write], [detach, write, attach], ["DROP TABLE parted_s"]])
        room = "DELETE FROM parted_n WHERE part = 's'"
        if oid:
            return draw.choice([[room, attach], [write, room, attach]])
        return [room, "CREATE TABLE parted_s PARTITION OF parted FOR VALUES IN ('s')"]

    def _read_versions(self) -> tuple[int, list[tuple[Any, ...]]]:
        _, rows = self._mirror.expected(TableName("public", _VERSIONS))
        with connect(self._url) as connection:
            [(position,)] = execute(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        return position, comparable([tuple(row) for row in rows])

    def _versions_at(self, position: int) -> list[tuple[Any, ...]]:
        names, _ = self._mirror.expected(TableName("public", _VERSIONS))
        frame = self._mirror.frame(TableName("public", _VERSIONS))
        kept = frame.filter(
            (pl.col("_from_lsn") < position) & (pl.col("_to_lsn").is_null() | (pl.col("_to_lsn") >= position))
        )
        return comparable(kept.select(names).iter_rows())

    def _converge(self) -> None:
        """Wait until every table of the lake is as the database's.

        Raises:
            AssertionError: one is not, in good time.
        """
        self._mirror.converges(*_CURRENT, _HEAP, seconds=_CONVERGED_WITHIN)
        for name, read in (
            (_VERSIONS, self._current_versions),
            (_CHANGES, self._replayed),
            (_BLIND, lambda _: [()] * self._count_replayed()),
            (_DAYS, lambda names: self._rows(_DAYS, names)),
            (_KEPT, lambda names: self._rows(_KEPT, names, ~pl.col("_is_deleted"))),
        ):
            self._await(name, read)
        self._check_kept()
        self._check_days()

    def _check_kept(self) -> None:
        """Make sure that no row was lost, and that each is there once."""
        frame = self._mirror.frame(TableName("public", _KEPT))
        assert frame["id"].is_unique().all(), "kept: a row is there twice"
        assert (frame["_is_deleted"] == frame["_deleted_at"].is_not_null()).all(), (
            "kept: deleted, but not when"
        )
        assert self._keys <= set(frame["id"]), f"kept: lost {self._keys - set(frame['id'])}"
        self._keys = set(frame["id"])

    def _check_days(self) -> None:
        """Make sure that each row is in the partition of its values."""
        if self._mirror.kind == "delta":
            frame = self._mirror.frame(TableName("public", _DAYS))
            wrong = frame.filter(pl.col("at").dt.date().ne_missing(pl.col("_at_day")))
            assert not len(wrong), f"days: {wrong}"
            return
        table = lake_at(self._mirror.lake, "iceberg").open(TableName("public", _DAYS))
        assert isinstance(table, IcebergTable)
        for task in table.table.scan().plan_files():
            day, zone = task.file.partition[0], task.file.partition[1]
            rows = pl.read_parquet(task.file.file_path, columns=["at", "zone"])
            is_right = rows["at"].dt.date().cast(pl.Int32).eq_missing(day) & rows["zone"].eq_missing(zone)
            assert is_right.all(), f"days: {task.file.file_path} of {day}, {zone}"

    def _rows(self, name: str, names: list[str], chosen: pl.Expr | None = None) -> list[tuple[Any, ...]]:
        table = TableName("public", name)
        if not is_table(self._mirror.path(table), self._mirror.kind):
            return []
        frame = self._mirror.frame(table)
        if not set(names) <= set(frame.columns):
            return []
        return comparable((frame if chosen is None else frame.filter(chosen)).select(names).iter_rows())

    def _await(self, name: str, read: Callable[[list[str]], list[tuple[Any, ...]]]) -> None:
        names, rows = self._mirror.expected(TableName("public", name))
        if name == _BLIND:
            rows = [()] * len(rows)
        elif name == _KEPT:
            rows = _masked(rows, names.index("email"))
        self._mirror.waits_until(
            lambda: read(names) == rows,
            lambda: f"{name}: {_difference(read(names), rows)}",
            _CONVERGED_WITHIN,
        )

    def _current_versions(self, names: list[str]) -> list[tuple[Any, ...]]:
        return self._rows(_VERSIONS, names, pl.col("_is_current"))

    def _count_replayed(self) -> int:
        """How many rows the changes of the table leave whose key the lake does not have."""
        table = TableName("public", _BLIND)
        if not is_table(self._mirror.path(table), self._mirror.kind):
            return 0
        frame = self._mirror.frame(table).sort("_commit_lsn", "_commit_seq", maintain_order=True)
        found = 0
        for kind in frame["_change_type"]:
            found = 0 if kind == "truncate" else found + {"insert": 1, "delete": -1}.get(kind, 0)
        return found

    def _replayed(self, names: list[str]) -> list[tuple[Any, ...]]:
        table = TableName("public", _CHANGES)
        if not is_table(self._mirror.path(table), self._mirror.kind):
            return []
        frame = self._mirror.frame(table).sort("_commit_lsn", "_commit_seq", maintain_order=True)
        if not set(names) <= set(frame.columns):
            return []
        rows: dict[Any, dict[str, Any]] = {}
        moved: dict[str, Any] = {}
        for row in frame.iter_rows(named=True):
            match row["_change_type"]:
                case "truncate":
                    rows.clear()
                case "delete":
                    moved = rows.pop(row["id"], {})
                case kind:
                    before = rows.get(row["id"], moved if kind == "insert" else {})
                    unchanged = {name: before.get(name) for name in row["_unchanged"] or ()}
                    rows[row["id"]] = row | {name: value for name, value in unchanged.items() if name in row}
        return comparable(tuple(row[name] for name in names) for row in rows.values())


def _columns(connection: Connection, name: str) -> dict[str, str]:
    """The columns of a table besides its key, and their types."""
    rows = execute(
        connection,
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped "
        "AND attname NOT IN ('id', 'part', 'stuffing', 'at', 'zone', 'email')",
        (quoted(TableName("public", name)),),
    )
    known = {
        "integer": "int",
        "double precision": "float8",
        "character varying(400)": "varchar(400)",
        "timestamp with time zone": "timestamptz",
        "timestamp without time zone": "timestamp",
        "timestamp(0) with time zone": "timestamptz(0)",
        "character varying(40)": "varchar(40)",
        "character(5)": "char(5)",
        "character(9)": "char(9)",
        "integer[]": "int[]",
    }
    return {column: known.get(kind, kind) for column, kind in rows}


def _masked(rows: list[tuple[Any, ...]], at: int) -> list[tuple[Any, ...]]:
    """Rows with the salted hash of a text in its place."""
    return comparable(
        (*row[:at], row[at] and hashlib.sha256((_SALT + row[at]).encode()).hexdigest(), *row[at + 1 :])
        for row in rows
    )


def _difference(found: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> str:
    more = [row for row in found if row not in rows][:3]
    less = [row for row in rows if row not in found][:3]
    return f"{len(found)} rows, {len(rows)} expected; should not be {more}; lack {less}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="for so long (5)")
    parser.add_argument("--seed", type=int, default=None, help="of the first case (of the clock)")
    parser.add_argument("--format", choices=FORMATS, default="delta", help="of the lake's tables (delta)")
    given = parser.parse_args()
    seed = int(time.time()) if given.seed is None else given.seed
    end = time.monotonic() + given.minutes * 60
    with (
        EmbeddedPostgres(settings={"wal_level": "logical"}) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        soak = MirrorSoak(server.create_database("soak"), Path(folder), seed, given.format)
        print(f"seed {seed}", flush=True)
        rounds = 0
        try:
            soak.set_up()
            while time.monotonic() < end:
                soak.round()
                rounds += 1
                told = f"{soak.statements:,} statements, {soak.resumed} loads taken up, no difference"
                print(f"round {rounds}: {told}", flush=True)
        except AssertionError as error:
            print("\n".join([*soak.done, "-- its output ends:", *soak.last_output()]), file=sys.stderr)
            sys.exit(f"seed {seed}, round {rounds + 1}: {error}")
        finally:
            soak.close()


if __name__ == "__main__":
    main()
