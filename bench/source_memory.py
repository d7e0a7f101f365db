"""How much memory does a large transaction take in Spark? `python bench/source_memory.py [--quick]`.

One transaction of a million rows of 200 bytes, once waiting in the log when the query begins, once written
while it follows; into the noop sink of a plain session. Counted is what the JVM and all Python processes have
(PSS) above the same processes before, when their query had read one row.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from harness import report
from harness.log import PUBLICATION, Log, log_server
from harness.memory import MemoryWatch
from harness.source import session
from headrace.embedded.processes import descendants
from headrace.model.lsn import Lsn
from headrace.postgres.connection import connect, execute

BAR_BYTES = 1_000_000_000
ROW = "INSERT INTO wide SELECT g, repeat(md5(g::text), 6) FROM generate_series({0}, {1}) g"
LOOK_SECONDS = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100,000 rows")
    rows = 100_000 if parser.parse_args().quick else 1_000_000
    with log_server() as log:
        with connect(log.url) as connection:
            execute(connection, "CREATE TABLE wide (id bigint PRIMARY KEY, data text)")
            execute(connection, f"ALTER PUBLICATION {PUBLICATION} ADD TABLE wide")
        report.machine()
        waiting = measured(log, 1, rows, waits=True)
        report.machine()
        running = measured(log, rows + 2, rows, waits=False)
    report.machine()
    found = (("waiting", waiting), ("running", running))
    kinds = sorted({kind for _, used in found for kind in used.idle})
    shown = [
        (
            name,
            f"{used.above / 1e6:,.0f}",
            *(f"{used.peaks[one] / 1e6:,.0f} ({used.idle[one] / 1e6:,.0f})" for one in kinds),
        )
        for name, used in found
    ]
    report.table(
        (f"MB, {rows:,} rows of 200 bytes", "above idle", *(f"{one} (idle)" for one in kinds)), shown
    )
    held = [report.result(f"source_memory.{name}", BAR_BYTES / used.above, 1.0) for name, used in found]
    sys.exit(not all(held))


@dataclass(frozen=True, slots=True)
class Used:
    """Memory in bytes.

    Attributes:
        above: the highest sum of all processes, less that before.
        idle: before, by kind of process.
        peaks: the highest of each kind.
    """

    above: int
    idle: Counter[str]
    peaks: Counter[str]


def measured(log: Log, first: int, rows: int, *, waits: bool) -> Used:
    """What a Spark in a process of its own takes.

    Args:
        first: the first free id; two transactions are written.
        waits: whether the large one is written before the query goes on to read it.
    """
    [slot] = log.slots(1)
    with connect(log.url) as connection:
        execute(connection, ROW.format(first, first))
    small = written(log)
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=follow, args=(log.url, slot, theirs))
    process.start()
    theirs.close()
    try:
        log.wait_confirmed(slot, small)
        ours.send("stop" if waits else "idle")
        idle, before = ours.recv()
        with connect(log.url) as connection:
            execute(connection, ROW.format(first + 1, first + rows))
        end = written(log)
        ours.send("go")
        log.wait_confirmed(slot, end)
        ours.send("done")
        peak, peaks = ours.recv()
    finally:
        process.join()
    log.drop(slot)
    return Used(peak - idle, before, peaks)


def written(log: Log) -> Lsn:
    """The end of the log (bytes)."""
    with connect(log.url) as connection:
        [(end,)] = execute(connection, "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")
    return int(end)


def follow(url: str, slot: str, pipe: Pipe) -> None:
    """The process with the session: reads one row, says what it has, and reads on under watch."""
    with session() as spark, tempfile.TemporaryDirectory() as folder:

        def start() -> None:
            reader = spark.readStream.format("postgres_cdc").option("url", url).option("slot", slot)
            given = {"publication": PUBLICATION, "startingOffsets": "earliest", "createSlot": "false"}
            writer = reader.options(**given).load("public.wide").writeStream.format("noop")
            writer.option("checkpointLocation", Path(folder).as_uri()).start()

        start()
        stopped = pipe.recv() == "stop"
        time.sleep(2)
        with MemoryWatch(members, LOOK_SECONDS) as before:
            time.sleep(3 * LOOK_SECONDS)
        if stopped:
            for query in spark.streams.active:
                query.stop()
        pipe.send((before.peak, before.peaks))
        with MemoryWatch(members, LOOK_SECONDS) as watch:
            assert pipe.recv() == "go"
            if stopped:
                start()
            assert pipe.recv() == "done"
        pipe.send((watch.peak, watch.peaks))
        for query in spark.streams.active:
            query.stop()


def members() -> list[int]:
    """This process, its JVM and all that Spark has started."""
    return [os.getpid(), *descendants(os.getpid())]


if __name__ == "__main__":
    main()
