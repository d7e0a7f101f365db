"""Write the deferred documents of a secondary sink, in one thread of the driver for each sink.

The thread needs no Spark task, so a sink that hangs delays nothing else.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Self

from headrace.errors import HeadraceError
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.worker import Worker
from headrace.pipeline.worker.workers import open_worker
from headrace.sinks.opensearch import Client, DeferredKeys
from headrace.sinks.opensearch.secondary_sinks import SecondarySinkNotes

_AT_ONCE = 2_000
_LOOK_SECONDS = 0.5
_LONGEST_PAUSE = 30.0
_CALM_SECONDS = 60.0
_END_SECONDS = 15.0

OnProgress = Callable[[int, str | None], None]
"""Takes the number of deferred documents, and why the sink is away or None."""


class CatchUp:
    """Writes the deferred documents of one sink while it is entered.

    Args:
        work: the work of the sink.
        on_progress: called about twice a second with the progress.
        on_lost: called where the index of deferred keys was deleted.
    """

    def __init__(self, work: Work, on_progress: OnProgress, on_lost: Callable[[], None]) -> None:
        self._work = work
        self._on_progress = on_progress
        self._on_lost = on_lost
        self._ending = threading.Event()
        self._pause = _LOOK_SECONDS
        self._failed_at = 0.0
        self._thread = threading.Thread(target=self._run, name="headrace catching up", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        plan = self._work.plan
        with (
            contextlib.closing(Client(self._work.endpoints.keeps_state)) as client,
            contextlib.closing(open_worker(self._work, self._ending)) as worker,
        ):
            notes = SecondarySinkNotes(client, plan.slot, plan.prefix)
            while not self._ending.wait(self._pause):
                try:
                    self._write_all(notes, worker)
                except HeadraceError as error:
                    self._pause_longer(notes.deferred, error)

    def _write_all(self, notes: SecondarySinkNotes, worker: Worker) -> None:
        """Write all that is deferred now."""
        generations, deferred = self._work.plan.specs.keys(), notes.deferred
        if notes.has_lost_keys():
            self._on_lost()
        why = notes.why_away()
        self._on_progress(deferred.count(generations), why)
        while not self._ending.is_set() and (batches := deferred.oldest(_AT_ONCE)):
            worker.write_deferred(batches)
            deferred.done(batches)
            if why is not None and any(batch.generation in generations for batch in batches):
                notes.note_available()
                why = None
            self._on_progress(deferred.count(generations), why)
        if why is not None:
            worker.probe()
            notes.note_available()
            self._on_progress(0, None)
        if time.monotonic() - self._failed_at > _CALM_SECONDS:
            self._pause = _LOOK_SECONDS

    def _pause_longer(self, deferred: DeferredKeys, error: HeadraceError) -> None:
        """Report the error, and wait longer before the next attempt."""
        self._failed_at = time.monotonic()
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        with contextlib.suppress(HeadraceError):
            self._on_progress(deferred.count(self._work.plan.specs.keys()), str(error))
