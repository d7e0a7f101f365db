"""Does a password that a query was given stand anywhere that others look at?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.datasources.traces import files, leaks, pages, secrets, use

pytestmark = pytest.mark.long


def test_no_password_stands_anywhere(
    spark: SparkSession, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the URL, as an option or printed by a command; Spark Connect has a test of its own."""
    logged = spark.conf.get("spark.eventLog.dir")
    assert logged is not None
    events = Path(logged.removeprefix("file:"))
    with secrets(database, tmp_path) as ways:
        checkpoints = tmp_path / "checkpoints"
        told = [use(spark, one, checkpoints / one.role) for one in ways]
        written = files(events, checkpoints)
        assert any(name.startswith(os.fspath(events)) for name in written)
        shown = pages(str(spark.sparkContext.uiWebUrl))
        assert any("postgres_cdc" in text for text in shown.values())
        found = {"told": "\n".join([*told, capsys.readouterr().out]), **written, **shown}
        assert leaks(found, ways) == []
