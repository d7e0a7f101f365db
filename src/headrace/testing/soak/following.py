"""How do changes become documents here? The product's stream and worker, driven by hand and not by Spark.

What Spark does in between is done in its order: a batch is planned, its documents are written, its position
is noted as applied, and only then, with the next batch, confirmed to the slot.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

import pyarrow as pa

from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.capture.columns import progress_batch
from headrace.model import CHANGES_SCHEMA, Lsn
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.slot import SlotFacts, drop_slot, read_slot
from headrace.testing.memory_sink import MemorySink
from headrace.testing.soak.preparing import PUBLICATION, Prepared
from headrace.testing.soak.working import Died, MemoryWorker

_MOMENT = 0.02
_DRAINED_WITHIN = 60.0
_WRITTEN = "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint"


@dataclass(frozen=True, slots=True)
class Tuning:
    """Sizes that are small enough for small workloads to reach them (bytes)."""

    chunk: int = 4 << 20
    buffer: int = 1 << 20
    backlog: int | None = None
    window: int = 1 << 20
    unfinished: bool = True


class Follower:
    """The pipeline behind its seeding; for one thread.

    Attributes:
        batches, restarts: how many there were.
    """

    def __init__(self, prepared: Prepared, sink: MemorySink, tuning: Tuning) -> None:
        self.batches = 0
        self.restarts = 0
        self._prepared = prepared
        self._sink = sink
        self._tuning = tuning
        self._applied: Lsn = prepared.start
        self._connection: Connection = connect(prepared.url, application_name="headrace soak")
        self._open()

    def _open(self) -> None:
        """As every start does: from where the slot stands, if that fits what was applied."""
        prepared, tuning = self._prepared, self._tuning
        confirmed = self._slot().confirmed_flush or 0
        assert confirmed <= self._applied, f"confirmed {confirmed}, applied {self._applied}"
        self._worker = MemoryWorker(prepared.work, self._sink)
        self._position = Offset(confirmed)
        self._stream = ChangeStream(
            StreamSettings(
                url=prepared.url,
                slot=prepared.slot,
                publication=PUBLICATION,
                documents=prepared.needs,
                chunk_bytes=tuning.chunk,
                buffer_bytes=tuning.buffer,
                backlog_bytes=tuning.backlog,
                backlog_window=tuning.window,
                unfinished=tuning.unfinished,
                idle_seconds=0.5,
                origin=prepared.origin,
                known=self._applied,
                same_timeline=True,
            ),
            self._position,
        )
        self._stream.open()

    def _slot(self) -> SlotFacts:
        found = read_slot(self._connection, self._prepared.slot)
        assert found is not None, "the slot has gone"
        return found

    def _close(self) -> None:
        self._stream.close()
        self._worker.close()

    def close(self) -> None:
        """Everything, the slot too."""
        self._close()
        drop_slot(self._connection, self._prepared.slot)
        self._connection.close()

    def take(self, limit: Limit, seconds: float = _MOMENT) -> bool:
        """Confirm what was applied, and apply one batch; False where there is none.

        Raises:
            HeadraceError: what the product ends with.
            Died: as the worker was told.
        """
        self._stream.confirm(self._position)
        end = self._stream.next_offset(self._position, limit, seconds)
        if end == self._position:
            return False
        batches = self._stream.changes(self._position, end)
        changes = [*batches, progress_batch(end.lsn, end.version)]
        position, _ = self._worker.apply(pa.Table.from_batches(changes, schema=CHANGES_SCHEMA))
        self._applied = max(self._applied, position)
        self._position = end
        self.batches += 1
        return True

    def drain(self) -> None:
        """Apply everything that is committed now.

        Raises:
            AssertionError: it does not come.
            HeadraceError: as `take`.
        """
        [(target,)] = execute(self._connection, _WRITTEN)
        deadline = time.monotonic() + _DRAINED_WITHIN
        while not self._stream.is_empty(self._position, target):
            self.take(Limit(1 << 30), seconds=0.02)
            assert time.monotonic() < deadline, f"the log up to {target} does not come"

    def restart(self, how: str, documents: int) -> None:
        """See `Restart`."""
        self.restarts += 1
        if how == "cut":
            pid = self._slot().active_pid
            if pid is not None:
                execute(self._connection, "SELECT pg_terminate_backend($1)", (pid,))
            return
        if how == "clean":
            self._stream.confirm(self._position)
        elif how == "unconfirmed":
            self.take(Limit(1 << 30), seconds=0.1)
        else:
            self._worker.failing.left = documents
            with contextlib.suppress(Died):
                self.take(Limit(1 << 30), seconds=0.1)
        self._close()
        self._open()

    def checkpoint(self) -> None:
        """Let the slot's beginning move."""
        execute(self._connection, "CHECKPOINT")
