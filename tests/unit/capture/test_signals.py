"""What the reader and whoever runs it tell each other."""

from __future__ import annotations

import time
from pathlib import Path

from headrace.capture.signals import (
    ReaderStatus,
    beat,
    read_reader_status,
    read_requested_lsn,
    seconds_since_beat,
    write_requested_lsn,
)
from headrace.errors import HeadraceError, Kind

ERROR = HeadraceError(Kind.SLOT_IN_USE, "somebody has it", "Wait.")


def test_a_note_is_there_for_as_long_as_the_trouble(tmp_path: Path) -> None:
    path = tmp_path / "trouble"
    note = ReaderStatus(path)
    note.write(ERROR)
    told = read_reader_status(path)
    assert told is not None
    assert (told.kind, str(told)) == (ERROR.kind, str(ERROR))
    note.clear()
    assert read_reader_status(path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_note_of_a_process_that_was_killed_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "trouble"
    ReaderStatus(path).write(ERROR)
    ReaderStatus(path).clear()
    assert read_reader_status(path) is None


def test_a_note_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    ReaderStatus(tmp_path / "gone" / "trouble").write(ERROR)
    ReaderStatus(None).write(ERROR)
    ReaderStatus(None).clear()
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


def test_the_last_requested_position_is_read_and_the_status_stays_apart(tmp_path: Path) -> None:
    status = tmp_path / "status-1"
    assert read_requested_lsn(status) == 0
    write_requested_lsn(status, 0x1_0000_0000)
    write_requested_lsn(status, 0x90)
    assert read_requested_lsn(status) == 0x90
    assert read_reader_status(status) is None
    ReaderStatus(status).write(HeadraceError(Kind.CONNECTION, "away"))
    assert read_requested_lsn(status) == 0x90
    assert read_reader_status(status) is not None


def test_a_reader_without_a_file_hears_of_no_request(tmp_path: Path) -> None:
    assert read_requested_lsn(None) == 0
    write_requested_lsn(tmp_path / "gone" / "status", 5)
    (tmp_path / "odd.requested").write_text("no place")
    assert read_requested_lsn(tmp_path / "odd") == 0
