"""How does a secondary sink get its documents, and hold up none of the others? (decision 0068)

Each has a worker of its own, with its own generations. In a batch it has some seconds; what it has not taken
by then is deferred in the cluster that keeps the state, and from there `CatchUp` writes it. So a batch is
done when its documents are durable in that cluster, and durable or deferred for each secondary sink.
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

from headrace.datasources.partitioning import Task
from headrace.errors import HeadraceError, Kind, Retry, patiently
from headrace.model import Key, Lsn, Op, key_of_id
from headrace.pipeline.worker.deferral import Deferral, Portion
from headrace.pipeline.worker.delivery import Delivery
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.worker import Worker, WrittenBatch
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.sinks.opensearch.documents import ids, refresh
from headrace.sinks.opensearch.secondary_deferred_keys import EVERYTHING, SecondaryDeferredKeys
from headrace.sinks.opensearch.writer import WriterOptions
from headrace.sinks.registry import open_sink
from headrace.sinks.several import ApartWriter, PlainWriter, SinkFailure
from headrace.sinks.stdout import RelayWriter

LIMIT_SECONDS = 5.0
"""How long a batch begins anything new with a secondary sink; what hangs then may take as long again."""
_PATIENT = 4
"""So much longer may a request take where no batch waits for it."""
_LOOK_SECONDS = 1.0
_AWAY = {Kind.SINK_BUSY, Kind.SINK_UNREACHABLE}


def is_of_a_sink(error: BaseException) -> bool:
    """Whether a secondary sink is the reason, and not the cluster that keeps the state."""
    return isinstance(error, SinkFailure) or (isinstance(error, HeadraceError) and error.kind in _AWAY)


class SecondaryWorker(Worker):
    """Writes to a secondary sink, and has limited patience with it.

    Args:
        ending: once it is set, nobody waits any more.
    """

    def __init__(self, work: Work, ending: threading.Event | None = None) -> None:
        super().__init__(_hasty(work, _PATIENT * LIMIT_SECONDS))
        self._ending = ending or threading.Event()

    @property
    def is_plain(self) -> bool:
        """Whether the sink is no cluster."""
        return self._work.plan.is_plain

    def probe(self) -> None:
        """Find out whether the sink answers; one that is no cluster is found out by writing.

        Raises:
            HeadraceError: it does not.
        """
        if not self.is_plain:
            self._client.wait_until_ready(LIMIT_SECONDS)

    def _opened(self, options: WriterOptions) -> DocumentWriter:
        plan = self._work.plan
        if not plan.is_plain:
            return ApartWriter(super()._opened(options))
        return ApartWriter(PlainWriter(self._opened_plain, plan.indexes))

    def _throttled(self) -> Delivery:
        return self._delivery if self.is_plain else super()._throttled()

    def _opened_plain(self) -> DocumentWriter:
        kind, options = self._work.plan.kind, self._work.connections.options
        return RelayWriter(**options) if kind == "stdout" else open_sink(kind, options)

    def _attempts(self) -> Retrying:
        end = time.monotonic() + LIMIT_SECONDS

        def is_passing(error: BaseException) -> bool:
            if not isinstance(error, HeadraceError) or error.retry is not Retry.BACK_OFF:
                return False
            return not self._ending.is_set() and not (is_of_a_sink(error) and time.monotonic() > end)

        return Retrying(
            retry=retry_if_exception(is_passing),
            wait=wait_exponential_jitter(multiplier=0.05, max=2.0, jitter=0.05),
            sleep=sleep_using_event(self._ending),
            reraise=True,
        )

    def _keys_in(self, index: str) -> Iterator[Key]:
        """Of a sink that cannot tell: what the cluster that keeps the state holds of the same index."""
        plan = self._work.plan
        if not plan.is_plain:
            return super()._keys_in(index)
        target, width = plan.mirrors[index], len(plan.specs[index].primary_key)
        refresh(self._state, target)
        return (key_of_id(one, width) for one in ids(self._state, target))


class DeferringWorker(SecondaryWorker):
    """The same beside the stream: what the sink does not take is deferred."""

    def __init__(self, work: Work) -> None:
        super().__init__(_hasty(work, LIMIT_SECONDS))
        self._backlog = SecondaryDeferredKeys(self._state, work.plan.slot, work.plan.prefix)
        self._end = 0.0
        self._away = False
        self._next_look = 0.0

    def do(self, task: Task) -> WrittenBatch:
        """Bring every document that changes touch up to date in this sink, or defer it."""
        self._end = time.monotonic() + LIMIT_SECONDS
        return super().do(task)

    def _write(self, portion: Portion, version: Lsn) -> WriteResult:
        if not self._is_away():
            try:
                return super()._write(portion, version)
            except HeadraceError as error:
                if not is_of_a_sink(error):
                    raise
                self._failed(error)
        for index, keys in portion.items():
            self._defer(index, [keys], version)
        return WriteResult()

    def _want_all(self, wanted: Deferral, index: str, version: Lsn) -> None:
        if self._work.plan.is_plain:
            super()._want_all(wanted, index, version)
            return
        if not self._is_away():
            try:
                super()._want_all(wanted, index, version)
            except HeadraceError as error:
                self._failed(error)
            else:
                return
        self._defer(index, [[EVERYTHING]], version)

    def _attempts(self) -> Retrying:
        def is_passing(error: BaseException) -> bool:
            if not isinstance(error, HeadraceError) or error.retry is not Retry.BACK_OFF:
                return False
            return not (is_of_a_sink(error) and time.monotonic() > self._end)

        return patiently(longest=1.0).copy(retry=retry_if_exception(is_passing))

    def _defer(self, index: str, chunks: Sequence[Sequence[Key]], version: Lsn) -> None:
        for attempt in patiently():
            with attempt:
                self._backlog.add(index, [key for keys in chunks for key in keys], version)

    def _failed(self, error: HeadraceError) -> None:
        """From now on nobody waits for this sink, until it has taken something."""
        self._away, self._next_look = True, time.monotonic() + _LOOK_SECONDS
        for attempt in patiently():
            with attempt:
                self._backlog.away(str(error))

    def _is_away(self) -> bool:
        """Whether a task has found that out, of this process or of another."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            with contextlib.suppress(HeadraceError):
                self._away = self._backlog.why_away() is not None
        return self._away


