"""Does the board show what operators ordered?"""

from __future__ import annotations

from prometheus_client import generate_latest

from headrace.status import StatusBoard
from headrace.status.metrics import registry


def board() -> StatusBoard:
    return StatusBoard(clock=lambda: 0.0, wall=lambda: 1_700_000_000.0)


def test_a_pause_is_shown_with_its_beginning_and_who_ordered_it() -> None:
    shown = board()
    assert shown.snapshot()["paused"] is None
    assert shown.pause("ada")
    assert shown.snapshot()["paused"] == {"since": "2023-11-14T22:13:20.000Z", "by": "ada"}
    [warning] = shown.view().warnings
    assert warning.startswith("paused since 2023-11-14T22:13:20.000Z by ada: changes wait in the log")
    assert "headrace_paused 1.0" in generate_latest(registry(shown)).decode()


def test_a_second_pause_changes_nothing() -> None:
    shown = board()
    shown.pause("ada")
    assert not shown.pause("bob")
    assert shown.snapshot()["paused"]["by"] == "ada"


def test_a_resume_ends_it() -> None:
    shown = board()
    shown.pause("ada")
    assert shown.resume()
    assert not shown.resume()
    assert shown.view().warnings == ()
    assert "headrace_paused 0.0" in generate_latest(registry(shown)).decode()


def test_requests_are_counted_by_order_and_outcome() -> None:
    shown = board()
    for outcome in ("accepted", "accepted", "wrong_token"):
        shown.count_request("reindex", outcome)
    lines = generate_latest(registry(shown)).decode().splitlines()
    assert 'headrace_control_requests_total{order="reindex",outcome="accepted"} 2.0' in lines
    assert 'headrace_control_requests_total{order="reindex",outcome="wrong_token"} 1.0' in lines
