"""Write the documents of a small batch in the process that reads the log, before Spark plans the batch.

Spark takes 40 to 90 ms to bring a planned batch to a task, and a small batch is written in 5. So the reader
writes it at once, and the batch only reports what was done. It is tried once and for a moment; what does not
succeed is left to the batch's task, which writes the same documents again (decision 0097).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from threading import Thread

from tenacity import Retrying, stop_after_attempt

from headrace.errors import HeadraceError
from headrace.model.changes import Key
from headrace.model.lsn import Lsn
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.task import Task, plan_tasks
from headrace.pipeline.worker.worker import Worker, WrittenBatch
from headrace.sinks.opensearch import Client

_LOG = logging.getLogger(__name__)

MOST_CHANGES = 200
"""A batch of more changes is left to its tasks."""
_MOST_DOCUMENTS = 500
_PATIENCE_SECONDS = 0.3
_REST_SECONDS = 10.0
"""After a batch that was not written in time, later ones are left to their tasks for so long."""


class _TooManyDocuments(Exception):  # noqa: N818 - says why a batch is left to its task
    pass


class _TryOnce:
    """The policy of early writes: the first failure leaves the batch to its task."""

    def begin_batch(self) -> None:
        """Do nothing."""

    def attempts(self) -> Retrying:
        """Return one attempt."""
        return Retrying(stop=stop_after_attempt(1), reraise=True)

    def is_away(self) -> bool:
        """Return False."""
        return False

    def note_failure(self, error: HeadraceError) -> None:
        """Raise the error."""
        raise error

    def defer(self, generation: str, batches: Iterable[Sequence[Key]], version: Lsn) -> None:  # noqa: ARG002
        """Defer nothing.

        Raises:
            _TooManyDocuments: always.
        """
        raise _TooManyDocuments


class EarlyWriter:
    """Writes small batches in threads, one after the other; used from one thread.

    Args:
        options: those of the query's `Work`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        work = Work.from_options(options)
        self._work = replace(work, plan=replace(work.plan, large_change=_MOST_DOCUMENTS))
        self._worker: Worker | None = None
        [nothing] = plan_tasks([], 0, 0, max_tasks=1)
        self._running = self._start(nothing)  # opens the connections
        self._rests_until = 0.0

    @property
    def is_writing(self) -> bool:
        """Whether a batch that was not written in time is still being written, or connections are opened."""
        return not self._running.done()

    def write(self, task: Task) -> WrittenBatch | None:
        """Write the documents of a batch; None where its task has to do it."""
        if not 0 < task.rows.num_rows <= MOST_CHANGES:
            return None
        if self.is_writing or time.monotonic() < self._rests_until:
            return None
        self._running = self._start(task)
        try:
            return self._running.result(_PATIENCE_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task meets it again and reports it
            self._rests_until = time.monotonic() + _REST_SECONDS
            _LOG.debug("a batch is left to its task: %r", error)
            return None

    def close(self) -> None:
        """Close the connections, once the last batch is written."""
        self._running.add_done_callback(lambda _: self._close())

    def _start(self, task: Task) -> Future[WrittenBatch]:
        """Write a batch in a thread that keeps no process from its end, also while the sink hangs."""
        written: Future[WrittenBatch] = Future()

        def run() -> None:
            try:
                written.set_result(self._apply(task))
            except BaseException as error:  # noqa: BLE001 - `result` raises it
                written.set_exception(error)

        Thread(target=run, name="headrace early", daemon=True).start()
        return written

    def _apply(self, task: Task) -> WrittenBatch:
        if self._worker is None:
            self._worker = Worker(self._work, _open_policy)
        return self._worker.apply(task)

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()


def _open_policy(_state: Client) -> _TryOnce:
    return _TryOnce()
