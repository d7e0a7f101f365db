"""Are the generations of a sink still what was written? Looked at beside the run, now and then.

A cluster that does not answer says nothing: only an answer can say that an index is gone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.errors import HeadraceError
from headrace.pipeline.generations import GenerationManager, Seen
from headrace.sinks.opensearch import GenerationState

LOOK_SECONDS = 5.0


class GenerationMonitor:
    """Looks at the generations of one sink; used from one thread, which never waits for the sink.

    Args:
        seconds: between two looks.
    """

    def __init__(self, seeding: GenerationManager, seconds: float = LOOK_SECONDS) -> None:
        self._seeding = seeding
        self._seconds = seconds
        self._seen = Seen()
        self._next = 0.0
        self._thread: threading.Thread | None = None

    def look(self, written: Collection[GenerationState]) -> None:
        """Begin another look, when it is time for one."""
        if (self._thread is not None and self._thread.is_alive()) or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._seconds
        known = list(written)
        self._thread = threading.Thread(
            target=self._look, args=(known,), name="headrace generations", daemon=True
        )
        self._thread.start()

    def look_now(self, known: Collection[GenerationState]) -> None:
        """Look at these, and wait for the answer."""
        self._look(list(known))

    def lost(self, written: Collection[GenerationState]) -> list[tuple[GenerationState, str]]:
        """Which of these are not what was written any more, and why."""
        lost = self._seen.lost
        return [(one, lost[one.uuid]) for one in written if one.uuid in lost]

    def unserved(self, written: Collection[GenerationState]) -> list[GenerationState]:
        """Those that readers should see and the alias does not lead to; each look tells of one once."""
        seen = self._seen
        if not seen.unserved:
            return []
        self._seen = replace(seen, unserved=frozenset())
        return [one for one in written if one.published and one.uuid in seen.unserved]

    @property
    def faults(self) -> Mapping[str, str]:
        """Why readers do not see the whole of what they should, by index."""
        return self._seen.faults

    def altered(self) -> tuple[str, ...]:
        """The settings that were set right, in words; each is told once."""
        seen = self._seen
        self._seen = replace(seen, altered=())
        return seen.altered

    def _look(self, known: list[GenerationState]) -> None:
        with contextlib.suppress(HeadraceError):  # it is away: then nobody knows
            self._seen = self._seeding.look(known)
