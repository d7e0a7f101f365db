"""Is a program told when Spark's workers would not find what it has installed?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, Kind
from headrace.spark import register


def program(file: Path, options: str = "") -> Path:
    file.write_text(f'#!/bin/sh\nexec {sys.executable} {options} "$@"\n')
    file.chmod(0o755)
    return file


def test_workers_without_headrace_are_refused_by_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with DATA_SOURCE_NOT_FOUND or ModuleNotFoundError, below two hundred lines of Java."""
    bare = program(tmp_path / "python3", "-I -S")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(HeadraceError) as caught:
        register(spark)
    assert caught.value.kind is Kind.DEPENDENCY
    assert f"as {bare}, which does not import headrace" in caught.value.cause
    assert f"PYSPARK_PYTHON={sys.executable}" in caught.value.remedy

    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HeadraceError, match="does not import headrace"):
        register(spark)


def test_other_programs_that_find_headrace_are_taken(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program(tmp_path / "python")))
    register(spark)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    register(spark)
