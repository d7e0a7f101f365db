"""Is a lake right where another `where` chooses other rows than before?"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from headrace.config.mirror import MirroredTables
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect
from support.followed_mirror import FollowedMirror, run

SLOT = "mirror_chosen_rows"
SETUP = ("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 9)")


@pytest.mark.parametrize(("where", "rows"), [("id > 7", [8, 9, 10]), (None, list(range(1, 11)))])
def test_another_condition_reads_the_table_anew_once_the_publication_has_it(
    where: str | None, rows: list[int], url: str, tmp_path: Path
) -> None:
    mirror_of(url, tmp_path, "id < 5").prepare()
    other = mirror_of(url, tmp_path, where)
    with pytest.raises(HeadraceError, match=r"sends the rows where \(id < 5\) of a, required are") as caught:
        other.prepare()
    assert caught.value.kind is Kind.PUBLICATION
    advised = caught.value.remedy.partition("slot is made: ")[2].rstrip(".")
    run(url, "INSERT INTO a VALUES (10)")
    with connect(url) as connection:
        connection.pgconn.exec_(advised.encode())
    other.follow()
    assert sorted(pl.read_delta(str(tmp_path / "public" / "a"))["id"]) == rows
    assert other.wrong() == []


def mirror_of(url: str, folder: Path, where: str | None) -> FollowedMirror:
    return FollowedMirror.of(url, folder, SLOT, MirroredTables(tables=("public.a",), where=where))
