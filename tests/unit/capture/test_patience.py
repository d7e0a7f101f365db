"""When a reader of the log stops trying."""

from __future__ import annotations

from headrace.capture.patience import ReadingPatience
from headrace.errors import HeadraceError, Kind
from headrace.postgres.server_errors import RemovedLogError

REMOVED = RemovedLogError("a segment is missing", HeadraceError(Kind.SLOT_LOST, "the slot is lost"))
AWAY = HeadraceError(Kind.CONNECTION, "the connection was lost")
FAULT = HeadraceError(Kind.SERVER_FAULT, "could not rename a file")


class Tries:
    """Errors of a reader that tries at given seconds."""

    def __init__(self) -> None:
        self._now = 0.0
        self._patience = ReadingPatience(15.0, lambda: self._now)

    def fail(self, error: HeadraceError, *seconds: float) -> list[Kind]:
        kinds = []
        for self._now in seconds:
            kinds.append(self._patience.judge(error).kind)
        return kinds

    def make_progress(self) -> None:
        self._patience.forget()


def test_log_that_is_missing_for_long_and_often_is_a_lost_slot() -> None:
    assert Tries().fail(REMOVED, 0, 5, 10, 14, 15) == [Kind.SERVER_FAULT] * 4 + [Kind.SLOT_LOST]


def test_log_that_is_missing_for_long_or_often_may_be_there_later() -> None:
    assert set(Tries().fail(REMOVED, 0, 5, 10, 15)) == {Kind.SERVER_FAULT}
    assert set(Tries().fail(REMOVED, *range(14))) == {Kind.SERVER_FAULT}


def test_an_outage_is_not_part_of_the_time_that_log_is_missing() -> None:
    tries = Tries()
    tries.fail(REMOVED, 0, 1, 2, 3)
    tries.fail(AWAY, 4, 600)
    assert tries.fail(REMOVED, 601, 605, 610, 615, 616) == [Kind.SERVER_FAULT] * 4 + [Kind.SLOT_LOST]


def test_progress_ends_a_row_of_missing_log() -> None:
    tries = Tries()
    tries.fail(REMOVED, 0, 1, 2, 3)
    tries.make_progress()
    assert tries.fail(REMOVED, 20) == [Kind.SERVER_FAULT]


def test_another_fault_of_the_server_between_is_no_outage() -> None:
    tries = Tries()
    tries.fail(REMOVED, 0, 1, 2, 3)
    tries.fail(FAULT, 4)
    assert tries.fail(REMOVED, 15) == [Kind.SLOT_LOST]
