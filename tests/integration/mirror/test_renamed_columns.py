"""Is a lake right where a column had another name for a while, which the catalog does not tell any more?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.config.mirror import MirrorConfig, MirroredTables, Mode
from headrace.errors import HeadraceError, Kind
from headrace.mirror.mirrored_lake import MirroredLake
from headrace.reporter import SilentReporter
from support.followed_mirror import FollowedMirror, run

SLOT = "mirror_renamed_columns"
SETUP = (
    "CREATE TABLE a (id int PRIMARY KEY, v text, large text)",
    "ALTER TABLE a ALTER large SET STORAGE EXTERNAL",
    "INSERT INTO a SELECT i, 'v', repeat('l', 3000) FROM generate_series(1, 9) AS i",
)
_RENAMED, _BACK = "ALTER TABLE a RENAME v TO other", "ALTER TABLE a RENAME other TO v"
_CALLED = "columns of a may have been called otherwise when rows were written"


@pytest.mark.long
@pytest.mark.parametrize(
    "statement", ["INSERT INTO a VALUES (10, 'ten', 'l')", "UPDATE a SET other = 'new' WHERE id = 1"]
)
@pytest.mark.parametrize("mode", ["current", "history"])
def test_a_table_is_read_anew_that_was_written_while_a_column_was_called_otherwise(
    statement: str, mode: Mode, url: str, tmp_path: Path
) -> None:
    mirror = mirror_of(url, tmp_path, mode)
    mirror.prepare()
    run(url, _RENAMED, statement, _BACK)
    for times in range(2):  # the slot is not confirmed, as after a kill: the log is read from its beginning
        assert mirror.follow().count(_CALLED) == (0 if times else 1)
        assert mirror.wrong() == []
    run(url, "ALTER TABLE a ADD COLUMN b int DEFAULT 7")
    mirror.follow()
    run(url, _RENAMED, statement.replace("10, 'ten'", "11, 'eleven'").replace("id = 1", "id = 2"), _BACK)
    assert mirror.follow().count(_CALLED) == 1
    assert mirror.wrong() == []


def mirror_of(url: str, folder: Path, mode: Mode) -> FollowedMirror:
    return FollowedMirror.of(url, folder, SLOT, MirroredTables(tables=("public.*",), mode=mode))


@pytest.mark.long
@pytest.mark.parametrize("choice", [{"exclude_columns": ["v"]}, {"columns": ["id", "v"]}])
def test_a_column_that_the_file_names_and_that_was_renamed_lets_its_table_wait(
    choice: dict[str, Any], url: str, tmp_path: Path
) -> None:
    run(url, "CREATE TABLE second (id int PRIMARY KEY, v text)")
    part = MirroredTables(tables=("public.*",), **choice)
    FollowedMirror.of(url, tmp_path, SLOT, part).prepare()
    run(url, _RENAMED, "INSERT INTO a VALUES (10, 'secret', 'l')")
    for _ in range(2):
        found = FollowedMirror.of(url, tmp_path, SLOT, part).waiting()
    assert Kind.BINDING.value in found
    assert "the column v of a, which the file names, is called other now" in found
    assert f"Write other in place of v into {next(iter(choice))}" in found
    assert "other" not in pl.read_delta(str(tmp_path / "public" / "a")).columns
    said: dict[str, Any] = {
        name: ["other" if column == "v" else column for column in columns] for name, columns in choice.items()
    }
    renamed = MirroredTables(tables=("public.a",), **said)
    mirror = FollowedMirror.of(url, tmp_path, SLOT, renamed, part)
    mirror.follow()
    assert mirror.wrong() == []


@pytest.mark.parametrize("choice", [{"exclude_columns": ("v",)}, {"columns": ("id", "v")}])
def test_a_column_that_is_renamed_right_before_its_table_is_read_again_stays_out_of_the_lake(
    choice: dict[str, Any], url: str, tmp_path: Path
) -> None:
    part = MirroredTables(tables=("public.a",), **choice)
    config = MirrorConfig(location=str(tmp_path), slot=SLOT, publication=SLOT, tables=(part,))
    FollowedMirror(url, config).prepare()
    run(url, "ALTER TABLE a ALTER id TYPE bigint")
    mirror = MirroredLake(url, config, Renaming(url))
    mirror.set_up()
    assert mirror.prepare() == []
    assert "the column v of a, which the file names, is called other now" in str(mirror.waiting.error())
    assert "other" not in pl.read_delta(str(tmp_path / "public" / "a")).columns


class Renaming(SilentReporter):
    """Renames a column when it is decided what is to be loaded."""

    def __init__(self, url: str) -> None:
        self._url = url

    def info(self, text: str) -> None:
        if "to load" in text:
            run(self._url, _RENAMED)


@pytest.mark.parametrize("choice", [{"columns": ("id", "vv")}, {"exclude_columns": ("vv",)}])
def test_columns_that_no_table_has_end_the_mirror(choice: dict[str, Any], url: str, tmp_path: Path) -> None:
    part = MirroredTables(tables=("public.*",), **choice)
    mirror = FollowedMirror.of(url, tmp_path, SLOT, part)
    with pytest.raises(HeadraceError, match=r"has a column \"vv\".* \(v\?\)"):
        mirror.prepare()
    assert not (tmp_path / "public").exists()


def test_an_excluded_column_that_was_dropped_ends_no_mirror(url: str, tmp_path: Path) -> None:
    part = MirroredTables(tables=("public.*",), exclude_columns=("v",))
    FollowedMirror.of(url, tmp_path, SLOT, part).prepare()
    run(url, "ALTER TABLE a DROP COLUMN v", "INSERT INTO a VALUES (10, 'l')")
    mirror = FollowedMirror.of(url, tmp_path, SLOT, part)
    mirror.follow()
    assert mirror.wrong() == []
