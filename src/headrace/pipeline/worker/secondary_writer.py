"""Write documents to the secondary sinks without delaying the other sinks (decision 0068).

Each secondary sink has its own worker and generations. In a batch it has some seconds. What it has not taken
by then is deferred in the cluster that keeps the state, and `CatchUp` writes it later. So a batch is done
when its documents are durable in that cluster, and durable or deferred for each secondary sink.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import pyarrow as pa
import pyarrow.compute as pc
from tenacity import Retrying, retry_if_exception, wait_exponential_jitter
from tenacity.nap import sleep_using_event

from headrace.errors import HeadraceError, Kind, Retry, retrying
from headrace.model import Key, Lsn, Op, key_of_id
from headrace.pipeline.worker.deferral import Deferral, Portion
from headrace.pipeline.worker.delivery import Delivery
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.task import Task
from headrace.pipeline.worker.worker import Worker, WrittenBatch
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.sinks.opensearch.documents import ids, refresh
from headrace.sinks.opensearch.secondary_deferred_keys import EVERYTHING, SecondaryDeferredKeys
from headrace.sinks.opensearch.writer import WriterOptions
from headrace.sinks.registry import open_sink
from headrace.sinks.several import ApartWriter, PlainWriter, SinkFailure
from headrace.sinks.stdout import RelayWriter

LIMIT_SECONDS = 5.0
"""How long a batch sends requests to a secondary sink; the last one may take as long again."""
_UNHURRIED_FACTOR = 4
"""Factor of the request timeout where no batch waits."""
_LOOK_SECONDS = 1.0
_AWAY = {Kind.SINK_BUSY, Kind.SINK_UNREACHABLE}


def is_from_sink(error: BaseException) -> bool:
    """Whether an error comes from a secondary sink, and not from the cluster that keeps the state."""
    return isinstance(error, SinkFailure) or (isinstance(error, HeadraceError) and error.kind in _AWAY)


class SecondaryWorker(Worker):
    """Writes to a secondary sink, with short timeouts.

    Args:
        work: the work of the sink.
        ending: ends all retries once it is set.
    """

    def __init__(self, work: Work, ending: threading.Event | None = None) -> None:
        super().__init__(_with_timeout(work, _UNHURRIED_FACTOR * LIMIT_SECONDS))
        self._ending = ending or threading.Event()

    @property
    def is_plain(self) -> bool:
        """Whether the sink is not a cluster."""
        return self._work.plan.is_plain

    def probe(self) -> None:
        """Check that the sink answers; a plain sink can only be checked by a write.

        Raises:
            HeadraceError: the sink does not answer.
        """
        if not self.is_plain:
            self._client.wait_until_ready(LIMIT_SECONDS)

    def _open_writer(self, options: WriterOptions) -> DocumentWriter:
        plan = self._work.plan
        if not plan.is_plain:
            return ApartWriter(super()._open_writer(options))
        return ApartWriter(PlainWriter(self._open_plain, plan.indexes))

    def _throttled_delivery(self) -> Delivery:
        return self._delivery if self.is_plain else super()._throttled_delivery()

    def _open_plain(self) -> DocumentWriter:
        kind, options = self._work.plan.kind, self._work.connections.options
        return RelayWriter(**options) if kind == "stdout" else open_sink(kind, options)

    def _attempts(self) -> Retrying:
        end = time.monotonic() + LIMIT_SECONDS

        def is_passing(error: BaseException) -> bool:
            if not isinstance(error, HeadraceError) or error.retry is not Retry.BACK_OFF:
                return False
            return not self._ending.is_set() and not (is_from_sink(error) and time.monotonic() > end)

        return Retrying(
            retry=retry_if_exception(is_passing),
            wait=wait_exponential_jitter(multiplier=0.05, max=2.0, jitter=0.05),
            sleep=sleep_using_event(self._ending),
            reraise=True,
        )

    def _indexed_keys(self, index: str) -> Iterator[Key]:
        """Yield the sink's keys; for a plain sink those of the same index in the primary cluster."""
        plan = self._work.plan
        if not plan.is_plain:
            return super()._indexed_keys(index)
        target, width = plan.mirrors[index], len(plan.specs[index].primary_key)
        refresh(self._state, target)
        return (key_of_id(id_, width) for id_ in ids(self._state, target))


