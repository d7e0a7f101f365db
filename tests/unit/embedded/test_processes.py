"""Processes and their logs."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.embedded.processes import GuardedProcess, descendants, last_line, living, tail, until
from headrace.errors import HeadraceError

_PARENT = "import subprocess, sys; subprocess.run(['sleep', '60'])"


def test_a_kill_takes_the_children_too(tmp_path: Path) -> None:
    process = GuardedProcess([sys.executable, "-c", _PARENT], log=tmp_path / "log")
    assert until(lambda: len(descendants(process.pid)) == 1, 10)
    tree = [process.pid, *descendants(process.pid)]
    assert living(tree) == set(tree)
    process.kill()
    assert not process.running
    assert living(tree) == set()


def test_output_goes_to_the_log_and_the_end_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = GuardedProcess(["/bin/sh", "-c", "echo one; echo two >&2"], log=log)
    assert process.wait(10)
    assert tail(log) == "one\ntwo"


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="/nowhere cannot be started: FileNotFoundError"):
        GuardedProcess(["/nowhere"], log=tmp_path / "log")


def test_an_interrupt_while_it_starts_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 0.6\nexec {shlex.quote(sys.executable)} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    before = set(descendants(os.getpid()))
    former = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            GuardedProcess(["sleep", "60"], log=tmp_path / "log")
    finally:
        signal.signal(signal.SIGALRM, former)
    # On a busy machine they take a moment to go.
    assert until(lambda: not set(descendants(os.getpid())) - before, 30)


def test_the_guard_s_end_is_the_server_s(tmp_path: Path) -> None:
    if sys.platform != "linux":
        return
    process = GuardedProcess(["sleep", "60"], log=tmp_path / "log")
    process._guard.kill()
    assert until(lambda: not living([process.pid]), 10)


def test_a_zombie_does_not_live() -> None:
    with subprocess.Popen(["true"]) as process:
        assert until(lambda: not living([process.pid]), 10)


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert tail(tmp_path / "none") == ""
    assert last_line(tmp_path / "none") == "no output"
