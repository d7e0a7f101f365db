"""Compare `postgres_cdc` with pg_recvlogical on the same log, in alternation."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headrace
from harness import report
from harness.log import PUBLICATION, Log, log_server, recvlogical
from headrace.config.java import spark_java_home
from headrace.model.lsn import Lsn

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Work:
    """What is read: `count` changes up to `end`, with the source's `backlogBytes`."""

    end: Lsn
    count: int
    backlog: str


def compare(name: str, doc: str, *, changes: int, quick: int, bar: float, backlog: str) -> None:
    """Run one benchmark: the typed rows of one table into the noop sink.

    Args:
        changes: how many, 100 in a transaction.
        quick: how many with --quick.
        bar: the ratio.
        backlog: the source's `backlogBytes`.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{quick:,} instead of {changes:,} changes")
    count = quick if parser.parse_args().quick else changes
    peers, ours = [], []
    with log_server() as log, session() as spark, tempfile.TemporaryDirectory() as folder:
        slots = log.slots(2 * ROUNDS + 1)
        end = log.write(count, 100)
        work = Work(end, count, backlog)
        followed(spark, log, slots.pop(), Path(folder) / "warm", work=work)
        for number, (peer, own) in enumerate(zip(slots[::2], slots[1::2], strict=True)):
            report.machine()
            peers.append(recvlogical(log.url, peer, end))
            ours.append(followed(spark, log, own, Path(folder) / str(number), work=work))
            log.drop(peer)
    report.machine()
    rows = [("pg_recvlogical → /dev/null", peers), ("postgres_cdc → noop", ours)]
    middle = [(what, statistics.median(found)) for what, found in rows]
    shown = [(what, f"{seconds:.2f}", f"{count / seconds:,.0f}") for what, seconds in middle]
    report.table((f"{count:,} changes", "seconds", "changes/s"), shown)
    sys.exit(not report.result(name, middle[0][1] / middle[1][1], bar))


@contextmanager
def session(settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A plain session that knows nothing of Headrace; its workers find `support` too."""
    folders = [str(Path(headrace.__file__).parents[1]), str(Path(__file__).parents[1])]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(spark_java_home())
    given: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(settings or {}),
    }
    made = SparkSession.builder.master("local[2]").config(map=given).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


def followed(spark: SparkSession, log: Log, slot: str, folder: Path, *, work: Work) -> float:
    """Seconds from the first batch's beginning, with its connection, to the last one's end."""
    options = {"url": log.url, "slot": slot, "publication": PUBLICATION, "backlogBytes": work.backlog}
    rows = (
        spark.readStream.format("postgres_cdc")
        .options(**options, startingOffsets="earliest", createSlot="false")
        .load("public.change")
    )
    writer = rows.writeStream.format("noop").option("checkpointLocation", folder.as_uri())
    query = writer.start()

    def assert_active() -> None:
        assert query.isActive, query.exception()

    log.wait_confirmed(slot, work.end, assert_active)
    batches = [one for one in query.recentProgress if one["numInputRows"]]
    query.stop()
    log.drop(slot)
    assert sum(one["numInputRows"] for one in batches) == work.count
    return ended(batches[-1]) - begun(batches[0])


def begun(batch: Any) -> float:
    """Unix time (s)."""
    return datetime.fromisoformat(batch["timestamp"]).timestamp()


def ended(batch: Any) -> float:
    """Unix time (s)."""
    return begun(batch) + float(batch["durationMs"]["triggerExecution"]) / 1000
