"""How fast do changes come into a large table? `python bench/mirror_merge.py [--rows N] [--quick]`.

100,000 changes of rows everywhere in a table of eight columns (updates, deletes and inserts, as the log has
them) are written to a Delta table and to an Iceberg table by a mirror; and what they leave, ready-made, by a
bare merge of the `deltalake` library into a copy of the Delta table.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

import pyarrow as pa

from harness import report
from harness.lake import ORDERS, SLOT, MirroredOrders
from headrace.capture import ChangeStream, StreamSettings
from headrace.capture.buffer import Limit
from headrace.capture.envelope import enveloped
from headrace.config.mirror import Format
from headrace.mirror.delta import DeltaLakeTable
from headrace.mirror.net_changes import DELETED, net_changes
from headrace.mirror.positions import TablePosition
from support.lake import FORMATS

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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows of the table ({ROWS:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} rows")
    given = parser.parse_args()
    rows = QUICK if given.quick else given.rows
    mirror, iceberg, bare = [], [], []
    with MirroredOrders.serve(rows) as orders:
        table, start = dict(orders.writer("delta").loader.load([ORDERS]))[ORDERS]
        dict(orders.writer("iceberg", "iceberg").loader.load([ORDERS]))
        for kind in FORMATS:
            shutil.copytree(orders.folder / kind, orders.folder / f"{kind}-loaded")
        known = TablePosition(0, start, table.relation, table.files)
        changes = pa.Table.from_batches(list(change(orders))).combine_chunks().to_batches()[0]
        batch = pa.Table.from_batches([enveloped(changes, {ORDERS: ("id",)}, "bench", {})])
        typed = pa.Table.from_batches([table.shape.rows(changes)])
        ready = net_changes(typed, table.key, lambda _keys, _names: {}).rows
        for _ in range(ROUNDS):
            report.machine()
            mirror.append(mirrored(orders, "delta", batch, known))
            iceberg.append(mirrored(orders, "iceberg", batch, known))
            bare.append(merged(orders, ready))
    middle = {
        "headrace mirror, Delta": statistics.median(mirror),
        "headrace mirror, Iceberg": statistics.median(iceberg),
        "a bare merge of deltalake": statistics.median(bare),
    }
    shown = [(name, f"{took:.2f}", f"{CHANGES / took:,.0f}") for name, took in middle.items()]
    report.table((f"{len(batch):,} changes into {rows:,} rows", "seconds", "changes/s"), shown)
    ours, other, theirs = middle.values()
    held = report.result("mirror_merge.seconds", BAR_SECONDS / ours, 1.0)
    held &= report.result("mirror_merge.iceberg", BAR_SECONDS / other, 1.0)
    held &= report.result("mirror_merge.bare", theirs / ours, 0.8)
    sys.exit(not held)


def mirrored(orders: MirroredOrders, kind: Format, batch: pa.Table, known: TablePosition) -> float:
    """Seconds of the mirror, from changes in memory to the commit."""
    restore(orders, kind)
    table = orders.lake(kind, kind).open(ORDERS)
    assert table is not None
    begin = perf_counter()
    orders.writer(kind, kind).apply(batch, [ORDERS], {ORDERS: replace(known, version=table.version)})
    return perf_counter() - begin


def merged(orders: MirroredOrders, rows: pa.Table) -> float:
    """Seconds of a bare merge, from opening the table to the commit."""
    restore(orders, "delta")
    begin = perf_counter()
    table = orders.lake("delta").open(ORDERS)
    assert isinstance(table, DeltaLakeTable)
    columns = {column: f"new.{column}" for column in rows.column_names if column != DELETED}
    merge = table.delta.merge(rows, "old.id = new.id", source_alias="new", target_alias="old")
    merge = merge.when_matched_delete(f"new.{DELETED}").when_matched_update(columns)
    merge.when_not_matched_insert(columns, predicate=f"NOT new.{DELETED}").execute()
    return perf_counter() - begin


def restore(orders: MirroredOrders, kind: Format) -> None:
    """Make a lake as it was after the load, where it was: an Iceberg table stays in its folder."""
    shutil.rmtree(orders.folder / kind)
    shutil.copytree(orders.folder / f"{kind}-loaded", orders.folder / kind)


if __name__ == "__main__":
    main()
