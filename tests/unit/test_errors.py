"""Errors with places, several at once, and how long an action is tried again."""

from __future__ import annotations

import copy
import pickle
import threading
import time
import traceback
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
    failures_of,
    find_concerns,
    in_one_line,
    retrying,
    unexpected,
)
from headrace.model.names import TableName
from headrace.pipeline.continuity import GapError
from headrace.pipeline.worker.failure_policy import SinkFailure
from headrace.spark.failures import short_traceback


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


def test_an_outage_between_two_faults_is_not_part_of_their_hour() -> None:
    now = 0.0
    patience = Patience(lambda: now)
    judged(patience, FAULT, 1)
    now = 10.0
    judged(patience, AWAY, 1)
    now = 7200.0
    assert patience.judge(FAULT).retry is Retry.BACK_OFF
    now = 7200.0 + 3600.0
    assert patience.judge(FAULT).retry is Retry.NEVER


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


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ("the server says: no space left. Free some. Or add a disk", "Make room."),
        ("the cluster refuses it: Bad Request. See its log", ""),
        ("it failed", "please see the log. It says why."),
        ("a path C:. B", "`headrace run` begins again. And again."),
    ],
)
def test_where_a_cause_ends_is_known_behind_the_way_between_processes(cause: str, remedy: str) -> None:
    """Words of servers have sentences of their own."""
    error = HeadraceError(Kind.DATABASE, cause, remedy)
    with pytest.raises(HeadraceError) as caught, short_traceback():
        raise error
    trace = "".join(traceback.format_exception(caught.value))
    for text in (error.for_transport(), f"SparkException: Job aborted\n{trace}\tat org.apache"):
        found = HeadraceError.find(text)
        assert found is not None
        assert (found.cause, found.remedy, str(found)) == (cause, remedy, str(error))


def test_the_cause_of_an_error_before_is_not_taken_for_the_last_ones() -> None:
    before = HeadraceError(Kind.DATABASE, "the server says: no. Not now", "Wait.").for_transport()
    found = HeadraceError.find(f"{before}\n[HEADRACE_SINK_REJECTED] the cluster refuses it. Mend it.")
    assert found is not None
    assert (found.cause, found.remedy) == ("the cluster refuses it", "Mend it.")


@pytest.mark.parametrize(
    "words", ['headrace concerns: {"units": ["goods_1"]}', "headrace concerns: {no JSON}"]
)
def test_what_a_server_or_a_function_of_the_user_says_is_not_taken_for_what_an_error_concerns(
    words: str,
) -> None:
    said = HeadraceError(Kind.DATABASE, f"the database says: {words}")
    for text in (said.for_transport(), f"{said}\nValueError: {words}", f"{said}\nheadrace concerns: {{x}}"):
        found = HeadraceError.find(text)
        assert found is not None
        assert (found.cause, found.units) == (said.cause, frozenset())


TABLES = [TableName("public", "event"), TableName("Ünï", 'a.b "c"')]
PLACE = Place(Path("a.yml"), 2)


@pytest.mark.parametrize(
    "error",
    [
        HeadraceError(Kind.SCHEMA_CHANGED, "altered", "Do it.", "detail"),
        LocatedError(Kind.BINDING, PLACE, "wrong"),
        ErrorGroup([HeadraceError(Kind.CONFIG, "one")]),
        GapError(Kind.SLOT_LOST, "gone"),
        SinkFailure(Kind.SINK_REJECTED, "no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_an_error_concerns_survives_a_copy_and_the_way_between_processes(error: HeadraceError) -> None:
    error.concerning(tables=TABLES, units=["goods_1"]).concerning(units=["notes_1"])
    for again in (
        copy.copy(error),
        pickle.loads(pickle.dumps(error)),
        HeadraceError.find(error.for_transport()),
    ):
        assert again is not None
        assert again.tables == {"event", '"Ünï"."a.b ""c"""'}
        assert again.units == {"goods_1", "notes_1"}
        assert str(again) == str(error)


def test_a_stack_trace_of_a_worker_has_what_the_error_concerns_and_the_message_has_not() -> None:
    with pytest.raises(HeadraceError) as caught, short_traceback(), failures_of("goods_1"):
        raise HeadraceError(Kind.TRANSFORM, "it failed", "Mend it.").concerning(tables=TABLES)
    assert str(caught.value) == "[HEADRACE_TRANSFORM] it failed. Mend it."
    trace = "".join(traceback.format_exception(caught.value))
    found = HeadraceError.find(f"org.apache.spark.SparkException: {trace}\tat org.apache.spark.Some.method")
    assert found is not None
    assert found.kind is Kind.TRANSFORM
    assert found.units == {"goods_1"}
    assert found.tables == caught.value.tables


def test_a_foreign_exception_names_the_unit_that_it_was_raised_for() -> None:
    with pytest.raises(ZeroDivisionError) as caught, failures_of("goods_1"):
        _ = 1 // 0
    assert find_concerns("".join(traceback.format_exception(caught.value))) == {
        "tables": [],
        "units": ["goods_1"],
    }
    assert unexpected("it failed", caught.value).units == {"goods_1"}


def test_a_group_of_foreign_exceptions_names_its_unit_too() -> None:
    with pytest.raises(ExceptionGroup) as caught, failures_of("goods_1"):
        raise ExceptionGroup("several", [ValueError("one")])
    assert find_concerns("".join(traceback.format_exception(caught.value)))["units"] == ["goods_1"]


def test_an_error_that_concerns_nothing_in_particular_says_nothing_of_it() -> None:
    error = HeadraceError(Kind.DISK, "full")
    group = ErrorGroup([HeadraceError(Kind.CONFIG, "one", "Do it. Soon."), HeadraceError(Kind.DISK, "two")])
    assert error.for_transport() == str(error)
    assert group.for_transport() == str(group)
    found = HeadraceError.find(error.for_transport())
    assert found is not None
    assert (found.tables, found.units) == (frozenset(), frozenset())
