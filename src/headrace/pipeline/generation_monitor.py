"""Watch, beside the run, whether the generations of a sink are still the ones that were written.

A cluster that does not answer proves nothing: only an answer can say that an index is gone.
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
    """Watches the generations of one sink; used from one thread, which never waits for the sink.

    Args:
        manager: asks the sink.
        seconds: the time between two looks.
    """

    def __init__(self, manager: GenerationManager, seconds: float = LOOK_SECONDS) -> None:
        self._manager = manager
        self._seconds = seconds
        self._seen = Seen()
        self._next = 0.0
        self._thread: threading.Thread | None = None

    def look(self, written: Collection[GenerationState]) -> None:
        """Start another look in a thread, when it is due."""
        if (self._thread is not None and self._thread.is_alive()) or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._seconds
        known = list(written)
        self._thread = threading.Thread(
            target=self._look, args=(known,), name="headrace generations", daemon=True
        )
        self._thread.start()

    def look_now(self, known: Collection[GenerationState]) -> None:
        """Look at these generations and wait for the answer."""
        self._look(list(known))

    def lost(self, written: Collection[GenerationState]) -> list[tuple[GenerationState, str]]:
        """Return the generations that are not the ones that were written, each with the reason."""
        lost = self._seen.lost
        return [(generation, lost[generation.uuid]) for generation in written if generation.uuid in lost]

    def unserved(self, written: Collection[GenerationState]) -> list[GenerationState]:
        """Return the published generations that the readers' alias misses; each look reports one once."""
        seen = self._seen
        if not seen.unserved:
            return []
        self._seen = replace(seen, unserved=frozenset())
        return [
            generation for generation in written if generation.published and generation.uuid in seen.unserved
        ]

    @property
    def faults(self) -> Mapping[str, str]:
        """Why readers do not see all that they should, by index."""
        return self._seen.faults

    def altered(self) -> tuple[str, ...]:
        """Return the settings that were set right, in words; each is reported once."""
        seen = self._seen
        self._seen = replace(seen, altered=())
        return seen.altered

    def _look(self, known: list[GenerationState]) -> None:
        with contextlib.suppress(HeadraceError):  # the sink does not answer; the last look stays
            self._seen = self._manager.look(known)
