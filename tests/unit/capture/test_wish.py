"""What somebody waits for reaches the reader through a file beside its troubles."""

from pathlib import Path

from headrace.capture.trouble import TroubleNote, read_trouble
from headrace.capture.wish import read_wish, write_wish
from headrace.errors import HeadraceError, Kind


def test_the_last_wish_is_read_and_troubles_stay_apart(tmp_path: Path) -> None:
    trouble = tmp_path / "trouble-1"
    assert read_wish(trouble) == 0
    write_wish(trouble, 0x1_0000_0000)
    write_wish(trouble, 0x90)
    assert read_wish(trouble) == 0x90
    assert read_trouble(trouble) is None
    TroubleNote(trouble).write(HeadraceError(Kind.CONNECTION, "away"))
    assert read_wish(trouble) == 0x90
    assert read_trouble(trouble) is not None


def test_a_reader_without_a_file_has_no_wish(tmp_path: Path) -> None:
    assert read_wish(None) == 0
    write_wish(tmp_path / "gone" / "trouble", 5)
    (tmp_path / "odd.wish").write_text("no place")
    assert read_wish(tmp_path / "odd") == 0
