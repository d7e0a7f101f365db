"""Are the files of a deployment written together, or not at all?"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config.text_files import write_files
from headrace.errors import HeadraceError, Kind


def test_files_are_written_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    write_files(folder, {folder / "a": b"1", folder / "b": b"2"})
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {"a": b"1", "b": b"2"}


def test_none_is_written_where_one_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").mkdir()
    with pytest.raises(HeadraceError, match="Is a directory") as caught:
        write_files(tmp_path, {tmp_path / "a": b"new", tmp_path / "b": b"new"})
    assert caught.value.kind is Kind.DISK
    assert (tmp_path / "a").read_bytes() == b"old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b"]


def test_a_link_is_followed_and_permissions_stay(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_bytes(b"old")
    there.chmod(0o640)
    link.symlink_to(there)
    write_files(tmp_path, {link: b"new"})
    assert (link.is_symlink(), there.read_bytes(), there.stat().st_mode & 0o777) == (True, b"new", 0o640)


def test_what_stands_beside_a_file_is_not_written_through(tmp_path: Path) -> None:
    """In a folder of several people, a link under the name that a new file had until it was in its place."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in (".a.new", "a.new", ".a.tmp", "a~"):
        (folder / name).symlink_to(victim)
    write_files(folder, {folder / "a": b"1"})
    assert (victim.read_bytes(), (folder / "a").read_bytes()) == (b"mine", b"1")
