"""What follows where the first steps of a deployment, its state and its slot, cannot be made."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.pipeline.controller.actions import Action, CreateSlot, EndRun, SetUp
from headrace.pipeline.controller.desired import Desired
from headrace.pipeline.controller.log import decide_log
from headrace.pipeline.controller.world import CatalogSeen, Failures, ServerSeen, World
from headrace.postgres.ddl_plan import LockTimeoutError
from headrace.state import PipelineState

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
