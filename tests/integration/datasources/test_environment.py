"""Is a program told when Spark's workers would not find what it has installed?"""

from __future__ import annotations

import re
import socket
import sys
import threading
import traceback
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import accumulators
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, Kind
from headrace.spark import register
from headrace.spark.session import silence


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


@pytest.mark.long
def test_of_a_trace_our_error_is_the_last_and_nearly_the_only_line(spark: SparkSession) -> None:
    """Fifty lines of our own calls stood before it, and Spark shows them twice."""
    register(spark)
    for name, value, words in (
        ("envelop", "rows", "Did you mean 'envelope'?"),
        ("url", "postgresql://x@127.0.0.1:9/d", "Connection refused"),
    ):
        reader = spark.readStream.format("postgres_cdc").option("slot", "s")
        with pytest.raises(AnalysisException) as caught:
            reader.option("url", "postgresql://x@127.0.0.1:9/d").option(name, value).load("public.t")
        lines = [line for line in str(caught.value).splitlines() if line.strip()]
        ours = [number for number, line in enumerate(lines) if "[HEADRACE_" in line]
        assert words in lines[ours[0]]
        assert ours == [len(lines) - 2], lines  # Spark's SQLSTATE is the last
        assert len(lines) <= 10, lines
        shown = "".join(traceback.format_exception(caught.value))
        assert not re.findall(r"headrace/(?:postgres|capture|catalog)/\w+\.py|options\.py", shown), shown


def test_a_java_that_goes_first_leaves_no_trace_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    start = accumulators._start_update_server
    is_asked = "is_unix_domain_sock" in signature(start).parameters  # since PySpark 4.1
    given: dict[str, Any] = {"is_unix_domain_sock": False} if is_asked else {}
    server = start("secret", **given)
    try:
        context = SimpleNamespace(_accumulatorServer=server)
        assert "Traceback" in ended(server, capfd), "else there is nothing to be kept away"
        silence(context)  # type: ignore[arg-type]
        assert ended(server, capfd) == ""
    finally:
        server.shutdown()


def ended(server: Any, capfd: pytest.CaptureFixture[str]) -> str:
    """What stands on the terminal where a connection ends in the middle."""
    handled = threading.Event()
    close = server.shutdown_request

    def close_and_tell(request: Any) -> None:
        close(request)
        handled.set()

    server.shutdown_request = close_and_tell
    socket.create_connection(server.server_address).close()
    assert handled.wait(10)
    server.shutdown_request = close
    return capfd.readouterr().err
