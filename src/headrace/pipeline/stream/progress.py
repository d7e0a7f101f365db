"""How far are the documents of a running query? What Spark's own log calls done is noted in the meta index.

Beside the query: while a position is written, the next batch is under way. The source confirms to the slot no
more than what is noted; it is told by a file.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tenacity import Retrying

from headrace.capture.continuity import LogOrigin
from headrace.capture.offset import Offset
from headrace.capture.signals import ConfirmLimit
from headrace.errors import HeadraceError, patiently, unexpected
from headrace.model import Lsn
from headrace.model.failpoints import reach
from headrace.pipeline.worker.plan import Work
from headrace.sinks.opensearch import Client, Counters, DeferredKeys, MetaIndex
from headrace.spark.query_commits import CommitLog

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.02
_PARKED_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
_RESTORED_SECONDS = 5.0
"""How often it is looked in a quiet time whether what was noted is still there."""


class ProgressTracker:
    """A thread that notes what a query has applied, from `open` to `close`.

    Args:
        checkpoint: of the query.
        held: where the source reads how far it may confirm.
        counted: what was done by the batches up to a number, and not told before.
    """

    def __init__(
        self, work: Work, checkpoint: Path, held: ConfirmLimit, counted: Callable[[int], Counters]
    ) -> None:
        sink, plan = work.connections.keeps_state, work.plan
        self._client = Client(replace(sink, timeout=min(sink.timeout, _ANSWER_SECONDS)), read_attempts=1)
        self._meta = MetaIndex(self._client, plan.slot, plan.prefix)
        self._deferred = DeferredKeys(self._client, plan.slot, plan.prefix)
        self._commits = CommitLog(checkpoint)
        self._held = held
        self._counted = counted
        self._noted = -1
        self._waiting: Lsn | None = None
        self._next = self._next_look = 0.0
        self._failure: HeadraceError | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._note_all, name="headrace noting", daemon=True)

    def open(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Note what is done by now, and end: a cluster that does not answer is not asked again.

        Behind it nothing is written any more, so that the next query may be noted.
        """
        self._ending.set()
        self._thread.join()
        self._client.close()

    def failure(self) -> HeadraceError | None:
        """Why nothing is noted any more; None while it is."""
        return self._failure

    def _note_all(self) -> None:
        try:
            for attempt in self._patiently():
                with attempt:
                    found = self._meta.load()
            self._waiting = None if found is None else found.ahead
            ending = False
            while not ending:
                ending = self._ending.wait(_LOOK_SECONDS)
                done = self._commits.last()
                if done > self._noted:
                    self._note(done)
                elif self._waiting is not None and time.monotonic() >= self._next:
                    self._advance(Offset(self._waiting), Counters())
                elif time.monotonic() >= self._next_look:
                    self._look()
        except HeadraceError as error:
            if not self._ending.is_set():  # else whoever starts next repeats what was not noted
                self._failure = error
        except Exception as error:  # noqa: BLE001 - a thread's last words: whoever asks next gets them
            self._failure = unexpected("noting what is applied failed", error)

    def _look(self) -> None:
        """A cluster that is restored from a snapshot says nothing: its state is an earlier one then."""
        for attempt in self._patiently():
            with attempt:
                self._meta.look()
        self._next_look = time.monotonic() + _RESTORED_SECONDS

    def _patiently(self) -> Retrying:
        return patiently(longest=1.0, ending=self._ending)

    def _note(self, batch: int) -> None:
        """Everything up to the end of a batch is durable or deferred."""
        try:
            end = self._commits.end_of(batch)
        except FileNotFoundError:
            return  # Spark has forgotten it: there are later ones
        counters = self._counted(batch)
        origin = LogOrigin.from_json(end)
        self._advance(Offset.from_json(end), counters, None if origin is None else origin.began)
        self._noted = batch
        _LOG.debug(
            "batch %d is applied up to %s: %d changes, %d documents written, %d deleted, %d refused",
            *(batch, end["lsn"], counters.changes, counters.upserts, counters.deletes, counters.rejected),
        )
        if counters.changes:
            reach("applied")

    def _advance(self, reached: Offset, counters: Counters, began: Lsn | None = None) -> None:
        """Note a position, and look at it again soon where documents before it are deferred."""
        for attempt in self._patiently():
            with attempt:
                state = self._meta.advance(
                    reached.lsn,
                    counters,
                    deferred=self._deferred.count() > 0,
                    last=reached.last,
                    began=began,
                )
        self._held.set(state.applied)
        self._waiting, self._next = state.ahead, time.monotonic() + _PARKED_SECONDS
        self._next_look = time.monotonic() + _RESTORED_SECONDS
