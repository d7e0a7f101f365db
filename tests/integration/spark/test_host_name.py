"""A local session starts on a machine whose name has no address, as in many containers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headrace

_PROGRAM = """
from headrace.spark.session import local_spark
with local_spark(master="local[1]") as spark:
    print(spark.session.range(3).count())
"""
_RENAMED = ("unshare", "--uts", "sh", "-c", 'hostname nothing.invalid && exec "$@"', "sh")


def may_rename() -> bool:
    """Whether this user may run a program under another host name."""
    try:
        return subprocess.run([*_RENAMED, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.long
@pytest.mark.skipif(not may_rename(), reason="unshare is not there, or not allowed")
def test_a_session_starts_under_a_name_without_an_address() -> None:
    source = str(Path(headrace.__file__).parents[1])
    done = subprocess.run(
        [*_RENAMED, sys.executable, "-c", _PROGRAM],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.split() == ["3"], done.stderr
