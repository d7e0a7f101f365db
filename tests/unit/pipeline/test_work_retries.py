"""When work beside the stream is tried again, and when it fails for good."""

from __future__ import annotations

import logging
import threading

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.work_retries import WorkRetries

AWAY = HeadraceError(Kind.CONNECTION, "the database is away")
FAULT = HeadraceError(Kind.SERVER_FAULT, "could not rename a file")
REWRITTEN = HeadraceError(Kind.CONTINUITY, "the table was rewritten")


@pytest.fixture
def retries() -> WorkRetries:
    """Retries of a backfill that ends, so that no pause is waited out."""
    ending = threading.Event()
    ending.set()
    return WorkRetries("the backfill", ending, longest=30.0, restarted=frozenset({Kind.CONTINUITY}))


def test_a_fault_of_the_server_that_lasts_fails_the_work(retries: WorkRetries) -> None:
    for _ in range(99):
        retries.wait_after(FAULT)
    with pytest.raises(HeadraceError, match="100 times in a row") as raised:
        retries.wait_after(FAULT)
    assert raised.value.kind is Kind.DATABASE


def test_a_fault_is_counted_anew_once_something_is_done(retries: WorkRetries) -> None:
    for _ in range(99):
        retries.wait_after(FAULT)
    retries.forget()
    for _ in range(99):
        retries.wait_after(FAULT)


def test_a_server_that_is_away_is_awaited_without_end(retries: WorkRetries) -> None:
    for _ in range(2_000):
        retries.wait_after(AWAY)


def test_what_another_plan_may_cure_is_tried_some_times_at_once(
    retries: WorkRetries, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="headrace"):
        for _ in range(5):
            retries.wait_after(REWRITTEN)
    assert all(said.endswith("the backfill goes on in 0 s") for said in caplog.messages)
    with pytest.raises(HeadraceError, match="rewritten"):
        retries.wait_after(REWRITTEN)


def test_what_no_other_try_cures_fails_the_work_at_once(retries: WorkRetries) -> None:
    with pytest.raises(HeadraceError, match="wrong"):
        retries.wait_after(HeadraceError(Kind.VALUE, "wrong"))


def test_each_wait_says_why_and_for_how_long(retries: WorkRetries, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="headrace"):
        for _ in range(6):
            retries.wait_after(AWAY)
    first, *_, last = caplog.messages
    assert first == "[HEADRACE_CONNECTION] the database is away; the backfill goes on in 2 s"
    assert last.endswith("the backfill goes on in 30 s")
