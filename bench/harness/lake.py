"""A database with one large table, and the mirror that writes it to a lake."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from pyspark.sql import SparkSession

from headrace.capture import Offset
from headrace.config.mirror import Format, MirrorConfig, MirroredTables
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.mirror.delta import DeltaLake
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.lake import Lake
from headrace.mirror.load_units import load_in_threads
from headrace.mirror.loading import LakeLoader
from headrace.mirror.selection import Selection
from headrace.mirror.waiting import WaitingTables
from headrace.mirror.writing import LakeWriter
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.provision import prepare_slot
from headrace.reporter import SilentReporter
from support.driven_run import DrivenRun
from support.lake import lake_at

SLOT, ORDERS = "bench_mirror", TableName("public", "orders")
_CREATE = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, amount numeric(12,2), status text,
                     email varchar(80), created timestamptz, active bool, score float8)
"""
_FILL = """
INSERT INTO orders
SELECT i, i % 1000, (i % 100000) / 100.0, 'status ' || i % 7, 'user' || i || '@example.com',
       timestamptz '2024-01-01' + i * interval '1 s', i % 2 = 0, i / 7.0
FROM generate_series(1, $1::int) i
"""
_SETTINGS = {"max_wal_size": "8GB", "shared_buffers": "512MB", "checkpoint_timeout": "1h"}


class MirrorRun(DrivenRun):
    """`headrace mirror` as its own process, with Spark's defaults.

    Args:
        url: the database; all its tables are mirrored.
        folder: for its files; the lake is in `lake`.
        interval: how often it writes.
    """

    def __init__(self, url: str, folder: Path, interval: str) -> None:
        self.lake = DeltaLake(str(folder / "lake"))
        config = folder / "mirror.toml"
        config.write_text(
            f'[source]\ntype = "postgres"\nconnection_url = "{url}"\n\n[mirror]\nlocation = "lake"\n'
            f'interval = "{interval}"\nslot = "{SLOT}"\npublication = "{SLOT}"\n\n'
            '[[mirror.tables]]\ntables = ["*.*"]\n'
        )
        super().__init__(config, SLOT, folder)

    def _words(self) -> Sequence[str]:
        return ("mirror", "--config", str(self._config))

    def count(self, table: TableName) -> int:
        """How many rows the lake's table has; 0 where there is none."""
        found = self.lake.open(table)
        return 0 if found is None else int(found.delta.to_pyarrow_dataset().count_rows())


class MirroredOrders:
    """A table of eight columns, its slot, and a folder for the lake."""

    def __init__(self, server: EmbeddedPostgres, rows: int, folder: Path) -> None:
        self.url = server.create_database("bench_mirror")
        self.rows = rows
        self.folder = folder
        self.run(_CREATE)
        with connect(self.url) as connection:
            execute(connection, _FILL, (rows,))
        self.run("VACUUM (FREEZE, ANALYZE) orders", "CHECKPOINT")
        prepare_slot(self.url, slot=SLOT, publication=SLOT, tables=(ORDERS,), create=True)

    @classmethod
    @contextmanager
    def serve(cls, rows: int) -> Iterator[Self]:
        """Run a server of our own with such a table of `rows`."""
        with (
            tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
            EmbeddedPostgres(durable=False, settings=_SETTINGS) as server,
        ):
            yield cls(server, rows, Path(folder))

    def run(self, *statements: str) -> None:
        """Run statements, each as its own transaction."""
        with connect(self.url) as connection:
            for statement in statements:
                execute(connection, statement)

    def blocks(self) -> int:
        """The number of blocks of the table's file."""
        with connect(self.url) as connection:
            sql = "SELECT pg_relation_size('orders') / current_setting('block_size')::int"
            [(blocks,)] = execute(connection, sql)
        return int(blocks)

    def confirmed(self) -> Offset:
        """Where the slot stands."""
        sql = "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = $1"
        with connect(self.url) as connection:
            [(lsn,)] = execute(connection, sql, (SLOT,))
        return Offset(int(lsn))

    def writer(self, folder: str, kind: Format = "delta", session: SparkSession | None = None) -> LakeWriter:
        """The mirror's writer of a lake of its own."""
        parts = (MirroredTables(tables=("public.orders",)),)
        selection = Selection(MirrorConfig(location=folder, slot=SLOT, publication=SLOT, tables=parts))
        ends = MirrorEndpoints(self.url, SLOT, SLOT, selection, self.lake(folder, kind, session))
        report = SilentReporter()
        waiting = WaitingTables(report)
        loader = LakeLoader(ends, report, waiting, threading.Event(), load_in_threads)
        return LakeWriter(ends, report, waiting, loader)

    def lake(self, folder: str, kind: Format = "delta", session: SparkSession | None = None) -> Lake:
        """The lake in a folder, which the session writes; None: this process."""
        return lake_at(self.folder / folder, kind, session)
