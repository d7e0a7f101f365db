"""Does an armed commit point stop exactly the process that reaches it?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_LOOP = (
    "from headrace.model.failpoints import reach\nfor i in range(3): print(i, flush=True); reach('bulk')\n"
)


def _run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _LOOP],
        env=_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
    )


def _environment(**more: str) -> dict[str, str]:
    source = Path(__file__).parents[3] / "src"
    return {**os.environ, "PYTHONPATH": str(source), **more}


@pytest.mark.parametrize("armed", ["", "applied", "bulk:4"])
def test_a_point_that_is_not_armed_or_not_reached_often_enough_is_passed(armed: str) -> None:
    run = _run(HEADRACE_FAILPOINT=armed)
    assert (run.returncode, run.stdout) == (0, "0\n1\n2\n")


@pytest.mark.parametrize(("armed", "printed"), [("bulk", "0\n"), ("bulk:2", "0\n1\n")])
def test_an_armed_point_kills_its_process_as_the_kernel_would(armed: str, printed: str) -> None:
    run = _run(HEADRACE_FAILPOINT=armed)
    assert (run.returncode, run.stdout) == (-signal.SIGKILL, printed)


def test_with_a_mark_the_process_stands_still_until_it_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    environment = _environment(HEADRACE_FAILPOINT="bulk", HEADRACE_FAILPOINT_MARK=str(mark))
    with subprocess.Popen(
        [sys.executable, "-c", _LOOP], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + 20
        while not mark.exists() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        assert mark.read_text() == f"bulk {process.pid}\n"
        assert process.poll() is None
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == "0\n"
