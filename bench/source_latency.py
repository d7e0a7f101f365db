"""How soon is a committed row in the sink of a Spark query? `python bench/source_latency.py [--quick]`.

Single-row transactions at random moments (200 ms apart on average) into a table that `postgres_cdc` follows;
the clock of each starts before its COMMIT is sent and stops when the sink's `write` has the row. In a plain
session, and in one that is tuned as docs/guides/spark-queries.md says; each in a process of its own. Beside
it, in the same session, the least that any source in Python can do: what Spark itself takes on this machine
at this hour.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Self

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from harness import report
from harness.arrivals import Arrivals
from harness.knocks import Knocks
from harness.log import PUBLICATION, log_server
from harness.source import session
from headrace.postgres.connection import connect, execute

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
    """What is written: `count` rows from the id `first`, into the log that `slot` of `url` reads; and before
    them a warm-up.
    """

    url: str
    slot: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds to the sink of each row: through `postgres_cdc`, and through the least of sources."""

    ours: list[float]
    least: list[float]


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
    shown = []
    for case, one in zip(CASES, found, strict=True):
        shown.append((f"commit → row in the sink, {case.name}", one.ours))
        shown.append((f"a number → the sink, {case.name}", one.least))
    report.times(shown)
    print(f"{rows} rows, {1000 * PAUSE_SECONDS:.0f} ms apart on average, after {WARM_UP} of warm-up")
    held = [
        report.result(
            f"source_latency.{case.name}_{name}", bar / (1000 * report.quantile(one.ours, int(name[1:]))), 1.0
        )
        for case, one in zip(CASES, found, strict=True)
        for name, bar in case.bars.items()
    ]
    sys.exit(not all(held))


def measured(case: Case, work: Arriving) -> Found:
    """One case, in a process of its own: a JVM keeps a session's settings."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=measure, args=(case, work, theirs))
    process.start()
    theirs.close()
    try:
        found: Found = ours.recv()
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
        spark.dataSource.register(Knocks)

        def into_sink(rows: DataFrame, name: str) -> StreamingQuery:
            writer = rows.writeStream.format("bench_arrivals").option("port", receiver.getsockname()[1])
            return writer.option("checkpointLocation", (Path(folder) / name).as_uri()).start()

        door = free_port()
        query = into_sink(spark.readStream.format("bench_knocks").option("port", door).load(), "least")
        with Knocker(door) as knocker:
            knocker.knock_until_heard(receiver)
            least = arrivals(work, receiver, knocker)
        query.stop()
        reader = spark.readStream.format("postgres_cdc").option("url", work.url).option("slot", work.slot)
        changes = reader.options(publication=PUBLICATION, startingOffsets="latest").load("public.change")
        query = into_sink(changes, "ours")
        wait_until_read(work)
        with Inserter(work.url) as inserter:
            pipe.send(Found(arrivals(work, receiver, inserter), least))
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


class Inserter:
    """Commits rows, each in a transaction of its own."""

    def __init__(self, url: str) -> None:
        self._connection = connect(url, autocommit=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, number: int) -> float:
        """The moment before the commit of the row."""
        execute(self._connection, INSERT, (number,))
        begun = time.perf_counter()
        self._connection.commit()
        return begun


class Knocker:
    """Sends numbers to a port."""

    def __init__(self, port: int) -> None:
        self._place = ("127.0.0.1", port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, number: int) -> float:
        """The moment before it is sent."""
        begun = time.perf_counter()
        self._socket.sendto(str(number).encode(), self._place)
        return begun

    def knock_until_heard(self, receiver: socket.socket) -> None:
        """Wait until the source listens and the sink has answered to the last knock."""
        receiver.settimeout(1.0)
        number = 0
        while True:
            number -= 1
            with contextlib.suppress(OSError):  # nobody listens yet
                self.send(number)
            with contextlib.suppress(TimeoutError):
                while int(receiver.recv(64)) != number:
                    pass
                break
        receiver.settimeout(PATIENCE_SECONDS)


def arrivals(work: Arriving, receiver: socket.socket, sender: Inserter | Knocker) -> list[float]:
    """Send rows at random moments; the seconds that each took into the sink, in their order."""
    begun: dict[int, float] = {}
    numbers = range(work.first, work.first + WARM_UP + work.count)
    thread = threading.Thread(target=send, args=(numbers, sender, begun), name="sender", daemon=True)
    thread.start()
    there: dict[int, float] = {}
    while len(there) < len(numbers):
        number = int(receiver.recv(64))
        if number in numbers:
            there.setdefault(number, time.perf_counter())
    thread.join()
    return [there[number] - begun[number] for number in numbers[WARM_UP:]]


def send(numbers: range, sender: Inserter | Knocker, begun: dict[int, float]) -> None:
    """Send one after the other; `begun` has the moment of each."""
    pauses = random.Random(numbers[0])
    for number in numbers:
        time.sleep(pauses.expovariate(1 / PAUSE_SECONDS))
        begun[number] = sender.send(number)


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


if __name__ == "__main__":
    main()
