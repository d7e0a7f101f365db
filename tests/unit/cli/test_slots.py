from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.cli.slots import seconds_behind, slot_data
from headrace.model.units import duration, size
from headrace.postgres.slot import SlotFacts

SLOT = SlotFacts(
    name="s",
    plugin="pgoutput",
    kind="logical",
    database="shop",
    two_phase=False,
    temporary=False,
    active_pid=None,
    confirmed_flush=150,
    restart=100,
    wal_status="reserved",
    safe_wal_size=None,
    current=300,
    inactive_seconds=90.0,
)


def test_who_has_nothing_behind_is_not_late() -> None:
    assert seconds_behind(replace(SLOT, confirmed_flush=300)) == 0.0


def test_without_a_reader_a_slot_is_as_late_as_its_last_reader_is_gone() -> None:
    assert seconds_behind(SLOT) == 90.0
    assert seconds_behind(replace(SLOT, inactive_seconds=None)) is None, "before PostgreSQL 17"


def test_with_a_reader_the_server_measures() -> None:
    read = replace(SLOT, reader="pid 1", active_pid=1, inactive_seconds=None, reader_lag=2.5)
    assert seconds_behind(read) == 2.5
    assert seconds_behind(replace(read, reader_lag=None)) is None


def test_a_lost_slot_has_no_lag() -> None:
    lost = replace(SLOT, wal_status="lost", invalidation="wal_removed")
    assert seconds_behind(lost) is None
    data = slot_data(lost, {"s"})
    assert (data["bytes"], data["seconds"]) == (None, None)
    assert "max_slot_wal_keep_size" in str(data["lost"])


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 kB"), (13848368, "13.2 MB"), (3 << 60, "3072.0 PB")],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (90, "1 min 30 s"), (7260, "2 h 1 min"), (345_600, "4 days")],
)
def test_times_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
