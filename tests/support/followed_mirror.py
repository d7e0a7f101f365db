"""Follow the log without Spark: what a mirror writes of it, batch after batch.

As a program, `mirror --config FILE`, it does so for a deployment file, up to where the log ends.
"""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.capture.envelope import ENVELOPE_SCHEMA, enveloped
from headrace.config.load import load_deployment
from headrace.config.mirror import Format, MirrorConfig, MirroredTables
from headrace.config.resolve import resolve_mirror
from headrace.mirror.mirrored_lake import MirroredLake
from headrace.mirror.run import MirrorRun
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.reporter import SilentReporter
from headrace.spark.session import LocalSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_BYTES = 1 << 20


def run(url: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with connect(url) as connection:
        for statement in statements:
            execute(connection, statement)


def run_mirror(mirrored: MirroredLake, spark: LocalSpark, *, once: bool = True, reload: bool = False) -> None:
    """Follow the log with Spark, up to its present end."""
    MirrorRun(mirrored, SilentReporter(), threading.Event()).run(spark, once=once, reload=reload)


class Told(SilentReporter):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def info(self, text: str) -> None:
        self.texts.append(text)

    def warning(self, text: str) -> None:
        self.texts.append(text)


class FollowedMirror:
    """A mirror whose slot is never confirmed, so that each `follow` begins where the first one did.

    Args:
        url: the database.
        config: `[mirror]` of a deployment file.
        wal_budget: how much log (bytes) the slot may keep for tables that wait.
        session: does the heavy work where that is `engine = "spark"`.

    Attributes:
        limits: up to where the slot could be confirmed (bytes), each time that positions were noted.
    """

    def __init__(
        self,
        url: str,
        config: MirrorConfig,
        wal_budget: int | None = None,
        session: SparkSession | None = None,
    ) -> None:
        self._url = url
        self._config = config
        self._wal_budget = wal_budget
        self._session = session
        self.limits: list[int] = []

    @classmethod
    def of(cls, url: str, folder: Path, slot: str, *parts: MirroredTables, kind: Format = "delta") -> Self:
        """The mirror of some tables in a folder, whose publication is called as its slot is."""
        return cls(
            url, MirrorConfig(location=str(folder), format=kind, slot=slot, publication=slot, tables=parts)
        )

    def prepare(self) -> tuple[MirroredLake, list[TableName], Told]:
        """A mirror that has its tables, and follows their alterations."""
        told = Told()
        mirror = MirroredLake(self._url, self._config, told, threading.Event(), self._wal_budget)
        if self._session is not None:
            mirror.use(self._session)
        mirror.notes.limit_confirmation = self.limits.append
        mirror.set_up()
        return mirror, mirror.prepare(), told

    def follow(
        self, before: Callable[[], None] = lambda: None, between: Callable[[], None] = lambda: None
    ) -> list[str]:
        """Start anew, and write what the log has behind the slot's position; return what the mirror said.

        Args:
            before: runs when the mirror has its tables, and has read nothing yet.
            between: runs when each batch is read, and not yet written.
        """
        mirror, tables, told = self.prepare()
        before()
        confirmed, end = self._positions()
        start = Offset(confirmed)
        stream = ChangeStream(
            StreamSettings(
                self._url,
                self._config.slot,
                self._config.publication,
                tables=frozenset(tables),
                idle_seconds=0.1,
            ),
            start,
        )
        stream.open()
        try:
            while start.lsn < end:
                behind = _next_offset(stream, start)
                changes = pa.Table.from_batches(stream.changes(start, behind), CHANGES_SCHEMA)
                rows = [
                    enveloped(batch, {}, "db", stream.truncated_partitions)
                    for batch in changes.combine_chunks().to_batches()
                ]
                assert stream.origin is not None
                between()
                offset = behind.to_json() | stream.origin.to_json()
                mirror.write(pa.Table.from_batches(rows, ENVELOPE_SCHEMA), offset, tables)
                start = behind
        finally:
            stream.close()
        return told.texts

    def waiting(self) -> str:
        """Why tables wait behind a start; empty: none does."""
        mirror, *_ = self.prepare()
        return str(mirror.waiting.error() or "")

    def wrong(self) -> list[str]:
        """The tables that `headrace mirror verify` finds wrong, as they are."""
        mirror = MirroredLake(self._url, self._config, SilentReporter(), threading.Event())
        return [one.table.name for one in mirror.comparer().compare() if not one.is_right]

    def _positions(self) -> tuple[int, int]:
        """Where the slot is confirmed, and where the log ends (bytes)."""
        with connect(self._url) as connection:
            [(confirmed, end)] = execute(
                connection,
                "SELECT (confirmed_flush_lsn - '0/0')::bigint, "
                "(pg_current_wal_flush_lsn() - '0/0')::bigint "
                "FROM pg_replication_slots WHERE slot_name = $1",
                (self._config.slot,),
            )
        return confirmed, end


def _next_offset(stream: ChangeStream, start: Offset) -> Offset:
    """Where the next batch ends; the stream may not be connected yet."""
    for _ in range(60):
        if (behind := stream.next_offset(start, Limit(BATCH_BYTES), 1.0)) != start:
            return behind
    raise AssertionError("nothing comes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["mirror"])
    parser.add_argument("--config", type=Path, required=True)
    url, config = resolve_mirror(load_deployment(parser.parse_args().config, os.environ))
    FollowedMirror(url.reveal(), config).follow()


if __name__ == "__main__":
    main()
