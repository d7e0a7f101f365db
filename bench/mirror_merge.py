"""How fast do changes come into a large table? `python bench/mirror_merge.py [--rows N] [--quick]`.

100,000 changes of rows everywhere in a table of eight columns (updates, deletes and inserts, as the log has
them) are written to a Delta table by a mirror; and what they leave, ready-made, by a bare merge of the
`deltalake` library into a copy of that table. Beside both, an Iceberg table gets the same changes.

With PySpark 4.0 to 4.2, `engine = "spark"` is measured too, beside a bare MERGE of the session's Delta;
up to 4.1 with Iceberg, too: `make compat-4.1 ARGS=--collect-only` makes the environment `.venv-compat-4.1`.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from harness import report
from harness.lake import ORDERS, SLOT, MirroredOrders
from headrace.capture import ChangeStream, StreamSettings
from headrace.capture.buffer import Limit
from headrace.capture.envelope import enveloped
from headrace.mirror.delta import DeltaLakeTable
from headrace.mirror.net_changes import DELETED, in_order, net_changes
from headrace.mirror.positions import TablePosition
from headrace.model.names import TableName
from headrace.spark.lake_runtimes import DELTA, ICEBERG
from headrace.spark.session import local_spark

ROWS, QUICK, CHANGES, ROUNDS = 5_000_000, 500_000, 100_000, 3
BAR_SECONDS = 10.0
UPDATE = "UPDATE orders SET status = 'changed', score = score + 1 WHERE id % {0} = 1"
DELETE = "DELETE FROM orders WHERE id % {0} = 2"
INSERT = """
INSERT INTO orders
SELECT {0} + i, i, i, 'new', 'user@example.com', now(), true, i FROM generate_series(1, {1}) i
"""


def change(orders: MirroredOrders) -> Iterator[pa.RecordBatch]:
    """Change the table: 8 in 10 changes are updates; yield what the log has of it."""
    start = orders.confirmed()
    orders.run(
        UPDATE.format(orders.rows * 10 // (CHANGES * 8)),
        DELETE.format(orders.rows * 10 // CHANGES),
        INSERT.format(orders.rows, CHANGES // 10),
    )
    stream = ChangeStream(StreamSettings(orders.url, SLOT, SLOT), start)
    stream.open()
    rows, position = 0, start
    try:
        while rows < CHANGES:
            behind = stream.next_offset(position, Limit(16 << 20), 1.0)
            for batch in stream.changes(position, behind):
                rows += len(batch)
                yield batch
            position = behind
    finally:
        stream.close()


@dataclass(frozen=True, slots=True)
class Work:
    """Changes, and what they leave.

    Attributes:
        orders: the table.
        batch: the changes, as the stream has them.
        known: up to where the lake has the table.
        ready: what they leave of each row.
    """

    orders: MirroredOrders
    batch: pa.Table
    known: Mapping[TableName, TablePosition]
    ready: pa.Table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows of the table ({ROWS:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} rows")
    given = parser.parse_args()
    rows = QUICK if given.quick else given.rows
    with MirroredOrders.serve(rows) as orders:
        writer = orders.writer("base")
        table, loaded = dict(writer.loader.load([ORDERS], {}))[ORDERS]
        known = {ORDERS: TablePosition(0, loaded.complete, table.relation)}
        dict(orders.writer("iceberg", "iceberg").loader.load([ORDERS], {}))
        changes = pa.Table.from_batches(list(change(orders))).combine_chunks().to_batches()[0]
        batch = pa.Table.from_batches([enveloped(changes, {ORDERS: ("id",)}, "bench", {})])
        typed = pa.Table.from_batches([table.shape.rows(changes)])
        ready = net_changes(in_order(typed), table.key).rows
        work = Work(orders, batch, known, ready)
        held = compare(work, "mirror_merge", None, merged)
        held &= measure_iceberg(work, "mirror_merge.iceberg", None)
        for runtime in (DELTA, ICEBERG):
            if not runtime.packages(pyspark.__version__):
                continue
            with local_spark(given=runtime.with_settings({}, os.environ)) as spark:
                if runtime is ICEBERG:
                    held &= measure_iceberg(work, "mirror_merge.iceberg_spark", spark.session)
                else:
                    bare = functools.partial(merged_by_session, spark.session)
                    held &= compare(work, "mirror_merge.spark", spark.session, bare)
    sys.exit(not held)


Merged = Callable[[MirroredOrders, str, pa.Table], float]
"""Merges rows, and returns how many seconds it took."""


def compare(work: Work, name: str, session: SparkSession | None, bare: Merged) -> bool:
    """Measure a mirror beside a bare merge, both by a session or none; return whether the bars hold."""
    took: dict[str, list[float]] = {"headrace mirror": [], "a bare merge": []}
    for number in range(ROUNDS):
        report.machine()
        took["headrace mirror"].append(mirrored(work, f"mirror-{number}", session))
        took["a bare merge"].append(bare(work.orders, f"bare-{number}", work.ready))
    middle = {what: statistics.median(seconds) for what, seconds in took.items()}
    shown = [(what, f"{seconds:.2f}", f"{CHANGES / seconds:,.0f}") for what, seconds in middle.items()]
    title = f"{name}: {len(work.batch):,} changes into {work.orders.rows:,} rows"
    report.table((title, "seconds", "changes/s"), shown)
    ours, theirs = middle.values()
    held = report.result(f"{name}.seconds", BAR_SECONDS / ours, 1.0)
    return report.result(f"{name}.bare", theirs / ours, 0.8) and held


def measure_iceberg(work: Work, name: str, session: SparkSession | None) -> bool:
    """Measure a mirror of Iceberg tables, by a session or none; return whether the bar holds.

    An Iceberg table stays in its folder, so that a round begins by putting it back there.
    """
    orders, folder = work.orders, work.orders.folder / "iceberg"
    loaded = orders.folder / "iceberg-loaded"
    if not loaded.exists():
        shutil.copytree(folder, loaded)
    took = []
    for _ in range(ROUNDS):
        shutil.rmtree(folder)
        shutil.copytree(loaded, folder)
        table = orders.lake("iceberg", "iceberg").open(ORDERS)
        assert table is not None
        known = {ORDERS: replace(work.known[ORDERS], version=table.version)}
        begin = perf_counter()
        orders.writer("iceberg", "iceberg", session).apply(work.batch, [ORDERS], known)
        took.append(perf_counter() - begin)
        after = orders.lake("iceberg", "iceberg").open(ORDERS)
        assert after is not None
        assert after.version != table.version, "the changes were not applied"
    seconds = statistics.median(took)
    shown = [(name, f"{seconds:.2f}", f"{CHANGES / seconds:,.0f}")]
    report.table((f"{len(work.batch):,} changes into {orders.rows:,} rows", "seconds", "changes/s"), shown)
    return report.result(name, BAR_SECONDS / seconds, 1.0)


def mirrored(work: Work, name: str, session: SparkSession | None) -> float:
    """Seconds of the mirror, from changes in memory to the commit."""
    orders = work.orders
    shutil.copytree(orders.folder / "base", orders.folder / name)
    begin = perf_counter()
    orders.writer(name, session=session).apply(work.batch, [ORDERS], dict(work.known))
    seconds = perf_counter() - begin
    shutil.rmtree(orders.folder / name)
    return seconds


def merged(orders: MirroredOrders, name: str, rows: pa.Table) -> float:
    """Seconds of a bare merge, from opening the table to the commit."""
    shutil.copytree(orders.folder / "base", orders.folder / name)
    begin = perf_counter()
    table = orders.lake(name).open(ORDERS)
    assert isinstance(table, DeltaLakeTable)
    columns = {column: f"new.{column}" for column in rows.column_names if column != DELETED}
    merge = table.delta.merge(rows, "old.id = new.id", source_alias="new", target_alias="old")
    merge = merge.when_matched_delete(f"new.{DELETED}").when_matched_update(columns)
    merge.when_not_matched_insert(columns, predicate=f"NOT new.{DELETED}").execute()
    seconds = perf_counter() - begin
    shutil.rmtree(orders.folder / name)
    return seconds


def merged_by_session(session: SparkSession, orders: MirroredOrders, name: str, rows: pa.Table) -> float:
    """Seconds of a bare MERGE by a session's Delta of rows that are there."""
    shutil.copytree(orders.folder / "base", orders.folder / name)
    session.createDataFrame(rows).createOrReplaceTempView("rows")
    columns = [column for column in rows.column_names if column != DELETED]
    begin = perf_counter()
    session.sql(
        f"MERGE INTO delta.`{orders.lake(name).path(ORDERS)}` AS old USING rows AS new ON old.id = new.id "
        f"WHEN MATCHED AND new.{DELETED} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f'old.{one} = new.{one}' for one in columns)} "
        f"WHEN NOT MATCHED AND NOT new.{DELETED} THEN INSERT ({', '.join(columns)}) "
        f"VALUES ({', '.join(f'new.{one}' for one in columns)})"
    )
    seconds = perf_counter() - begin
    shutil.rmtree(orders.folder / name)
    return seconds


if __name__ == "__main__":
    main()
