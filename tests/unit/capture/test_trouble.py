"""What the reader waits for, as other processes are told."""

from __future__ import annotations

import time
from pathlib import Path

from headrace.capture.heartbeat import beat, seconds_since_beat
from headrace.capture.trouble import TroubleNote, read_trouble
from headrace.errors import HeadraceError, Kind

ERROR = HeadraceError(Kind.SLOT_IN_USE, "somebody has it", "Wait.")


def test_a_note_is_there_for_as_long_as_the_trouble(tmp_path: Path) -> None:
    path = tmp_path / "trouble"
    note = TroubleNote(path)
    note.write(ERROR)
    told = read_trouble(path)
    assert told is not None
    assert (told.kind, str(told)) == (ERROR.kind, str(ERROR))
    note.clear()
    assert read_trouble(path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_note_of_a_process_that_was_killed_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "trouble"
    TroubleNote(path).write(ERROR)
    TroubleNote(path).clear()
    assert read_trouble(path) is None


def test_a_note_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    TroubleNote(tmp_path / "gone" / "trouble").write(ERROR)
    TroubleNote(None).write(ERROR)
    TroubleNote(None).clear()
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_is_asked_again_beats_again(tmp_path: Path) -> None:
    file = tmp_path / "trouble-1"
    assert seconds_since_beat(file) is None
    beat(None)
    beat(file)
    first = seconds_since_beat(file)
    assert first is not None
    assert 0 <= first < 30
    time.sleep(0.05)
    later = seconds_since_beat(file)
    assert later is not None
    assert later > first
    beat(file)
    again = seconds_since_beat(file)
    assert again is not None
    assert again < later
