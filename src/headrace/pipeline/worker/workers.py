"""Keep the workers of this process, one for each sink, open for later tasks.

In the stream, the workers of all sinks apply the same changes in parallel (decision 0061).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import pyarrow.compute as pc

from headrace.model.changes import Op
from headrace.pipeline.worker import failure_policy
from headrace.pipeline.worker.failure_policy import DeferDocuments, GiveUpSoon
from headrace.pipeline.worker.plan import PLAN_OPTION, SECRET_OPTION, SINK_OPTION, Work
from headrace.pipeline.worker.task import Task
from headrace.pipeline.worker.worker import Worker, WrittenBatch
from headrace.state.sink_notes import SecondarySinkNotes

# Factor of the request timeout where no batch waits.
_UNHURRIED_FACTOR = 4


class AllSinks:
    """Applies changes to the primary sink and, in parallel, to the secondary sinks.

    Args:
        primary: the worker of the primary sink, which `close` closes.
        work: the work of the secondary sinks, by name.
    """

    def __init__(self, primary: Worker, work: Mapping[str, Work]) -> None:
        self.primary = primary
        self._secondary = [_open_deferring(sink_work) for sink_work in work.values()]
        # One for each sink: one that is slow must not delay another (decision 0061).
        self._threads = ThreadPoolExecutor(len(self._secondary), "headrace-sink")

    def apply(self, task: Task) -> WrittenBatch:
        """Apply a task's changes to all sinks; the counts are those of the primary sink, the spans of all.

        Raises:
            HeadraceError: an error that is not retryable; from a secondary sink only a refused document of an
                index with the policy to stop.
        """
        others = [(worker, self._threads.submit(worker.apply, task)) for worker in self._secondary]
        try:
            if pc.any(pc.equal(task.rows.column("op"), Op.TRUNCATE.value)).as_py():
                # Plain sinks read existing keys from the primary cluster, so they end before it deletes them.
                for worker, written in others:
                    if worker.work.plan.is_plain:
                        written.result()
            result = self.primary.apply(task)
        finally:
            # Also after an error: a task must not end while its threads still write.
            wait([written for _, written in others])
        spans = [span for _, written in others for span in written.result().spans]
        return dataclasses.replace(result, spans=(*result.spans, *spans))

    def close(self) -> None:
        """Close all workers."""
        self._threads.shutdown()
        for worker in (self.primary, *self._secondary):
            worker.close()


@dataclass(slots=True)
class _Open:
    """A worker of this process, with those of the secondary sinks once the stream has asked for them."""

    options: tuple[str, str]
    worker: Worker
    all_sinks: AllSinks | None = None


# Spark uses a Python process for many tasks: connections stay open until a task has another plan.
_OPEN: dict[str, _Open] = {}


def _open(options: Mapping[str, str]) -> _Open:
    """Return this process's worker for the options of `Work.to_options`; close the sink's former one."""
    wanted, sink = (options[PLAN_OPTION], options[SECRET_OPTION]), options.get(SINK_OPTION, "")
    if sink in _OPEN and _OPEN[sink].options != wanted:
        former = _OPEN.pop(sink)
        (former.all_sinks or former.worker).close()
    if sink not in _OPEN:
        _OPEN[sink] = _Open(wanted, open_worker(Work.from_options(options)))
    return _OPEN[sink]


def worker_of(options: Mapping[str, str]) -> Worker:
    """Return what writes to the one sink of the options, for jobs beside the stream."""
    return _open(options).worker


def open_worker(work: Work, ending: threading.Event | None = None) -> Worker:
    """Create the worker for one sink, primary or secondary; `ending` ends its retries."""
    if not work.plan.key.sink:
        return Worker(work, ending=ending)
    unhurried = _with_timeout(work, _UNHURRIED_FACTOR * failure_policy.LIMIT_SECONDS)
    return Worker(unhurried, lambda _: GiveUpSoon(ending), ending)


def _open_deferring(work: Work) -> Worker:
    """Create the worker for a secondary sink beside the stream."""
    return Worker(
        _with_timeout(work, failure_policy.LIMIT_SECONDS),
        lambda state: DeferDocuments(SecondarySinkNotes(state, work.plan.key)),
    )


def applier_of(options: Mapping[str, str]) -> Worker | AllSinks:
    """Return what applies changes to all sinks, for the stream."""
    known = _open(options)
    if known.all_sinks is None and known.worker.work.written:
        known.all_sinks = AllSinks(known.worker, known.worker.work.written)
    return known.all_sinks or known.worker


def _with_timeout(work: Work, seconds: float) -> Work:
    """Return the same work, with shorter request timeouts."""
    endpoint, writer = work.endpoints.sink.with_timeout(seconds), work.plan.writer
    writer_options = dataclasses.replace(writer, busy_seconds=min(writer.busy_seconds, seconds / 2))
    return Work(
        dataclasses.replace(work.plan, writer=writer_options),
        dataclasses.replace(work.endpoints, sink=endpoint, state=work.endpoints.keeps_state),
    )
