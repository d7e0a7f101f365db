"""Who waits at `/wait` hears of it when it is applied, and what keeps the run from looking."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Self

import pytest

from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.state import PipelineState
from headrace.status.waiting import WaitProgress
from headrace.tools.wait_service import WaitService

_STATE = PipelineState("1", 1, 1, "slot", "publication", "following", 0, 0)


class Elsewhere:
    """A server and a cluster."""

    def __init__(self) -> None:
        self.applied = 10
        self.end = 10
        self.away = False
        self.refreshed = self.read = 0
        self.urged: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def end_of_log(self) -> int:
        return self.end

    def state(self) -> PipelineState:
        if self.away:
            raise HeadraceError(Kind.SINK_UNREACHABLE, "the cluster is away")
        self.read += 1
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
    with WaitService(elsewhere) as made:  # type: ignore[arg-type]
        yield made


def look(
    waits: WaitService, before: WaitProgress, *, searchable: bool = False, waited: float = 0.0
) -> WaitProgress:
    return waits.look(before, searchable=searchable, waited=waited).result(timeout=5)


def test_what_is_applied_is_told_at_once(waits: WaitService, elsewhere: Elsewhere) -> None:
    found = look(waits, WaitProgress(), searchable=True)
    assert found == WaitProgress(10, 10, done=True)
    assert elsewhere.refreshed == 1


def test_the_end_of_the_log_is_that_of_the_first_look(waits: WaitService, elsewhere: Elsewhere) -> None:
    elsewhere.end = 20
    first = look(waits, WaitProgress())
    assert first == WaitProgress(20, 10)
    assert elsewhere.urged == []
    elsewhere.end = 30
    assert look(waits, first, waited=1.0).lsn == 20
    assert elsewhere.urged == [20]  # who waits for long has the pipeline asked
    elsewhere.applied = 20
    assert until(lambda: look(waits, first).done, 5)
    assert elsewhere.refreshed == 0


def test_many_who_wait_cost_one_read_and_one_refresh(waits: WaitService, elsewhere: Elsewhere) -> None:
    asked = [waits.look(WaitProgress(5), searchable=True, waited=0.0) for _ in range(20)]
    assert all(future.result(timeout=5).done for future in asked)
    assert elsewhere.refreshed <= elsewhere.read < 20


def test_what_keeps_from_looking_is_told_and_passes(waits: WaitService, elsewhere: Elsewhere) -> None:
    elsewhere.away = True
    found = look(waits, WaitProgress(5))
    assert found.lsn == 5
    assert "the cluster is away" in str(found.error)
    elsewhere.away = False
    assert look(waits, found) == WaitProgress(5, 10, done=True)
