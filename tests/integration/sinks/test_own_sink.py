"""The sink that docs/sinks.md shows is one: its own tests, as they stand there, pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace.errors import HeadraceError, Kind
from headrace.sinks.kinds import kinds, open_sink
from headrace.testing.memory_sink import MemorySink

PAGE = Path(__file__).parents[3] / "docs" / "sinks.md"


def package(folder: Path, declared: str) -> None:
    """As if it were installed there."""
    info = folder / "ours-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[headrace.sinks]\n{declared}\n")


def test_the_example_passes_the_tests_that_every_sink_passes(tmp_path: Path) -> None:
    text = PAGE.read_text()
    modules = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for name, code in modules:
        (tmp_path / name).write_text(code)
    assert [name for name, _ in modules] == ["sqlite_sink.py", "test_sqlite_sink.py"]
    assert len(modules[0][1].splitlines()) < 60
    [declared] = re.findall(r'^\[project\.entry-points\."headrace\.sinks"\]\n(.*?)\n```', text, re.MULTILINE)
    package(tmp_path, declared.replace('"', ""))
    source = str(Path(headrace.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sqlite_sink.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([source, str(tmp_path)])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "15 passed" in done.stdout


def test_what_is_not_installed_or_cannot_be_loaded_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "memory = headrace.testing.memory_sink:made\nbroken = no_such_module:made")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"memory", "broken"} <= set(kinds())
    assert isinstance(open_sink("memory", {}), MemorySink)
    with pytest.raises(HeadraceError, match="cannot be loaded") as caught:
        open_sink("broken", {})
    assert caught.value.kind is Kind.DEPENDENCY
    with pytest.raises(HeadraceError, match="memroy") as caught:
        open_sink("memroy", {})
    assert caught.value.kind is Kind.CONFIG
    assert "memory" in caught.value.remedy