class DeferringWorker(SecondaryWorker):
    """The worker of a secondary sink beside the stream: it defers what the sink does not take."""

    def __init__(self, work: Work) -> None:
        super().__init__(_with_timeout(work, LIMIT_SECONDS))
        self._sink_deferred = SecondaryDeferredKeys(self._state, work.plan.slot, work.plan.prefix)
        self._end = 0.0
        self._away = False
        self._next_look = 0.0

    def apply(self, task: Task) -> WrittenBatch:
        """Bring every document that the changes touch up to date in this sink, or defer it."""
        self._end = time.monotonic() + LIMIT_SECONDS
        return super().apply(task)

    def _write(self, portion: Portion, version: Lsn) -> WriteResult:
        if not self._is_away():
            try:
                return super()._write(portion, version)
            except HeadraceError as error:
                if not is_from_sink(error):
                    raise
                self._note_away(error)
        for index, keys in portion.items():
            self._defer(index, [keys], version)
        return WriteResult()

    def _add_all_keys(self, deferral: Deferral, index: str, version: Lsn) -> None:
        if self._work.plan.is_plain:
            super()._add_all_keys(deferral, index, version)
            return
        if not self._is_away():
            try:
                super()._add_all_keys(deferral, index, version)
            except HeadraceError as error:
                self._note_away(error)
            else:
                return
        self._defer(index, [[EVERYTHING]], version)

    def _attempts(self) -> Retrying:
        def is_passing(error: BaseException) -> bool:
            if not isinstance(error, HeadraceError) or error.retry is not Retry.BACK_OFF:
                return False
            return not (is_from_sink(error) and time.monotonic() > self._end)

        return retrying(longest=1.0).copy(retry=retry_if_exception(is_passing))

    def _defer(self, index: str, chunks: Sequence[Sequence[Key]], version: Lsn) -> None:
        for attempt in retrying():
            with attempt:
                self._sink_deferred.add(index, [key for keys in chunks for key in keys], version)

    def _note_away(self, error: HeadraceError) -> None:
        """Note that the sink is away: no task waits for it until it has taken a document."""
        self._away, self._next_look = True, time.monotonic() + _LOOK_SECONDS
        for attempt in retrying():
            with attempt:
                self._sink_deferred.away(str(error))

    def _is_away(self) -> bool:
        """Whether a task of this or another process has noted that the sink is away."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            with contextlib.suppress(HeadraceError):
                self._away = self._sink_deferred.why_away() is not None
        return self._away


class AllSinks:
    """Applies changes to the primary sink and, in parallel, to the secondary sinks.

    Args:
        primary: the worker of the primary sink, which `close` closes.
        work: the work of the secondary sinks, by name.
    """

    def __init__(self, primary: Worker, work: Mapping[str, Work]) -> None:
        self.primary = primary
        self._secondary = [DeferringWorker(sink_work) for sink_work in work.values()]
        self._thread = ThreadPoolExecutor(1, "headrace-beside")
        self._threads = ThreadPoolExecutor(len(self._secondary), "headrace-sink")

    def apply(self, task: Task) -> WrittenBatch:
        """Apply a task's changes to all sinks; the counts are those of the primary sink.

        Raises:
            HeadraceError: an error that is not retryable; from a secondary sink only a refused document of an
                index with the policy to stop.
        """
        beside = self._secondary
        if _truncates(task.rows):
            # Plain sinks read existing keys from the primary cluster, so they come before it deletes them.
            plain = [worker for worker in beside if worker.is_plain]
            beside = [worker for worker in beside if not worker.is_plain]
            self._run_all(plain, task)
        others = self._thread.submit(self._run_all, beside, task)
        try:
            result = self.primary.apply(task)
        finally:
            wait([others])
        others.result()
        return result

    def close(self) -> None:
        """Close all workers."""
        self._thread.shutdown()
        self._threads.shutdown()
        for worker in (self.primary, *self._secondary):
            worker.close()

    def _run_all(self, secondary: Sequence[DeferringWorker], task: Task) -> None:
        futures = [self._threads.submit(worker.apply, task) for worker in secondary]
        wait(futures)
        for future in futures:
            future.result()


def _truncates(rows: pa.Table) -> bool:
    return bool(pc.any(pc.equal(rows.column("op"), Op.TRUNCATE.value)).as_py())


def _with_timeout(work: Work, seconds: float) -> Work:
    """Return the same work, with shorter request timeouts."""
    sink, writer = work.connections.sink, work.plan.writer
    endpoint = dataclasses.replace(
        sink,
        timeout=min(sink.timeout, seconds),
        connect_timeout=min(sink.connect_timeout, seconds / 2),
    )
    writer_options = dataclasses.replace(writer, busy_seconds=min(writer.busy_seconds, seconds / 2))
    return Work(
        dataclasses.replace(work.plan, writer=writer_options),
        dataclasses.replace(work.connections, sink=endpoint, state=work.connections.keeps_state),
    )
