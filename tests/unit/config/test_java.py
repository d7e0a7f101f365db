"""Finding a Java, and the wrapper that Spark needs before some."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headrace.config.cache import cache_folder
from headrace.config.java import Java, find_java, parse_properties, wrap
from headrace.errors import HeadraceError, Kind


def settings(version: str) -> str:
    return f"""Property settings:
    java.home = /opt/some java
    java.specification.version = {version}
    java.vm.specification.version = 99

openjdk version "{version}.0.1" 2025-04-15
"""


@pytest.mark.parametrize(("version", "major"), [("1.8", 8), ("11", 11), ("21", 21), ("25", 25)])
def test_versions_of_all_ages_are_read(version: str, major: int) -> None:
    java = Path("/x/bin/java")
    assert parse_properties(java, settings(version)) == Java(java, Path("/opt/some java"), major)


def test_something_else_is_no_java() -> None:
    assert parse_properties(Path("java"), "java: a village") is None


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{settings(version)}END\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_before_path_if_it_fits(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "17"), fake_java(tmp_path / "new", "21")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": f"{tmp_path}/new/bin:/usr/bin:/bin"}
    assert find_java(17, environ=environ) == old
    assert find_java(21, environ=environ) == new


def test_the_error_lists_what_was_found_and_how_to_get_one(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11")
    broken = tmp_path / "broken" / "java"
    broken.parent.mkdir()
    broken.write_text("not a program")
    broken.chmod(0o755)
    with pytest.raises(HeadraceError) as missing:
        find_java(1000, environ={"JAVA_HOME": str(tmp_path / "old"), "PATH": str(broken.parent)})
    assert missing.value.kind is Kind.DEPENDENCY
    assert "JAVA_HOME has Java 11; the java of PATH does not run" in missing.value.cause
    assert "pip install 'headrace[java]'" in missing.value.remedy


def test_the_wrapper_drops_one_word_and_keeps_the_others_whole(tmp_path: Path) -> None:
    home = tmp_path / "a 'java"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    java.chmod(0o755)
    wrapper = wrap(home, tmp_path / "cache")
    words = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "$HOME", "--add-modules=x"]
    done = subprocess.run([wrapper / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp><a b:*><><$HOME><--add-modules=x>"
    assert wrap(home, tmp_path / "cache") == wrapper
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == [wrapper.name]


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HeadraceError) as full:
        wrap(tmp_path, tmp_path / "file" / "cache")
    assert full.value.kind is Kind.DISK


def test_the_cache_follows_xdg(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/headrace")
    assert cache_folder({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path("/h/.cache/headrace")
