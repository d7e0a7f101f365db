"""Which stage stands still, and why: from what is found when it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.stage import Stage
from headrace.postgres.stream_waits import LockWait, StreamWaits
from headrace.status.sinks import SinkActivity, TaskActivity
from headrace.status.stall import StallCause
from headrace.status.stall_diagnosis import StallFacts, diagnose_stall
from support.console_states import SLOT, UNREACHABLE

AWAY = HeadraceError(Kind.CONNECTION, "connection refused", "Start it.")
OTHER_READER = HeadraceError(Kind.SLOT_IN_USE, "it is read by pid 5", "End it.")
BETWEEN = StallFacts(asked_seconds=0.2, slot=SLOT, applied=SLOT.confirmed_flush)
READING = replace(BETWEEN, waits=StreamWaits(silent_seconds=0.5))
PLANNING = StallFacts(asked_seconds=60.0, slot=SLOT)
RESOLVING = replace(PLANNING, planned=True, task=TaskActivity("host:17", Stage.RESOLVE, 0.0))
ASSEMBLING = replace(RESOLVING, task=TaskActivity("host:17", Stage.ASSEMBLE, 0.0))
LOCKED = StreamWaits(locks=(LockWait(99, "profiles", ("pid 7, psql of app, idle in transaction",)),))
COMMITTING = StreamWaits(unacknowledged=("pid 8, psql of app",))


@pytest.mark.parametrize(
    ("facts", "stage", "cause", "said"),
    [
        (replace(BETWEEN, server=AWAY), Stage.CAPTURE, StallCause.SERVER, "connection refused"),
        (replace(ASSEMBLING, server=AWAY), Stage.ASSEMBLE, StallCause.SERVER, "connection refused"),
        (
            replace(BETWEEN, server=AWAY, is_unreachable=True),
            Stage.CAPTURE,
            StallCause.NETWORK,
            "does not answer",
        ),
        (replace(BETWEEN, reader=AWAY), Stage.CAPTURE, StallCause.NETWORK, "connection refused"),
        (replace(BETWEEN, reader=OTHER_READER), Stage.CAPTURE, StallCause.READER, "pid 5"),
        (
            replace(BETWEEN, waits=StreamWaits(silent_seconds=30.0)),
            Stage.CAPTURE,
            StallCause.NETWORK,
            "lost their connection",
        ),
        (
            replace(BETWEEN, waits=StreamWaits(walsender_waits_for="LogicalDecoding", silent_seconds=0.5)),
            Stage.CAPTURE,
            StallCause.SERVER,
            "pid 4711) sends no changes, it waits for LogicalDecoding",
        ),
        (
            replace(READING, slot=replace(SLOT, awaits_standbys=True), applied=SLOT.current + 1),
            Stage.CAPTURE,
            StallCause.SERVER,
            "a standby that must have them first",
        ),
        (
            replace(BETWEEN, slot=replace(SLOT, active_pid=None)),
            Stage.CAPTURE,
            StallCause.SERVER,
            "no walsender",
        ),
        (
            replace(BETWEEN, waits=COMMITTING, is_invisible=True),
            Stage.CAPTURE,
            StallCause.TRANSACTION,
            "pid 8, psql of app",
        ),
        (replace(BETWEEN, is_invisible=True), Stage.CAPTURE, StallCause.TRANSACTION, "cannot see which"),
        (
            replace(READING, is_invisible=True, applied=SLOT.current),
            Stage.CAPTURE,
            StallCause.TRANSACTION,
            "cannot see which",
        ),
        (
            replace(BETWEEN, waits=COMMITTING, reader=HeadraceError(Kind.CONNECTION, "it is not visible")),
            Stage.CAPTURE,
            StallCause.TRANSACTION,
            "pid 8, psql of app",
        ),
        (replace(BETWEEN, waits=COMMITTING, reader=OTHER_READER), Stage.CAPTURE, StallCause.READER, "pid 5"),
        (replace(PLANNING, waits=LOCKED), Stage.PLAN, StallCause.LOCK, "pid 7, psql of app"),
        (PLANNING, Stage.PLAN, StallCause.WORKER, "the process that reads the log does nothing"),
        (replace(PLANNING, planned=True), Stage.RESOLVE, StallCause.WORKER, "each worker process"),
        (replace(RESOLVING, waits=LOCKED), Stage.RESOLVE, StallCause.LOCK, "a lock on profiles"),
        (replace(ASSEMBLING, waits=LOCKED), Stage.ASSEMBLE, StallCause.LOCK, "a lock on profiles"),
        (ASSEMBLING, Stage.ASSEMBLE, StallCause.WORKER, "the worker process host:17 does nothing"),
        (
            replace(ASSEMBLING, sink=SinkActivity("primary", in_flight=1)),
            Stage.WRITE,
            StallCause.CLUSTER,
            "does not answer a request",
        ),
        (
            replace(ASSEMBLING, sink=SinkActivity("primary", error=UNREACHABLE)),
            Stage.WRITE,
            StallCause.CLUSTER,
            "connection refused",
        ),
        (
            replace(ASSEMBLING, waits=LOCKED, sink=SinkActivity("primary", in_flight=1)),
            Stage.ASSEMBLE,
            StallCause.LOCK,
            "profiles",
        ),
        (replace(RESOLVING, cluster=UNREACHABLE), Stage.RESOLVE, StallCause.CLUSTER, "connection refused"),
        (replace(READING, cluster=UNREACHABLE), Stage.CONFIRM, StallCause.CLUSTER, "connection refused"),
        (replace(READING, applied=5, reached=9), Stage.CONFIRM, StallCause.UNKNOWN, "no batch has ended"),
        (replace(READING, applied=SLOT.current), Stage.CONFIRM, StallCause.UNKNOWN, "no batch has ended"),
        (replace(BETWEEN, applied=SLOT.current), Stage.CAPTURE, StallCause.SERVER, "sends no changes"),
    ],
)
def test_the_stage_and_the_likely_cause_are_named(
    facts: StallFacts, stage: Stage, cause: StallCause, said: str
) -> None:
    found = diagnose_stall(facts)
    assert (found.stage, found.cause) == (stage, cause)
    assert said in found.error.cause
    assert found.error.kind is Kind.STALLED
    assert found.remedy.endswith(".")
