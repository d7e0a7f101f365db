"""Does the wheel alone, in an empty environment, tell the demo's story to its end?"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.timeout(1800)  # PySpark is large
def test_the_wheel_alone_runs_the_demo(tmp_path: Path) -> None:
    """It is that of HEADRACE_TEST_DIST, else one that is built now."""
    named = os.environ.get("HEADRACE_TEST_DIST")
    dist = tmp_path if named is None else ROOT / named
    if named is None:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(dist), "-t", "wheel"], cwd=ROOT, check=True
        )
    [wheel] = dist.glob("*.whl")
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    install = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", f"{wheel}[demo]"]
    subprocess.run(install, env=variables, cwd=tmp_path, check=True)
    done = subprocess.run(
        [environment / "bin/headrace", "demo", "--once"],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every index is right" in done.stdout + done.stderr
