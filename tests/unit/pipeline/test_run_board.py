"""What users are told of the steps of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.controller.actions import (
    Action,
    BeginAgain,
    CloseQuery,
    CreateGeneration,
    RebuildCause,
    Serve,
    SetUp,
    StopFollowing,
)
from headrace.pipeline.controller.desired import Definition, Desired
from headrace.pipeline.controller.world import QuerySeen
from headrace.pipeline.run_board import RunBoard
from headrace.reporter import SilentReporter
from headrace.state import GenerationState, PipelineState, Unit
from headrace.status.board import StatusBoard
from support.settled_world import settled_world

UNIT = Unit("", "users")
SERVED = GenerationState("users", "users_aa_1", "1", "aa", backfilled_at=10, joined=10, published=True)
QUERY = QuerySeen(frozenset({SERVED.id}), frozenset({SERVED.id}))
REFUSED = HeadraceError(Kind.PRIVILEGE, "must be owner of table users", "Let its owner run it.")


class Warnings(SilentReporter):
    """Keeps the warnings that users are told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def warning(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def told() -> Warnings:
    return Warnings()


@pytest.fixture
def shown(told: Warnings) -> RunBoard:
    return RunBoard(StatusBoard(["users"], reporter=told), lambda: None)


def test_a_step_that_fails_is_told_once_for_each_cause(shown: RunBoard, told: Warnings) -> None:
    step, again = SetUp("the publication sends the changes of users"), HeadraceError(Kind.DATABASE, "no room")
    for error in (REFUSED, REFUSED, again, None, REFUSED):
        shown.tell(step, error)
    causes = (REFUSED.cause, again.cause, REFUSED.cause)
    assert all(cause in line for cause, line in zip(causes, told.texts, strict=True))
    assert step.why in told.texts[0]
    assert REFUSED.remedy in told.texts[0]


def test_a_step_that_the_status_of_a_unit_tells_of_is_not_told_twice(shown: RunBoard, told: Warnings) -> None:
    shown.tell(Serve("its alias led elsewhere", UNIT, SERVED), REFUSED)
    assert not told.texts


@pytest.mark.parametrize(
    ("served", "query", "ready"),
    [
        (SERVED, QUERY, True),
        (SERVED, None, False),
        (SERVED, replace(QUERY, failure=REFUSED), False),
        # It was stopped by itself, and is built again: readers see it meanwhile.
        (replace(SERVED, frozen="its table was altered"), QUERY, True),
        (replace(SERVED, frozen="the slot is gone", joined=5), QUERY, False),
    ],
)
def test_a_run_is_ready_while_a_query_follows_the_log_of_what_readers_see(
    served: GenerationState, query: QuerySeen | None, *, ready: bool
) -> None:
    """Also a run that was started after a gap, or whose query has ended later."""
    lived: list[bool] = []
    shown = RunBoard(StatusBoard(["users"]), lambda: lived.append(True))
    state = PipelineState("7", 1, 5, "s", "p", "following", 10, 50, (served,), catalog="text")
    desired = Desired({UNIT: Definition("aa")})
    shown.show(
        settled_world((SERVED,), state=replace(state, generations=(SERVED,)), query=QUERY),
        desired,
        has_begun=True,
    )
    lived.clear()
    shown.show(settled_world((served,), state=state, query=query), desired, has_begun=query is not None)
    assert (shown.board.ready, bool(lived)) == (ready, ready)


@pytest.mark.parametrize(
    "action",
    [
        CreateGeneration("a reindex was ordered", UNIT, "aa", 10, RebuildCause.ORDER),
        StopFollowing("its index was deleted", UNIT, SERVED, RebuildCause.SINK),
        BeginAgain("the slot is gone"),
    ],
)
def test_what_fails_is_not_counted_as_done(shown: RunBoard, action: Action) -> None:
    busy = HeadraceError(Kind.SINK_BUSY, "the cluster is busy")
    for error in (busy, busy, None):
        shown.tell(action, error)
    view = shown.board.view()
    assert sum(view.rebuilds.values()) + view.gaps == 1


def test_a_run_is_not_ready_while_a_query_that_has_failed_is_closed(shown: RunBoard) -> None:
    state = PipelineState("7", 1, 5, "s", "p", "following", 10, 50, (SERVED,), catalog="text")
    world = settled_world((SERVED,), state=state, query=QUERY)
    shown.show(world, Desired({UNIT: Definition("aa")}), has_begun=True)
    assert shown.board.ready
    lost = HeadraceError(Kind.WORKER_LOST, "a Python process was lost")
    shown.announce(CloseQuery(lost.cause, lost))
    assert not shown.board.ready
