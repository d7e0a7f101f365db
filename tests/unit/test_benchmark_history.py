"""What benchmarks found stands in a file, and no ratio falls without a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness import history
from harness.history import Record

RECORD = Record("2026-11-23T12:00:00+00:00", "abc", "2 cores, 24 GiB", 1.0, "drain.bare", "", 0.8, 0.8)


def test_no_recorded_ratio_fell_without_a_reason() -> None:
    assert not list(history.unexplained_falls(history.load()))


@pytest.mark.parametrize(
    ("later", "told"),
    [
        (replace(RECORD, ratio=0.73), False),
        (replace(RECORD, ratio=0.71), True),
        (replace(RECORD, ratio=0.71, reason="it checks more"), False),
        (replace(RECORD, ratio=0.71, machine="8 cores, 32 GiB"), False),
        (replace(RECORD, ratio=0.71, arguments="--quick"), False),
        (replace(RECORD, ratio=0.71, name="drain.flusso"), False),
    ],
)
def test_a_fall_by_a_tenth_is_told(later: Record, *, told: bool) -> None:
    assert bool(list(history.unexplained_falls([RECORD, later]))) is told


def test_a_fall_that_was_made_good_is_forgotten() -> None:
    assert not list(history.unexplained_falls([RECORD, replace(RECORD, ratio=0.5), RECORD]))


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history.append([RECORD], path)
    history.append([replace(RECORD, commit="abd")], path)
    assert history.load(path) == [RECORD, replace(RECORD, commit="abd")]
