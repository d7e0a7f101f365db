"""Who writes what a secondary sink did not take when it was due? A thread of the driver, one to a sink.

It takes no place of Spark's, so that a sink which hangs keeps nobody waiting.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Self

from headrace.errors import HeadraceError
from headrace.model import Key, Lsn
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.secondary_writer import SecondaryWorker
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.secondary_deferred_keys import EVERYTHING, Owed, SecondaryDeferredKeys

_AT_ONCE = 2_000
_LOOK_SECONDS = 0.5
_LONGEST_PAUSE = 30.0
_CALM_SECONDS = 60.0
_END_SECONDS = 15.0

Tell = Callable[[int, str | None], None]
"""Takes how many documents are deferred, and why the sink counts as away; None where it does not."""


class CatchUp:
    """Works off the backlog of one sink, for as long as this is entered.

    Args:
        work: of the sink.
        tell: is told how things stand, about twice a second.
        lost: is called where somebody has deleted what was deferred.
    """

    def __init__(self, work: Work, tell: Tell, lost: Callable[[], None]) -> None:
        self._work = work
        self._tell = tell
        self._lost = lost
        self._ending = threading.Event()
        self._pause = _LOOK_SECONDS
        self._failed_at = 0.0
        self._thread = threading.Thread(target=self._work_off, name="headrace catching up", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(_END_SECONDS)

    def _work_off(self) -> None:
        plan = self._work.plan
        with (
            contextlib.closing(Client(self._work.connections.keeps_state)) as client,
            contextlib.closing(SecondaryWorker(self._work, self._ending)) as worker,
        ):
            backlog = SecondaryDeferredKeys(client, plan.slot, plan.prefix)
            while not self._ending.wait(self._pause):
                try:
                    self._once(backlog, worker)
                except HeadraceError as error:
                    self._failed(backlog, error)

    def _once(self, backlog: SecondaryDeferredKeys, worker: SecondaryWorker) -> None:
        """All that is deferred now."""
        generations = self._work.plan.specs.keys()
        if backlog.is_lost():
            self._lost()
        why = backlog.why_away()
        self._tell(backlog.count(generations), why)
        while not self._ending.is_set() and (owed := backlog.oldest(_AT_ONCE)):
            wrote = self._write(worker, owed)
            backlog.done(owed)
            if wrote and why is not None:
                backlog.back()
                why = None
            self._tell(backlog.count(generations), why)
        if why is not None:
            worker.probe()
            backlog.back()
            self._tell(0, None)
        if time.monotonic() - self._failed_at > _CALM_SECONDS:
            self._pause = _LOOK_SECONDS

    def _write(self, worker: SecondaryWorker, owed: list[Owed]) -> bool:
        """All as of the newest position among them: whoever reads now sees what is before it.

        What is of a generation that has gone is passed over. Returns whether anything was written.
        """
        version: Lsn = max(one.version for one in owed)
        known = self._work.plan.specs
        keys: dict[str, list[Key]] = {}
        for one in owed:
            if one.generation in known:
                keys.setdefault(one.generation, []).append(one.key)
        for generation, some in keys.items():
            if EVERYTHING in some:
                worker.renew(generation, version)
            if single := [key for key in some if key != EVERYTHING]:
                worker.mend(generation, single, version)
        return bool(keys)

    def _failed(self, backlog: SecondaryDeferredKeys, error: HeadraceError) -> None:
        """Try again later, and later still."""
        self._failed_at = time.monotonic()
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        with contextlib.suppress(HeadraceError):
            self._tell(backlog.count(self._work.plan.specs.keys()), str(error))
