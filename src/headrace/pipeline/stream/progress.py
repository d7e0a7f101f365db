"""Save in the meta index how far the documents of a running query are, as the source reports it.

A thread beside the query: while it saves a position, the next batch runs. A file tells the source the saved
position, and it confirms no more to the slot.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.capture.continuity import LogOrigin
from headrace.capture.offset import Offset
from headrace.capture.signals import SignalFiles
from headrace.errors import HeadraceError, retrying, unexpected
from headrace.log_fields import log_fields
from headrace.model.failpoints import reach
from headrace.model.lsn import Lsn
from headrace.state import Counters, StateStore

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.02
_DEFERRED_SECONDS = 1.0
# Between two checks, while no change comes, that the saved state still exists.
_RESTORED_SECONDS = 5.0


@dataclass(eq=False, slots=True)
class ProgressTracker:
    """A thread that saves what a query has applied, from `open` to `close`.

    Args:
        store: the state, which other threads save too.
        signals: the source tells where the last batch ended, and is told how far it may confirm.
        counted: returns the counts of the batches up to an offset that were not returned before, and the
            number of the last one.
        saved: called once their end is saved, with the time when that began and ended (nanoseconds).

    Attributes:
        failure: why nothing is saved any more; None while it is.
    """

    store: StateStore
    signals: SignalFiles
    counted: Callable[[Offset], tuple[int, Counters]]
    saved: Callable[[tuple[int, int]], None]
    failure: HeadraceError | None = field(default=None, init=False)
    _noted: dict[str, Any] | None = field(default=None, init=False)
    _next: float = field(default=0.0, init=False)
    _next_look: float = field(default=0.0, init=False)
    _ending: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headrace noting", daemon=True)

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Save the progress and end the thread; a cluster that does not answer is not asked again.

        Nothing is saved after this, so the progress of the next query may be.
        """
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            ending = False
            while not ending:
                # One more look at the end: a batch may have ended since the last.
                ending = self._ending.wait(_LOOK_SECONDS)
                end = self.signals.batch_end()
                if end is not None and end != self._noted:
                    self._note(end)
                elif (ahead := self._ahead()) is not None and time.monotonic() >= self._next:
                    self._advance(Offset(ahead), Counters())
                elif time.monotonic() >= self._next_look:
                    self._look()
        except Exception as error:  # noqa: BLE001 - the end of a thread: `failure` returns it
            if not self._ending.is_set():  # else the next start repeats what was not saved
                self.failure = unexpected("noting what is applied failed", error)

    def _ahead(self) -> Lsn | None:
        """Return the position up to which changes are durable or deferred, where any are deferred."""
        state = self.store.current
        return None if state is None else state.ahead

    def _look(self) -> None:
        """Check that the saved state is the last one: a cluster restored from a snapshot reports nothing."""
        for attempt in retrying(longest=1.0, ending=self._ending):
            with attempt:
                self.store.check_unchanged()
        self._next_look = time.monotonic() + _RESTORED_SECONDS

    def _note(self, end: dict[str, Any]) -> None:
        """Save that everything up to the end of a batch is durable or deferred."""
        reached = Offset.from_json(end)
        batch, counters = self.counted(reached)
        origin = LogOrigin.from_json(end)
        with log_fields(batch=batch, position=end["lsn"]):
            began = time.time_ns()
            self._advance(reached, counters, None if origin is None else origin.began)
            self._noted = end
            self.saved((began, time.time_ns()))
            _LOG.debug(
                "batch %d is applied up to %s: %d changes, %d documents written, %d deleted, %d refused",
                *(batch, end["lsn"], counters.changes, counters.upserts, counters.deletes, counters.rejected),
            )
        if counters.changes:
            reach("applied")

    def _advance(self, reached: Offset, counters: Counters, began: Lsn | None = None) -> None:
        """Save a position, and look again soon where documents before it are deferred."""
        for attempt in retrying(longest=1.0, ending=self._ending):
            with attempt:
                # After the batch: what its tasks have deferred was stored before it ended.
                state = self.store.advance(reached.lsn, counters, last=reached.last, began=began)
        # After the durable state: the server forgets what is confirmed. A kill in between confirms it later.
        self.signals.set_confirm_limit(state.applied)
        self._next = time.monotonic() + _DEFERRED_SECONDS
        self._next_look = time.monotonic() + _RESTORED_SECONDS
