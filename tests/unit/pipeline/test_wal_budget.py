"""From half of its budget on a slot is warned of, above it released where that is wanted."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.deployment import SourceConfig
from headrace.pipeline.wal_budget import WalBudget
from headrace.postgres.slot import SlotFacts
from headrace.status.board import StatusBoard

MB = 1_000_000


def source(**options: Any) -> SourceConfig:
    return SourceConfig.model_validate({"type": "postgres", **options})


def slot(retained: int) -> SlotFacts:
    return SlotFacts(
        name="s",
        plugin="pgoutput",
        kind="logical",
        database="shop",
        two_phase=False,
        temporary=False,
        active_pid=None,
        confirmed_flush=1,
        restart=1,
        wal_status="reserved",
        safe_wal_size=None,
        current=retained + 1,
    )


def warnings(board: StatusBoard) -> list[str]:
    return list(board.view().warnings)


def test_a_warning_comes_at_half_and_goes_with_its_cause() -> None:
    board = StatusBoard()
    budget = WalBudget(source(wal_budget="10 MB"), board, releases=True)
    budget.check(slot(4 * MB), 1.0)
    assert warnings(board) == []
    budget.check(slot(5 * MB), 1.0)
    assert "4.8 MB of log are retained, the budget is 9.5 MB" in warnings(board)[0]
    budget.check(slot(50 * MB), 1.0)
    assert len(warnings(board)) == 1, "it is only told"
    budget.check(slot(MB), 1.0)
    assert warnings(board) == []


def test_hours_count_too() -> None:
    board = StatusBoard()
    budget = WalBudget(source(wal_budget_hours=2), board, releases=False)
    budget.check(slot(0), 3500.0)
    assert warnings(board) == []
    budget.check(slot(0), 3700.0)
    assert "it is 1 h 1 min behind, the budget is 2 h 0 min" in warnings(board)[0]
    budget.check(slot(0), None)
    assert warnings(board) == []


def test_a_slot_is_released_only_where_the_run_reseeds() -> None:
    options = source(wal_budget="10 MB", on_gap="reseed", on_budget="release")
    assert WalBudget(options, StatusBoard(), releases=False).check(slot(11 * MB), 1.0) == ""
    why = WalBudget(options, StatusBoard(), releases=True).check(slot(11 * MB), 1.0)
    assert "is released, before the primary's disk is full" in why


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wal_budget": "10 MB", "on_gap": "stop", "on_budget": "release"}, "needs on_gap"),
        ({"on_gap": "reseed", "on_budget": "release"}, "needs wal_budget"),
        ({"wal_budget": 0}, "greater than 0"),
        ({"wal_budget": "much"}, "wal_budget"),
        ({"wal_budget_hours": 0}, "wal_budget_hours"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        source(**options)
