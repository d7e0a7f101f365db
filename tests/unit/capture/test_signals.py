"""What the reader and its driver tell each other."""

from __future__ import annotations

import time
from pathlib import Path

from headrace.capture.signals import OfferedPlan, SignalFiles
from headrace.errors import HeadraceError, Kind

ERROR = HeadraceError(Kind.SLOT_IN_USE, "another program has it", "Wait.")


def test_an_error_is_there_until_it_is_cleared_by_any_process(tmp_path: Path) -> None:
    signals = SignalFiles(tmp_path)
    assert signals.reader_error() is None
    signals.report_error(ERROR)
    found = signals.reader_error()
    assert found is not None
    assert (found.kind, str(found)) == (ERROR.kind, str(ERROR))
    SignalFiles(tmp_path).clear_error()
    assert signals.reader_error() is None
    assert list(tmp_path.iterdir()) == []


def test_what_may_be_missing_is_left_out_where_it_cannot_be_written(tmp_path: Path) -> None:
    signals = SignalFiles(tmp_path / "gone")
    signals.report_error(ERROR)
    signals.clear_error()
    signals.request_lsn(5)
    signals.beat()
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_a_batch_is_told_as_spark_stores_it(tmp_path: Path) -> None:
    signals = SignalFiles(tmp_path)
    assert signals.batch_end() is None
    for end in ({"version": 1, "lsn": "0/5"}, {"version": 1, "lsn": "0/9", "timeline": 2}):
        signals.set_batch_end(end)
        assert SignalFiles(tmp_path).batch_end() == end


def test_nothing_is_confirmed_without_a_limit(tmp_path: Path) -> None:
    signals = SignalFiles(tmp_path)
    assert signals.confirm_limit() == 0
    signals.set_confirm_limit(0x1_0000_0000)
    assert signals.confirm_limit() == 0x1_0000_0000


def test_a_batch_is_planned_until_the_next_one_is_asked_for(tmp_path: Path) -> None:
    signals = SignalFiles(tmp_path)
    assert not signals.is_planned()
    signals.beat()
    assert not signals.is_planned()
    signals.mark_planned()
    assert signals.is_planned()
    time.sleep(0.01)
    signals.beat()
    assert not signals.is_planned()


def test_what_waits_to_be_visible_is_told_until_it_is(tmp_path: Path) -> None:
    signals = SignalFiles(tmp_path)
    for waits in (False, True, True, False):
        signals.set_invisible(waits=waits)
        assert signals.is_invisible() is waits


def test_a_source_that_is_asked_again_beats_again(tmp_path: Path) -> None:
    signals = SignalFiles(tmp_path)
    assert signals.seconds_since_beat() is None
    signals.beat()
    first = signals.seconds_since_beat()
    assert first is not None
    assert 0 <= first < 30
    time.sleep(0.05)
    later = signals.seconds_since_beat()
    assert later is not None
    assert later > first
    signals.beat()
    again = signals.seconds_since_beat()
    assert again is not None
    assert again < later


def test_the_last_requested_position_is_read(tmp_path: Path) -> None:
    signals = SignalFiles(tmp_path)
    assert signals.requested_lsn() == 0
    signals.request_lsn(0x1_0000_0000)
    signals.request_lsn(0x90)
    assert signals.requested_lsn() == 0x90
    (tmp_path / "requested_lsn").write_text("no place")
    assert signals.requested_lsn() == 0


def test_a_plan_is_offered_until_a_newer_one_is(tmp_path: Path) -> None:
    signals = SignalFiles(tmp_path)
    assert (signals.newer_plan(0), signals.accepted_plan()) == (None, None)
    signals.offer_plan(1, OfferedPlan("first"))
    signals.offer_plan(2, OfferedPlan("second", "settings"))
    assert signals.newer_plan(0) == (2, OfferedPlan("second", "settings"))
    signals.accept_plan(2, 20)
    assert (signals.newer_plan(2), signals.accepted_plan()) == (None, (2, 20))


def test_a_pause_lasts_until_it_is_ended(tmp_path: Path) -> None:
    signals = SignalFiles(tmp_path)
    assert not signals.is_paused()
    signals.set_paused(paused=True)
    signals.set_paused(paused=True)
    assert SignalFiles(tmp_path).is_paused()
    signals.set_paused(paused=False)
    signals.set_paused(paused=False)
    assert not signals.is_paused()
