"""The phases of a run."""

from __future__ import annotations

import enum


class Phase(enum.StrEnum):
    """What a run is doing."""

    STARTING = "starting"
    STANDBY = "standby"
    BACKFILLING = "backfilling"
    LIVE = "live"
    DEGRADED = "degraded"
    STOPPED = "stopped"
