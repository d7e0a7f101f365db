"""What follows where the first steps of a deployment, its state and its slot, cannot be made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.pipeline.controller.actions import Action, CreateSlot, EndRun, SetUp
from headrace.pipeline.controller.desired import Desired
from headrace.pipeline.controller.log import decide_log
from headrace.pipeline.controller.reconcile import reconcile
from headrace.pipeline.controller.statuses import why_waiting
from headrace.pipeline.controller.world import CatalogSeen, Failures, ServerSeen, SlotSeen, Unknown, World
from headrace.postgres.ddl_plan import LockTimeoutError
from headrace.state import PipelineState
from support.settled_world import settled_world

STATE = PipelineState("7", 1, 5, "s", "p", "creating", 1, 50, ())
HOUR = 3600.0


@pytest.mark.parametrize(
    ("kind", "times", "lasted", "ends"),
    [
        (Kind.SLOT_WAIT, 1000, 24 * HOUR, False),
        (Kind.CONNECTION, 1000, 24 * HOUR, False),
        (Kind.SERVER_FAULT, 99, 0.9 * HOUR, False),
        (Kind.SERVER_FAULT, 100, 60.0, True),
        (Kind.SERVER_FAULT, 5, HOUR, True),
        (Kind.PRIVILEGE, 1, 0.0, True),
    ],
)
def test_a_slot_that_cannot_be_made_is_tried_again_unless_that_does_not_pass(
    kind: Kind, times: int, lasted: float, *, ends: bool
) -> None:
    failed = Failures(HeadraceError(kind, "no slot"), times, next_try=lasted, since=0.0)
    world = World(
        now=lasted,
        state=STATE,
        server=ServerSeen("7", 1, 5, Lsn(100)),
        slot=None,
        catalog=CatalogSeen("text", Lsn(40)),
        sinks={},
        failures={CreateSlot.__name__: failed},
    )
    [action] = decide_log(world, Desired({}, ())).actions
    assert type(action) is (EndRun if ends else CreateSlot)


@pytest.mark.parametrize(
    ("error", "then"),
    [
        (HeadraceError(Kind.PRIVILEGE, "must be owner of table users"), EndRun),
        (LockTimeoutError(Kind.DATABASE, "others use the table users"), SetUp),
    ],
)
def test_a_first_start_whose_set_up_is_refused_ends_and_waits_for_who_has_locked_a_table(
    error: HeadraceError, then: type[Action]
) -> None:
    catalog = CatalogSeen("text", Lsn(40), set_up="the publication sends the changes of users")
    world = World(
        now=HOUR,
        state=STATE,
        server=ServerSeen("7", 1, 5, Lsn(100)),
        slot=None,
        catalog=catalog,
        sinks={},
        failures={SetUp.__name__: Failures(error, 40, next_try=HOUR)},
    )
    [action] = decide_log(world, Desired({}, ())).actions
    assert type(action) is then
    assert action.why == (error.cause if then is EndRun else catalog.set_up)


@pytest.mark.parametrize(
    ("kind", "then"), [(Kind.CONTINUITY, [EndRun]), (Kind.SINK_REJECTED, []), (Kind.SINK_UNREACHABLE, [])]
)
def test_a_state_that_nobody_can_read_ends_the_run_and_one_that_is_not_had_is_waited_for(
    kind: Kind, then: list[type[Action]]
) -> None:
    error = HeadraceError(kind, "its format is 2, and this version reads 1")
    world = settled_world((), state=Unknown(error))
    assert [type(action) for action in reconcile(world, Desired({}, ()))] == then
    assert why_waiting(world) is error


def test_who_reads_the_slot_is_named_while_the_run_waits_for_him() -> None:
    state = replace(STATE, phase="following")
    waits = why_waiting(settled_world((), state=state, slot=SlotSeen("s", Lsn(50), reader="pid 7, psql")))
    assert waits is not None
    assert (waits.kind, "pid 7, psql" in waits.cause) == (Kind.SLOT_IN_USE, True)
    assert why_waiting(settled_world((), state=state)) is None


def test_a_start_says_for_whom_its_set_up_waits() -> None:
    locked = LockTimeoutError(Kind.DATABASE, "others use the table users")
    failures = {SetUp.__name__: Failures(locked, 1, next_try=1.0)}
    assert why_waiting(settled_world((), state=STATE, failures=failures)) is locked
    # A run that follows goes on without it, and waits for what must be stored before a query.
    assert why_waiting(settled_world((), state=replace(STATE, phase="following"), failures=failures)) is None
    failures = {"StopFollowing users": Failures(locked, 1, next_try=1.0)}
    assert (
        why_waiting(settled_world((), state=replace(STATE, phase="following"), failures=failures)) is locked
    )
