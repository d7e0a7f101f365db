"""Write the documents of a small batch in the process that reads the log, before Spark plans the batch.

Spark takes 40 to 90 ms to bring a planned batch to a task, which writes a small batch in 10 to 20. So the
reader writes it at once, and the batch only reports what was done. It is tried once and for a moment; what
does not succeed is left to the batch's task, which writes the same documents again (decision 0097).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue

from tenacity import Retrying, stop_after_attempt

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import Key
from headrace.model.lsn import Lsn
from headrace.pipeline.worker.failure_policy import FailurePolicy
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.task import Task, plan_tasks
from headrace.pipeline.worker.worker import Worker, WrittenBatch

_LOG = logging.getLogger(__name__)

# A batch of more changes is left to its tasks.
MOST_CHANGES = 200
_MOST_DOCUMENTS = 500
_PATIENCE_SECONDS = 0.3
# After a batch that was not written in time, later ones are left to their tasks for so long.
_REST_SECONDS = 10.0
# A request may take so long: while one is under way no plan is taken, and the process does not end.
_REQUEST_SECONDS = 5.0
# What is still being written after so long hangs, as in a transform that waits for a dead connection.
_HANGS_SECONDS = 60.0


class _LeftToTask(Exception):  # noqa: N818 - its words say why
    pass


class _TryOnce(FailurePolicy):
    """The policy of early writes: the first failure leaves the batch to its task."""

    def attempts(self) -> Retrying:
        """Return one attempt."""
        return Retrying(stop=stop_after_attempt(1), reraise=True)

    def defer(self, generation: str, batches: Iterable[Sequence[Key]], version: Lsn) -> None:  # noqa: ARG002
        """Defer nothing.

        Raises:
            _LeftToTask: always.
        """
        raise _LeftToTask("it touches too many documents")


class EarlyWriter:
    """Writes small batches in a thread of its own, one after the other; used from one thread.

    The process ends without waiting for the thread: a transform or a server may hold it for ever.

    Args:
        options: those of the query's `Work`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        work = Work.from_options(options)
        self._work, self._has_quarantine = _in_haste(work), bool(work.plan.quarantine)
        self._worker: Worker | None = None
        self._tasks: SimpleQueue[tuple[Task, Future[WrittenBatch]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="headrace early", daemon=True).start()
        [nothing] = plan_tasks([], 0, max_tasks=1)
        self._running = self._submit(nothing)  # opens the connections
        self._rests_until = 0.0

    @property
    def is_writing(self) -> bool:
        """Whether a batch that was not written in time is still being written, or connections are opened."""
        return not self._running.done()

    def check_alive(self) -> None:
        """Check that what waits for the end of a write will not wait for ever.

        Raises:
            HeadraceError: WORKER_LOST: the write hangs, and only the end of this process ends it.
        """
        if self.is_writing and time.monotonic() - self._began > _HANGS_SECONDS:
            raise HeadraceError(
                Kind.WORKER_LOST,
                f"a new plan waits for a small batch that is not written after {_HANGS_SECONDS:.0f} s",
                "If it comes again, see what a transform waits for: its calls need timeouts.",
            )

    def write(self, task: Task) -> WrittenBatch | None:
        """Write the documents of a batch; None where its task has to do it."""
        if not 0 < task.rows.num_rows <= MOST_CHANGES:
            return None
        # Behind a batch that hangs this one would only wait: its task is sooner.
        if self.is_writing or time.monotonic() < self._rests_until:
            return None
        self._running = self._submit(task)
        try:
            return self._running.result(_PATIENCE_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task meets it again and reports it
            self._rests_until = time.monotonic() + _REST_SECONDS
            _LOG.debug("a batch is left to its task: %r", error)
            return None

    def close(self) -> None:
        """Close the connections, once the last batch is written."""
        self._tasks.put(None)

    def _submit(self, task: Task) -> Future[WrittenBatch]:
        written: Future[WrittenBatch] = Future()
        self._began = time.monotonic()
        self._tasks.put((task, written))
        return written

    def _run(self) -> None:
        while (item := self._tasks.get()) is not None:
            task, written = item
            try:
                written.set_result(self._apply(task))
            except BaseException as error:  # noqa: BLE001 - a transform may end its thread, not the process
                written.set_exception(RuntimeError(repr(error)))
            # The loop waits for the next batch: without this the rows of the last one would stay in memory.
            del item, task, written
        if self._worker is not None:
            self._worker.close()

    def _apply(self, task: Task) -> WrittenBatch:
        if self._worker is None:
            self._worker = Worker(self._work, lambda _: _TryOnce())
        written = self._worker.apply(task)
        if written.result.rejected:
            raise _LeftToTask("it has refused documents, which its task reports")
        # Asked after the write, so that no reader waits for the answer.
        if self._has_quarantine and task.rows.num_rows and self._worker.sink.delivery.has_quarantined():
            raise _LeftToTask("documents are in quarantine: its task takes out what it writes")
        return written


def _in_haste(work: Work) -> Work:
    """Return the same work for what is tried once: with short timeouts, nothing large, and no reports.

    A failure that nobody waits for would be shown as the sink's, for as long as no early write succeeds. A
    refused document fails too: entries of the quarantine have no versions, a late one could replace a newer.
    """
    sink = work.endpoints.sink.with_timeout(_REQUEST_SECONDS)
    busy_seconds = min(work.plan.writer.busy_seconds, _PATIENCE_SECONDS)
    writer = replace(work.plan.writer, busy_seconds=busy_seconds, report=None)
    plan = replace(work.plan, large_change=_MOST_DOCUMENTS, writer=writer, quarantine={})
    return replace(work, plan=plan, endpoints=replace(work.endpoints, sink=sink))
