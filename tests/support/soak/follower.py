"""Follow the changes with the product's stream and worker, driven by hand and not by Spark.

What Spark does in between is done in its order: a batch is planned, its documents are written, its position
is noted as applied, and only then, with the next batch, confirmed to the slot.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.capture.continuity import LogOrigin
from headrace.capture.signals import SignalFiles
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.worker.task import plan_tasks
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.slot import SlotFacts, drop_slot, read_slot
from headrace.state import Counters
from headrace.testing.memory_sink import MemorySink
from support.soak.memory_worker import Died, MemoryDeferredKeys, MemoryWorker
from support.soak.preparation import PUBLICATION, Prepared

_MOMENT = 0.02
_DRAINED_WITHIN = 60.0
# What open transactions wrote may be flushed up to the middle of a record, which no reader gets for seconds.
_FLUSHED = "SELECT pg_logical_emit_message(true, 'soak', '')"
_WRITTEN = "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint"


@dataclass(frozen=True, slots=True)
class Tuning:
    """Sizes that are small enough for small workloads to reach them (bytes).

    Attributes:
        large_change: documents that a change may touch before they are deferred.
        shares: tasks that share the documents of a batch.
    """

    chunk: int = 4 << 20
    buffer: int = 1 << 20
    backlog: int | None = None
    window: int = 1 << 20
    unfinished: bool = True
    large_change: int = 50_000
    shares: int = 1


class Follower:
    """The pipeline after its backfill; for one thread.

    Attributes:
        batches, restarts: how many there were.
    """

    def __init__(self, prepared: Prepared, sink: MemorySink, tuning: Tuning, folder: Path) -> None:
        self.batches = 0
        self.restarts = 0
        self._prepared = prepared
        self._sink = sink
        self._tuning = tuning
        self._state = prepared.state
        self._deferred = MemoryDeferredKeys()
        self._signals = SignalFiles(folder)
        self._connection: Connection = connect(prepared.url, application_name="headrace soak")
        self._open()

    def _open(self) -> None:
        """As every start does: from where the slot stands, or after what is deferred."""
        prepared, tuning, state = self._prepared, self._tuning, self._state
        confirmed = self._unread().confirmed_flush or 0
        assert confirmed <= state.applied, f"confirmed {confirmed}, applied {state.applied}"
        self._signals.set_confirm_limit(state.applied)
        self._worker = MemoryWorker(prepared.work, self._sink, self._deferred)
        self._position = Offset(confirmed if state.ahead is None else state.ahead)
        self._stream = ChangeStream(
            StreamSettings(
                url=prepared.url,
                slot=state.slot,
                publication=PUBLICATION,
                documents=prepared.needs,
                projection=prepared.work.projection,
                chunk_bytes=tuning.chunk,
                buffer_bytes=tuning.buffer,
                backlog_bytes=tuning.backlog,
                backlog_window=tuning.window,
                unfinished=tuning.unfinished,
                idle_seconds=0.5,
                origin=LogOrigin(state.system_identifier, state.timeline, state.database_oid),
                read=Offset(state.reached, last=state.last),
                same_timeline=True,
                signals=self._signals,
            ),
            self._position,
        )
        self._stream.open()

    def _unread(self) -> SlotFacts:
        """The slot, once nobody reads it: the last word of the last reader may still move it."""
        while (found := self._slot()).active_pid is not None:
            time.sleep(_MOMENT)
        return found

    def _slot(self) -> SlotFacts:
        found = read_slot(self._connection, self._state.slot)
        assert found is not None, "the slot has gone"
        return found

    def _close(self) -> None:
        self._stream.close()
        self._worker.close()

    @property
    def deferred(self) -> int:
        """How many chunks of documents were deferred so far."""
        return self._deferred.added

    def close(self) -> None:
        """Everything, the slot too."""
        self._close()
        drop_slot(self._connection, self._state.slot)
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
        tasks = plan_tasks(batches, end.version, self._tuning.shares, least_rows=1)
        for task in tasks:
            self._worker.apply(task)
        deferred = bool(self._deferred.waiting)
        self._state = self._state.advanced(end.lsn, Counters(), deferred=deferred)
        self._signals.set_confirm_limit(self._state.applied)
        self._position = end
        self.batches += 1
        return True

    def work_off(self, most: int | None = None) -> None:
        """Write the documents of the oldest chunks that are deferred, of all by default."""
        self._worker.write_stored(list(self._deferred.waiting)[:most])

    def drain(self) -> None:
        """Apply everything that is committed now.

        Raises:
            AssertionError: it does not come.
            HeadraceError: as `take`.
        """
        execute(self._connection, _FLUSHED)
        [(target,)] = execute(self._connection, _WRITTEN)
        deadline = time.monotonic() + _DRAINED_WITHIN
        while not self._stream.is_empty(self._position, target):
            self.take(Limit(1 << 30), seconds=0.02)
            assert time.monotonic() < deadline, f"the log up to {target} does not come"
        self.work_off()

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

    def refuse(self, index: str) -> bool:
        """Have what one index gets refused for a batch; return whether something was.

        The batch defers it, and what writes deferred documents meets the refusal.

        Raises:
            AssertionError: another index has deferred documents too, or the error names another.
        """
        before = set(self._deferred.waiting)
        self._sink.reject = lambda operation: (
            "refused" if operation.index == index and operation.body is not None else None
        )
        try:
            self.take(Limit(1 << 30), seconds=0.1)
            late = [batch for id_, batch in self._deferred.waiting.items() if id_ not in before]
            own = [batch.id for batch in late if batch.generation == index]
            self._worker.write_stored(own)
        except HeadraceError as error:
            if error.kind is not Kind.SINK_REJECTED:
                raise
            named = error.units
        else:
            return False
        finally:
            self._sink.reject = MemorySink().reject
        assert named == {index}, f"{index} was refused, and the error names {set(named)}"
        return True

    def checkpoint(self) -> None:
        """Let the slot's beginning move."""
        execute(self._connection, "CHECKPOINT")
