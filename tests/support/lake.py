"""A mirror as its own process, and the oracle for its tables: SELECT against another engine's reader."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyspark
import pytest
from pyspark.sql import SparkSession

from headrace.config.load import load_deployment
from headrace.config.mirror import Format, MirrorConfig, MirroredTables
from headrace.config.resolve import resolve_mirror
from headrace.mirror.formats import open_lake
from headrace.mirror.lake import Lake, folder_name
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from support import followed_mirror
from support.driven_run import DrivenRun

_SESSIONS: dict[str, Format] = {"4.2": "delta", "4.1": "iceberg"}
"""By PySpark, the format whose changes a session brings into the tables, not the mirror's process."""
CONVERGED_WITHIN = 200.0 if pyspark.__version__[:3] in _SESSIONS else 90.0

# What no lake has a type for, or keeps every digit of, stands there as PostgreSQL's text.
_COLUMNS = """
SELECT a.attname::text, t.typname IN ('time', 'timetz', 'interval', 'json', 'jsonb', 'uuid')
       OR t.typtype = 'e' OR (t.typname = 'numeric' AND a.atttypmod < 0)
       OR ((t.typtype = 'r' OR t.typcategory = 'A') AND EXISTS (
           SELECT FROM pg_index i
           WHERE i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey)))
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""
_SETTINGS = "SET TimeZone = 'UTC'; SET IntervalStyle = 'iso_8601'; SET extra_float_digits = 1"

Rows = tuple[list[str], list[tuple[Any, ...]]]
FORMATS: tuple[Format, ...] = ("delta", "iceberg")
MAIN_FORMAT = ("delta", pytest.param("iceberg", marks=pytest.mark.long))
"""For tests that take long: `make test` runs one format, `make test-all` both."""


def lake_at(location: object, kind: Format, session: SparkSession | None = None) -> Lake:
    """A lake of some format, which the session writes; None: this process."""
    tables = (MirroredTables(tables=("*.*",)),)
    config = MirrorConfig(location=str(location), format=kind, engine="spark", tables=tables)
    return open_lake(config, session)


def is_table(path: Path, kind: Format) -> bool:
    """Whether readers find a table in a folder."""
    return (path / {"delta": "_delta_log", "iceberg": "metadata/version-hint.text"}[kind]).exists()


def read_table(path: object, kind: Format, version: int | None = None) -> pl.DataFrame:
    """A table as polars reads it, now or in a version."""
    if kind == "delta":
        return pl.read_delta(str(path), version=version)
    return pl.scan_iceberg(str(path), snapshot_id=version).collect()


def count_merges(path: Path, kind: Format) -> int:
    """How often changes were committed to a table, and for Iceberg anything; no commit is forgotten yet."""
    if kind == "delta":
        return sum('"operation":"MERGE"' in log.read_text() for log in (path / "_delta_log").glob("*.json"))
    latest = (path / "metadata/version-hint.text").read_text()
    return len(json.loads((path / f"metadata/{latest}.metadata.json").read_text())["snapshots"])


class Mirrored(DrivenRun):
    """A database's mirror: a folder, and the process that writes it while it runs."""

    def __init__(
        self,
        folder: Path,
        url: str,
        name: str,
        *,
        parts: Sequence[str] = ('tables = ["*.*"]',),
        more: str = "",
        file_size: str = "128MiB",
        kind: Format = "delta",
    ) -> None:
        self.url = url
        self.kind: Format = kind
        self.lake = folder / "lake"
        config = folder / f"{name}.toml"
        self._file_size = file_size
        super().__init__(config, name, folder)
        self.configure(parts, more)

    @property
    def _has_session(self) -> bool:
        return _SESSIONS.get(pyspark.__version__[:3]) == self.kind

    @property
    def config(self) -> Path:
        """The deployment file."""
        return self._config

    def configure(self, parts: Sequence[str], more: str = "") -> None:
        """Write the deployment file: the parts of tables, and more keys of `[mirror]`."""
        engine = "spark" if self._has_session else "local"
        self._config.write_text(
            f'[source]\ntype = "postgres"\nconnection_url = "{self.url}"\n\n'
            f'[mirror]\nlocation = "{self.lake}"\nformat = "{self.kind}"\nengine = "{engine}"\n'
            f'interval = "200ms"\nfile_size = "{self._file_size}"\n'
            f'slot = "{self._name}"\npublication = "{self._name}"\n{more}\n\n'
            + "\n".join(f"[[mirror.tables]]\n{part}\n" for part in parts)
        )

    def _words(self) -> Sequence[str]:
        return ("mirror", "--config", str(self._config))

    def follow(self) -> None:
        """Load what is not loaded, and write what the log has, in this process and without Spark."""
        url, config = resolve_mirror(load_deployment(self.config, os.environ))
        without_spark = config.model_copy(update={"engine": "local"})
        followed_mirror.FollowedMirror(url.reveal(), without_spark).follow()

    def kill_at(self, *failpoints: str) -> None:
        """Let a process write what the log has until it stands still at a commit point, and kill it; in turn.

        Where Spark does not write, it is left out: most of a start is Spark's.
        """
        program = ("-m", "headrace") if self._has_session else (followed_mirror.__file__,)
        for failpoint in failpoints:
            self._start(program, failpoint)
            self.wait_failpoint()
            self.kill()

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with connect(self.url, autocommit=False) as connection:
            for statement in statements:
                execute(connection, statement)

    def path(self, table: TableName) -> Path:
        """The folder of a table."""
        return self.lake / folder_name(table.schema) / folder_name(table.name)

    def expected(self, table: TableName) -> Rows:
        """The rows of a table, as the database has them."""
        with connect(self.url) as connection:
            for setting in _SETTINGS.split("; "):
                execute(connection, setting)
            columns = execute(connection, _COLUMNS, (quoted(table),))
            wanted = [
                f"{identifier(name)}::text" if is_text else identifier(name) for name, is_text in columns
            ]
            rows = execute(connection, f"SELECT {', '.join(wanted)} FROM {quoted(table)}")
        return [name for name, _ in columns], comparable(rows)

    def frame(self, table: TableName, version: int | None = None) -> pl.DataFrame:
        """A table of the lake, now or in a version."""
        return read_table(self.path(table), self.kind, version)

    def actual(self, table: TableName, version: int | None = None) -> Rows:
        """The rows of a table, now or in a version, as polars reads them from the lake."""
        frame = self.frame(table, version)
        return frame.columns, comparable(frame.iter_rows())

    def waits_until(
        self, holds: Callable[[], bool], tell: Callable[[], str], seconds: float = CONVERGED_WITHIN
    ) -> None:
        """Return once `holds` does.

        Raises:
            AssertionError: with what `tell` says: it does not within `seconds`, or the process ended.
        """
        end = time.monotonic() + seconds
        while not holds():
            self.assert_running()
            assert time.monotonic() < end, f"after {seconds:.0f} s: {tell()}\n{self.last_output()}"
            time.sleep(0.1)

    def converges(self, *tables: str, seconds: float = CONVERGED_WITHIN) -> None:
        """Return once the lake's tables are the database's; no one may write meanwhile.

        Raises:
            AssertionError: they are not within `seconds`, or the process ended.
        """
        for name in tables:
            table = TableName("public", name)
            expected = self.expected(table)
            end = time.monotonic() + seconds
            while not is_table(self.path(table), self.kind) or self.actual(table) != expected:
                self.assert_running()
                if time.monotonic() > end:
                    found = self.actual(table)
                    only = [row for row in found[1] if row not in expected[1]][:3]
                    lacks = [row for row in expected[1] if row not in found[1]][:3]
                    raise AssertionError(
                        f"{table} after {seconds:.0f} s: columns {found[0]}, {expected[0]} expected; "
                        f"rows that should not be {only}, rows that lack {lacks}\n{self.last_output()}"
                    )
                time.sleep(0.1)


def comparable(rows: Iterable[Iterable[Any]]) -> list[tuple[Any, ...]]:
    """Return rows in one order, moments in UTC."""
    return sorted((tuple(map(_in_utc, row)) for row in rows), key=repr)


def _in_utc(value: Any) -> Any:
    is_moment = isinstance(value, dt.datetime) and value.tzinfo is not None
    return value.astimezone(dt.UTC) if is_moment else value
