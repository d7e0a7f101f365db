"""Who waits at `/wait` hears of it when it is applied; how many may, and what keeps the run from looking."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import TimeoutError as StillWaitingError
from types import TracebackType
from typing import Self

import pytest

from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.running import WaitService
from headrace.state import PipelineState

_STATE = PipelineState("1", 1, 1, "slot", "publication", "following", 0, 0)


class Elsewhere:
    """A server and a cluster."""

    def __init__(self) -> None:
        self.applied = 10
        self.end = 10
        self.away = False
        self.refreshed = 0
        self.urged: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def end_of_log(self) -> int:
        return self.end

    def state(self) -> PipelineState:
        if self.away:
            raise HeadraceError(Kind.SINK_UNREACHABLE, "the cluster is away")
        return dataclasses.replace(_STATE, applied=self.applied)

    def covers(self, state: PipelineState, lsn: int) -> bool:
        return state.applied >= lsn

    def refresh(self, _: PipelineState) -> None:
        self.refreshed += 1

    def request_position(self, lsn: int) -> None:
        self.urged.append(lsn)


@pytest.fixture
def elsewhere() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
def waits(elsewhere: Elsewhere) -> Iterator[WaitService]:
    with WaitService(lambda: elsewhere, most=3) as made:  # type: ignore[arg-type, return-value]
        yield made


def test_what_is_applied_is_told_at_once(waits: WaitService, elsewhere: Elsewhere) -> None:
    asked = waits.ask(None, searchable=True)
    assert asked is not None
    found = asked.result(timeout=5)
    assert (found.lsn, found.applied, elsewhere.refreshed) == (10, 10, 1)


def test_the_end_of_the_log_is_that_of_the_moment_of_asking(waits: WaitService, elsewhere: Elsewhere) -> None:
    elsewhere.end = 20
    asked = waits.ask(None, searchable=False)
    assert asked is not None
    until(lambda: 20 in elsewhere.urged, 5)  # who waits for long has the pipeline asked
    elsewhere.end = 30
    with pytest.raises(StillWaitingError):
        asked.result(timeout=0.1)
    assert waits.progress(asked).lsn == 20
    elsewhere.applied = 20
    assert asked.result(timeout=5).lsn == 20
    assert elsewhere.refreshed == 0


def test_only_so_many_may_wait_and_who_gives_up_makes_room(waits: WaitService) -> None:
    asked = [waits.ask(99, searchable=False) for _ in range(3)]
    assert waits.ask(1, searchable=False) is None
    assert asked[0] is not None
    asked[0].cancel()
    again = waits.ask(1, searchable=False)
    assert again is not None
    assert again.result(timeout=5).applied == 10


def test_what_keeps_from_looking_is_told_and_passes(waits: WaitService, elsewhere: Elsewhere) -> None:
    elsewhere.away = True
    asked = waits.ask(5, searchable=False)
    assert asked is not None
    until(lambda: waits.progress(asked).error is not None, 5)
    assert "the cluster is away" in str(waits.progress(asked).error)
    elsewhere.away = False
    assert asked.result(timeout=5).error is None
