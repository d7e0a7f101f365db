"""The phases of a run, and which phase follows on which outcome."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class RunPhase(enum.Enum):
    """What a run does; the board shows the phase `FOLLOWING` as backfilling, live or degraded."""

    STANDING_BY = "standing by"
    """Start Spark; wait until no other process runs this deployment."""
    STARTING = "starting"
    """Take the slot's lock, inspect both servers, take the lease."""
    SETTING_UP = "setting up"
    """Start Spark; create publication, slot and generations, or go on from those that exist."""
    FOLLOWING = "following"
    """One query runs, with the backfill of incomplete generations beside it."""
    CHANGING_PLAN = "changing the plan"
    """No query runs: carry out control requests, note partitions, give up what failed."""
    DROPPING_UNREAD = "dropping what nobody reads"
    """No query runs: give up generations without readers that the query's failure concerns."""
    RELOADING = "reloading"
    """No query runs: set up again with changed files, which were checked beside the query."""
    RETRYING = "retrying"
    """The query has failed: wait, check that the log can still be followed."""
    RESTARTING = "restarting"
    """A table was altered: set up again, with the same Spark session."""
    RESEEDING = "reseeding"
    """Changes are lost: set up again, with a new slot and new generations."""
    STOPPING = "stopping"
    """Confirm the last position."""
    STOPPED = "stopped"


class PhaseOutcome(enum.Enum):
    """How a phase can end; an error without a place in the table ends the run."""

    DONE = "done"
    STOP = "stop was requested"
    IN_USE = "another process runs this deployment"
    CHANGE = "something must be done that a running query excludes"
    RELOAD = "changed files wait to be taken up"
    FAILED = "the query failed"
    UNREAD_FAILED = "the query failed by a generation that nobody reads, or perhaps by one"
    ALTERED = "a table was altered"
    GAP = "changes are lost"


_SET_UP_AGAIN = {PhaseOutcome.ALTERED: RunPhase.RESTARTING, PhaseOutcome.GAP: RunPhase.RESEEDING}

TRANSITIONS: Mapping[RunPhase, Mapping[PhaseOutcome, RunPhase]] = {
    RunPhase.STANDING_BY: {PhaseOutcome.DONE: RunPhase.STARTING, PhaseOutcome.STOP: RunPhase.STOPPED},
    RunPhase.STARTING: {PhaseOutcome.DONE: RunPhase.SETTING_UP, PhaseOutcome.IN_USE: RunPhase.STANDING_BY},
    RunPhase.SETTING_UP: {PhaseOutcome.DONE: RunPhase.FOLLOWING},
    RunPhase.FOLLOWING: {
        PhaseOutcome.STOP: RunPhase.STOPPING,
        PhaseOutcome.CHANGE: RunPhase.CHANGING_PLAN,
        PhaseOutcome.RELOAD: RunPhase.RELOADING,
        PhaseOutcome.FAILED: RunPhase.RETRYING,
        PhaseOutcome.UNREAD_FAILED: RunPhase.DROPPING_UNREAD,
        **_SET_UP_AGAIN,
    },
    RunPhase.CHANGING_PLAN: {PhaseOutcome.DONE: RunPhase.FOLLOWING, **_SET_UP_AGAIN},
    RunPhase.RELOADING: {PhaseOutcome.DONE: RunPhase.FOLLOWING, **_SET_UP_AGAIN},
    RunPhase.DROPPING_UNREAD: {PhaseOutcome.DONE: RunPhase.FOLLOWING, **_SET_UP_AGAIN},
    RunPhase.RETRYING: {
        PhaseOutcome.DONE: RunPhase.FOLLOWING,
        PhaseOutcome.STOP: RunPhase.STOPPING,
        **_SET_UP_AGAIN,
    },
    RunPhase.RESTARTING: {PhaseOutcome.DONE: RunPhase.FOLLOWING},
    RunPhase.RESEEDING: {PhaseOutcome.DONE: RunPhase.FOLLOWING},
    RunPhase.STOPPING: {PhaseOutcome.DONE: RunPhase.STOPPED},
}
