"""A run that begins its query again and again keeps the files of two, however long it lives."""

from __future__ import annotations

from pathlib import Path

from headrace.spark.query_folders import make_folder


def test_each_query_has_a_folder_and_only_that_of_the_one_before_stays(tmp_path: Path) -> None:
    (tmp_path / "log4j2.properties").touch()
    made = []
    for _ in range(12):
        made.append(make_folder(tmp_path))
        (made[-1] / "checkpoint").mkdir()
        (made[-1] / "checkpoint" / "metadata").touch()
        kept = {one for one in tmp_path.iterdir() if one.is_dir()}
        assert kept == set(made[-2:])
    assert len(set(made)) == 12
    assert (made[-1] / "checkpoint" / "metadata").exists()
    assert (tmp_path / "log4j2.properties").exists()
