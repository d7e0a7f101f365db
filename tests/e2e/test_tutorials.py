"""The tutorials lead from an empty folder to the result that they show, command by command.

The pages: docs/tutorials/documents.md, docs/tutorials/spark.md, docs/tutorials/lake.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.tutorial import Tutorial


@pytest.mark.long
def test_a_newcomer_has_documents_that_follow_a_database(tmp_path: Path) -> None:
    with Tutorial("documents.md", tmp_path) as tutorial:
        for section in (1, 2, 3, 4, 5):
            tutorial.play(section)
        tutorial.background[-1].interrupt()
        tutorial.play(6)


@pytest.mark.long
def test_a_newcomer_sees_each_change_in_a_spark_program(tmp_path: Path) -> None:
    with Tutorial("spark.md", tmp_path) as tutorial:
        for section in (1, 2, 3):
            tutorial.play(section)
        tutorial.background[-1].interrupt()
        tutorial.play(4)
        tutorial.play(5)


@pytest.mark.long
def test_a_newcomer_has_tables_of_a_lake_that_follow_a_database(tmp_path: Path) -> None:
    with Tutorial("lake.md", tmp_path) as tutorial:
        for section in (1, 2, 3, 4, 5):
            tutorial.play(section)
