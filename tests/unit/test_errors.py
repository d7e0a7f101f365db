"""Errors with places, several at once, and how long an action is tried again."""

from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path

import pytest

from headrace.errors import (
    ErrorGroup,
    HeadraceError,
    Kind,
    LocatedError,
    Patience,
    Place,
    Retry,
    in_one_line,
    retrying,
)


def test_what_passes_by_itself_is_tried_again_and_what_does_not_is_not() -> None:
    left = [HeadraceError(Kind.CONNECTION, "away"), HeadraceError(Kind.CONFIG, "wrong")]

    def fail() -> None:
        raise left.pop(0)

    with pytest.raises(HeadraceError, match="wrong"):
        retrying(first=0.001)(fail)
    assert left == []


FAULT = HeadraceError(Kind.SERVER_FAULT, "could not rename state.tmp")
AWAY = HeadraceError(Kind.CONNECTION, "away")


def judged(patience: Patience, error: HeadraceError, times: int) -> list[Retry]:
    return [patience.judge(error).retry for _ in range(times)]


def test_a_fault_of_the_server_is_final_when_it_came_a_hundred_times_in_a_row() -> None:
    patience = Patience()
    assert set(judged(patience, FAULT, 99)) == {Retry.BACK_OFF}
    last = patience.judge(FAULT)
    assert (last.kind, last.retry) == (Kind.DATABASE, Retry.NEVER)
    assert "could not rename state.tmp" in last.cause
    assert "100 times" in last.cause


def test_a_fault_of_the_server_is_final_when_it_has_lasted_an_hour() -> None:
    now = 0.0
    patience = Patience(lambda: now)
    assert patience.judge(FAULT).retry is Retry.BACK_OFF
    now = 3599.0
    assert patience.judge(FAULT).retry is Retry.BACK_OFF
    now = 3600.0
    assert patience.judge(FAULT).retry is Retry.NEVER


def test_progress_ends_a_row_of_faults_and_a_server_that_is_away_does_not_count() -> None:
    patience = Patience()
    judged(patience, FAULT, 99)
    assert set(judged(patience, AWAY, 1000)) == {Retry.BACK_OFF}
    patience.forget()
    assert set(judged(patience, FAULT, 99)) == {Retry.BACK_OFF}


def test_an_action_that_meets_a_fault_of_the_server_for_ever_fails_in_the_end() -> None:
    tries = 0

    def fail() -> None:
        nonlocal tries
        tries += 1
        raise FAULT

    with pytest.raises(HeadraceError) as caught:
        retrying(first=0.0, longest=0.0)(fail)
    assert (caught.value.kind, tries) == (Kind.DATABASE, 100)


def test_at_the_end_no_pause_is_waited_out_and_the_next_failure_is_the_last() -> None:
    ending = threading.Event()
    tries: list[float] = []
    threading.Timer(0.2, ending.set).start()
    began = time.monotonic()

    def fail() -> None:
        tries.append(time.monotonic() - began)
        raise HeadraceError(Kind.CONNECTION, "away")

    with pytest.raises(HeadraceError, match="away"):
        retrying(first=30.0, longest=30.0, ending=ending)(fail)
    assert len(tries) == 2
    assert tries[1] < 10


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Place(Path("a.yml"), 2, 5, "  txt: b"), "a.yml:2:5: unknown type, in `txt: b`. Correct it."),
        (Place(Path("a.toml"), 2), "a.toml:2: unknown type. Correct it."),
        (Place(Path("the stored schema"), 0), "the stored schema: unknown type. Correct it."),
    ],
)
def test_a_place_has_a_column_and_quotes_its_line_where_both_are_known(place: Place, text: str) -> None:
    error = LocatedError(Kind.SCHEMA, place, "unknown type", "Correct it.")
    assert str(error) == f"[HEADRACE_SCHEMA] {text}"
    again = pickle.loads(pickle.dumps(error))
    assert (again.place, again.problem, str(again)) == (place, "unknown type", str(error))


def test_a_group_tells_each_error_in_its_line_and_says_how_many_follow_the_first() -> None:
    group = ErrorGroup([HeadraceError(Kind.CONFIG, "one", "Do it."), HeadraceError(Kind.DISK, "two")])
    assert str(group) == "[HEADRACE_CONFIG] one. Do it.\n[HEADRACE_DISK] two"
    assert (group.kind, group.cause, group.remedy, group.exit_code) == (
        Kind.CONFIG,
        "one (and 1 more)",
        "Do it.",
        2,
    )
    assert str(pickle.loads(pickle.dumps(group))) == str(group)


def test_errors_in_one_line_are_sentences() -> None:
    errors = [HeadraceError(Kind.CONFIG, "a is wrong", "Mend it."), HeadraceError(Kind.SCHEMA, "b is wrong")]
    assert in_one_line(errors) == "[HEADRACE_CONFIG] a is wrong. Mend it. [HEADRACE_SCHEMA] b is wrong."
    assert in_one_line([]) == ""


@pytest.mark.parametrize(
    "error",
    [
        HeadraceError(
            Kind.OTHER_LOG, "the log of 18.1 ends at 0/16B3748: it is another one", "Start anew. Or not."
        ),
        HeadraceError(Kind.SLOT_LOST, "the slot 's' is gone", "`headrace teardown` drops it."),
        HeadraceError(Kind.VALUE, "no number"),
    ],
)
def test_an_error_that_is_found_in_a_text_has_its_cause_and_its_remedy(error: HeadraceError) -> None:
    """A caller with another remedy leaves out the one that was found."""
    for text in (str(error), f"SparkException: Job aborted\nHeadraceError: {error}\n\tat org.apache"):
        found = HeadraceError.find(text)
        assert found is not None
        assert (found.kind, found.cause, found.remedy) == (error.kind, error.cause, error.remedy)
