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
