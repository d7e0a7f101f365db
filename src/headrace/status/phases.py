"""Define the phases of a run and the events that change them.

All transitions stand in one table. An event that it does not list changes nothing, so a late report (a batch
that ends while the run stops) is harmless. `stopped` is final.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self


class Phase(enum.StrEnum):
    """What a run is doing."""

    STARTING = "starting"
    STANDBY = "standby"
    BACKFILLING = "backfilling"
    LIVE = "live"
    DEGRADED = "degraded"
    STOPPED = "stopped"


class Event(enum.Enum):
    """What can happen to a run."""

    STANDING_BY = "standing by"
    """Another process runs this deployment; this one waits to take over."""
    TAKING_OVER = "taking over"
    """The other process has ended; this one starts."""
    BACKFILLING = "backfilling"
    """An index is being backfilled."""
    FOLLOWING = "following"
    """Every index is backfilled and the stream is up to date."""
    FAILED = "failed"
    """A retryable error; the work is tried again."""
    RECOVERED = "recovered"
    """The failed work has succeeded."""
    STOPPED = "stopped"
    """The run has ended, on request or by an error."""


_BACK = None
"""Stands for the phase that the failure interrupted."""

TRANSITIONS: Mapping[tuple[Phase, Event], Phase | None] = {
    (Phase.STARTING, Event.BACKFILLING): Phase.BACKFILLING,
    (Phase.STARTING, Event.FOLLOWING): Phase.LIVE,
    (Phase.STARTING, Event.FAILED): Phase.DEGRADED,
    (Phase.STARTING, Event.STOPPED): Phase.STOPPED,
    (Phase.STARTING, Event.STANDING_BY): Phase.STANDBY,
    (Phase.STANDBY, Event.TAKING_OVER): Phase.STARTING,
    (Phase.STANDBY, Event.FAILED): Phase.DEGRADED,
    (Phase.STANDBY, Event.STOPPED): Phase.STOPPED,
    (Phase.BACKFILLING, Event.FOLLOWING): Phase.LIVE,
    (Phase.BACKFILLING, Event.FAILED): Phase.DEGRADED,
    (Phase.BACKFILLING, Event.STOPPED): Phase.STOPPED,
    (Phase.LIVE, Event.BACKFILLING): Phase.BACKFILLING,
    (Phase.LIVE, Event.FAILED): Phase.DEGRADED,
    (Phase.LIVE, Event.STOPPED): Phase.STOPPED,
    (Phase.DEGRADED, Event.STANDING_BY): Phase.STANDBY,
    (Phase.DEGRADED, Event.BACKFILLING): Phase.BACKFILLING,
    (Phase.DEGRADED, Event.FOLLOWING): Phase.LIVE,
    (Phase.DEGRADED, Event.RECOVERED): _BACK,
    (Phase.DEGRADED, Event.STOPPED): Phase.STOPPED,
}


@dataclass(frozen=True, slots=True)
class State:
    """The phase, and the phase to go back to when the failure ends."""

    phase: Phase = Phase.STARTING
    interrupted: Phase = Phase.STARTING

    def after(self, event: Event) -> Self:
        """Return the state that `event` leads to."""
        if (self.phase, event) not in TRANSITIONS:
            return self
        phase = TRANSITIONS[self.phase, event] or self.interrupted
        interrupted = self.phase if phase is Phase.DEGRADED else phase
        return replace(self, phase=phase, interrupted=interrupted)
