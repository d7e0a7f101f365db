"""How do live changes become documents? One Structured Streaming query, from the slot to the sink."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.capture.held import HeldPosition
from headrace.catalog.needs import Needs, to_text
from headrace.errors import HeadraceError
from headrace.model import Lsn
from headrace.spark import register
from headrace.spark.failures import headrace_error
from headrace.spark.plan import HELD_OPTION, Work
from headrace.spark.session import POOL, STREAM
from headrace.spark.sink import DocumentsSink

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Following:
    """What the source of the documents query follows."""

    slot: str
    publication: str
    needs: Needs
    continues: Mapping[str, str | int]
    """System, timeline and database that the documents come from, and the position that they have."""
    held: Lsn | None = None
    """Where documents are parked: the slot is confirmed no further, and read on from the position above."""

    @property
    def start(self) -> str:
        """Where the source begins: where the slot stands, or behind what is parked."""
        return "earliest" if self.held is None else str(self.continues["lsn"])


class DocumentsQuery:
    """The running query. The slot is its only cursor; its checkpoint is scratch (decision 1).

    Attributes:
        trouble: the file in which the source says what keeps it from reading.
    """

    def __init__(self, spark: SparkSession, work: Work, following: Following, scratch: Path) -> None:
        register(spark)
        spark.dataSource.register(DocumentsSink)
        self.trouble = scratch / f"trouble-{uuid.uuid4().hex}"
        held = HeldPosition(scratch / f"held-{uuid.uuid4().hex}")
        held.set(following.held)
        changes = (
            spark.readStream.format("postgres_cdc")
            .option("url", work.connections.database)
            .option("slotName", following.slot)
            .option("publicationName", following.publication)
            .option("createSlot", "false")
            .option("startingOffsets", following.start)
            .option("progress", "true")
            .option("shares", str(spark.sparkContext.defaultParallelism))
            .option("maxBytesPerTrigger", "32m")
            .option("documentNeeds", to_text(following.needs))
            .option("continues", json.dumps(dict(following.continues)))
            .option("heldFile", str(held.path))
            .option("troubleFile", str(self.trouble))
            .load()
        )
        spark.sparkContext.setLocalProperty(POOL, STREAM)  # the query's thread takes it over
        checkpoint = scratch / f"checkpoint-{uuid.uuid4().hex}"
        self._query: StreamingQuery = (
            changes.writeStream.format("headrace_documents")
            .options(**work.to_options())
            .option(HELD_OPTION, str(held.path))
            .option("checkpointLocation", checkpoint.as_uri())
            .queryName("headrace")
            .start()
        )

    def failure(self) -> HeadraceError | None:
        """Why the query is not running any more; None while it runs, or where it was stopped."""
        if self._query.isActive:
            return None
        error = self._query.exception()
        return None if error is None else headrace_error(error)

    def begun(self) -> bool:
        """Whether the first batch is through, and with it every process and connection is up."""
        return self._batch() >= 0

    @property
    def active(self) -> bool:
        """Whether the query runs."""
        return bool(self._query.isActive)

    def stop(self, patience: float = 8.0) -> None:
        """End the query behind its current batch; one that takes longer is cut off, and repeated later.

        Args:
            patience: how many seconds the batch may still take.
        """
        waited = threading.Event()
        batch = self._batch()
        deadline = time.monotonic() + patience
        while self._query.isActive and self._query.status["isDataAvailable"] and self._batch() == batch:
            if time.monotonic() > deadline:
                break
            waited.wait(_POLL_SECONDS)
        # Tasks that wait for a server do not notice: their session ends them.
        with contextlib.suppress(Py4JJavaError, PySparkException):
            self._query.stop()

    def _batch(self) -> int:
        progress = self._query.lastProgress
        return -1 if progress is None else int(progress["batchId"])
