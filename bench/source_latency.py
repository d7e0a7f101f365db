"""How soon is a committed row in the sink of a Spark query? `python bench/source_latency.py [--quick]`.

Single-row transactions at random moments (200 ms apart on average) into a table that `postgres_cdc` follows;
the clock of each starts before its COMMIT is sent and stops when the sink's `write` has the row. In a plain
session, and in one that is tuned as docs/spark.md says; each in a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from headrace.postgres.connection import connect, execute
from support import report
from support.arrivals import Arrivals
from support.log import PUBLICATION, log_server
from support.source import session

PAUSE_SECONDS = 0.2
WARM_UP = 150
PATIENCE_SECONDS = 60.0
INSERT = "INSERT INTO change (id, customer, name) VALUES ($1, 1, 'a name')"
TUNED = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
}


@dataclass(frozen=True, slots=True)
class Arriving:
    """What is written: `count` rows from the id `first`, into the log that `slot` of `url` reads."""

    url: str
    slot: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of session, and what is asked of it (milliseconds by quantile)."""

    name: str
    settings: Mapping[str, str]
    checkpoints: Path | None
    bars: Mapping[str, float]


CASES = (
    Case("tuned", TUNED, Path("/dev/shm"), {"p50": 60.0, "p99": 200.0}),
    Case("plain", {}, None, {"p50": 200.0}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="60 rows instead of 500")
    rows = 60 if parser.parse_args().quick else 500
    found = []
    with log_server() as log:
        for number, case in enumerate(CASES):
            report.machine()
            [slot] = log.slots(1)
            found.append(measured(case, Arriving(log.url, slot, number * 1_000_000, rows)))
            log.drop(slot)
    report.machine()
    report.times(
        [(f"commit → row in the sink, {case.name}", one) for case, one in zip(CASES, found, strict=True)]
    )
    print(f"{rows} rows, {1000 * PAUSE_SECONDS:.0f} ms apart on average, after {WARM_UP} of warm-up")
    held = [
        report.result(
            f"source_latency.{case.name}_{name}", bar / (1000 * report.quantile(one, int(name[1:]))), 1.0
        )
        for case, one in zip(CASES, found, strict=True)
        for name, bar in case.bars.items()
    ]
    sys.exit(not all(held))


def measured(case: Case, work: Arriving) -> list[float]:
    """Seconds from commit to sink of each row, in a process of its own: a JVM keeps a session's settings."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=measure, args=(case, work, theirs))
    process.start()
    theirs.close()
    try:
        found: list[float] = ours.recv()
    finally:
        process.join()
    return found


def measure(case: Case, work: Arriving, pipe: Pipe) -> None:
    """The process of one case."""
    with (
        session(case.settings) as spark,
        tempfile.TemporaryDirectory(dir=case.checkpoints) as folder,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(PATIENCE_SECONDS)
        spark.dataSource.register(Arrivals)
        reader = spark.readStream.format("postgres_cdc").option("url", work.url).option("slotName", work.slot)
        changes = reader.options(publicationName=PUBLICATION, startingOffsets="latest").load("public.change")
        writer = changes.writeStream.format("bench_arrivals").option("port", receiver.getsockname()[1])
        query = writer.option("checkpointLocation", Path(folder).as_uri()).start()
        wait_until_read(work)
        arrivals(replace(work, count=WARM_UP), receiver)
        pipe.send(arrivals(replace(work, first=work.first + WARM_UP), receiver))
        query.stop()
        wait_until_read(work, active=False)


def wait_until_read(work: Arriving, *, active: bool = True) -> None:
    """Wait until somebody follows the slot, or nobody does any more."""
    end = time.monotonic() + PATIENCE_SECONDS
    sql = "SELECT active FROM pg_replication_slots WHERE slot_name = $1"
    with connect(work.url) as connection:
        while execute(connection, sql, (work.slot,)) != [(active,)]:
            assert time.monotonic() < end
            time.sleep(0.05)


def arrivals(work: Arriving, receiver: socket.socket) -> list[float]:
    """Commit the rows at random moments; the seconds that each took into the sink, in their order."""
    begun: dict[int, float] = {}
    writer = threading.Thread(target=write, args=(work, begun), name="writer", daemon=True)
    writer.start()
    there: dict[int, float] = {}
    while len(there) < work.count:
        number = int(receiver.recv(64))
        there.setdefault(number, time.perf_counter())
    writer.join()
    return [there[number] - begun[number] for number in sorted(begun)]


def write(work: Arriving, begun: dict[int, float]) -> None:
    """Insert rows one by one; `begun` has the moment before the commit of each."""
    pauses = random.Random(work.first)
    with connect(work.url, autocommit=False) as connection:
        for number in range(work.first, work.first + work.count):
            time.sleep(pauses.expovariate(1 / PAUSE_SECONDS))
            execute(connection, INSERT, (number,))
            begun[number] = time.perf_counter()
            connection.commit()


if __name__ == "__main__":
    main()
