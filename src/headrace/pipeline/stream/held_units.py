"""Remember of which generations nothing deferred is written for now, because they fail by themselves."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from headrace.errors import HeadraceError, Kind, Retry
from headrace.state import KeyBatch

_LOCKED_SECONDS = 5.0


class HeldUnits:
    """The generations of one sink that fail by themselves; for several threads."""

    def __init__(self) -> None:
        # By id; replaced and never changed: other threads read it.
        self._held: Mapping[str, tuple[HeadraceError, float]] = {}

    @property
    def errors(self) -> dict[str, HeadraceError]:
        """Why each is held, by its id. The controller gives up what no waiting mends."""
        return {id_: error for id_, (error, _) in self._held.items()}

    def hold(self, error: HeadraceError, units: Collection[str]) -> None:
        """Hold what an error names: for some seconds where it is locked, else until another plan.

        Args:
            error: met while documents of the units were written.
            units: the ids of the generations that it may concern.

        Raises:
            HeadraceError: the error itself, where it names none of them or concerns more than that.
        """
        if error.retry is Retry.BACK_OFF or error.units.isdisjoint(units):
            raise error
        seconds = _LOCKED_SECONDS if error.kind is Kind.LOCKED else float("inf")
        self._held = {**self._held, **dict.fromkeys(error.units, (error, time.monotonic() + seconds))}

    def among(self, units: Mapping[str, str]) -> list[str]:
        """Return the generations, of these by their ids, that are held now."""
        now = time.monotonic()
        return [units[id_] for id_, (_, until) in self._held.items() if until > now and id_ in units]

    def note_written(self, batches: Iterable[KeyBatch], units: Mapping[str, str]) -> None:
        """Hold no longer the generations of batches that are written: what they failed by has passed."""
        written = {batch.generation for batch in batches}
        self._held = {id_: why for id_, why in self._held.items() if units.get(id_) not in written}

    def release(self) -> None:
        """Hold nothing any more: everything deferred is written, or there is another plan."""
        self._held = {}
