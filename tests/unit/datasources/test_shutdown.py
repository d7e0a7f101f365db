"""Is the last line of a process heard whose own standard error nobody reads any more?"""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.datasources.shutdown import print_notice, slot_notice

_CHILD = """
import os, sys
from headrace.datasources.shutdown import print_notice
os.close(2)
print_notice("still here", unheard=True)
"""
_PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"


def test_a_line_goes_to_whoever_reads_the_parent() -> None:
    """Linux shows the files of another process of one's own; elsewhere the line is lost."""
    found = subprocess.run(
        [sys.executable, "-c", _PARENT, _CHILD], capture_output=True, text=True, check=True
    )
    assert found.stderr == "still here\n"


def test_a_line_goes_to_our_own_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_notice(slot_notice("my_job"), unheard=False)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "SELECT pg_drop_replication_slot('my_job')" in said