class AllSinks:
    """Applies changes in the cluster that keeps the state and, side by side, in the secondary sinks.

    Args:
        primary: becomes this one's, to be closed.
        work: of the secondary sinks, by name.
    """

    def __init__(self, primary: Worker, work: Mapping[str, Work]) -> None:
        self.primary = primary
        self._secondary = [DeferringWorker(one) for one in work.values()]
        self._thread = ThreadPoolExecutor(1, "headrace-beside")
        self._threads = ThreadPoolExecutor(len(self._secondary), "headrace-sink")

    def apply(self, changes: pa.Table) -> WrittenBatch:
        """As `Worker.apply`; what is counted is what the cluster that keeps the state was given.

        Raises:
            HeadraceError: what no patience cures; of a secondary sink only a document that it refuses and
                that the policy of its index stops at.
        """
        task = Task.of(changes)
        beside = self._secondary
        if _truncates(task.rows):
            # Those that are no clusters ask this one what there was: it must not have been deleted before.
            plain = [one for one in beside if one.is_plain]
            beside = [one for one in beside if not one.is_plain]
            self._all(plain, task)
        others = self._thread.submit(self._all, beside, task)
        try:
            result = self.primary.do(task)
        finally:
            wait([others])
        others.result()
        return result

    def close(self) -> None:
        """Close all."""
        self._thread.shutdown()
        self._threads.shutdown()
        for one in (self.primary, *self._secondary):
            one.close()

    def _all(self, secondary: Sequence[DeferringWorker], task: Task) -> None:
        under_way = [self._threads.submit(one.do, task) for one in secondary]
        wait(under_way)
        for one in under_way:
            one.result()


def _truncates(rows: pa.Table) -> bool:
    return bool(pc.any(pc.equal(rows.column("op"), Op.TRUNCATE.value)).as_py())


def _hasty(work: Work, seconds: float) -> Work:
    """The same work, with requests that do not take longer."""
    sink, writer = work.connections.sink, work.plan.writer
    endpoint = dataclasses.replace(
        sink,
        timeout=min(sink.timeout, seconds),
        connect_timeout=min(sink.connect_timeout, seconds / 2),
    )
    hasty = dataclasses.replace(writer, busy_seconds=min(writer.busy_seconds, seconds / 2))
    return Work(
        dataclasses.replace(work.plan, writer=hasty),
        dataclasses.replace(work.connections, sink=endpoint, state=work.connections.keeps_state),
    )
