"""Which archive of classes belongs to a Java, and is it written whole or not at all?"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.config.class_archive import ClassArchive, class_archive
from headrace.config.java import Java


def archive_of(major: int, cache: Path, installed: str = "4.3") -> ClassArchive | None:
    java = Java(Path("/j/bin/java"), Path("/j"), major)
    return class_archive(java, "spark-4.3", installed, {"XDG_CACHE_HOME": str(cache)})


def known_archive(major: int, cache: Path, installed: str = "4.3") -> ClassArchive:
    archive = archive_of(major, cache, installed)
    assert archive is not None
    return archive


def record(archive: ClassArchive) -> None:
    with archive.recording() as option:
        assert option is not None
        Path(option.partition("=")[2]).write_bytes(b"classes")


@pytest.mark.parametrize(
    ("major", "record", "use"),
    [(17, "ArchiveClassesAtExit", "SharedArchiveFile"), (25, "AOTCacheOutput", "AOTCache")],
)
def test_each_java_has_its_own_options(tmp_path: Path, major: int, record: str, use: str) -> None:
    archive = known_archive(major, tmp_path)
    assert archive.path.parent == tmp_path / "headrace"
    assert archive.options() == ""
    with archive.recording() as option:
        assert option is not None
        name, _, new = option.partition("=")
        assert name == f"-XX:{record}"
        Path(new).write_bytes(b"classes")
    assert archive.options() == f"-XX:{use}={archive.path}"
    assert archive.path.read_bytes() == b"classes"


def test_java_21_has_none(tmp_path: Path) -> None:
    assert archive_of(21, tmp_path) is None


def test_installations_do_not_share_one(tmp_path: Path) -> None:
    assert (
        archive_of(17, tmp_path, "4.2") != archive_of(17, tmp_path, "4.3") != archive_of(25, tmp_path, "4.3")
    )


def test_a_program_that_wrote_nothing_leaves_nothing(tmp_path: Path) -> None:
    archive = known_archive(17, tmp_path)
    with archive.recording():
        pass
    assert not archive.exists
    assert [file.suffix for file in archive.path.parent.iterdir()] == [".lock"]


def test_what_nothing_has_used_for_a_month_is_removed(tmp_path: Path) -> None:
    month_ago = time.time() - 31 * 86_400
    unused, used = known_archive(17, tmp_path, "4.1"), known_archive(17, tmp_path, "4.2")
    for archive in (unused, used):
        record(archive)
        os.utime(archive.path, (month_ago, month_ago))
    assert used.options()
    record(known_archive(17, tmp_path))
    assert not unused.exists
    assert used.exists


def test_only_one_records_at_a_time_and_what_a_killed_one_left_is_removed(tmp_path: Path) -> None:
    archive = known_archive(17, tmp_path)
    left = archive.path.with_suffix(".killed.new")
    left.mkdir(parents=True)
    with archive.recording() as first:
        assert first is not None
        assert not left.exists()
        with archive.recording() as second:
            assert second is None
