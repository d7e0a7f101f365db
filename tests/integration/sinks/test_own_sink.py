"""The sink that docs/guides/sinks.md shows is one: its own tests, as they stand there, pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace.errors import HeadraceError, Kind
from headrace.sinks.registry import kinds, open_sink
from headrace.testing.memory_sink import MemorySink
from integration.sinks.documented_sink import install, modules, package


def test_the_example_passes_the_tests_that_every_sink_passes(tmp_path: Path) -> None:
    install(tmp_path)
    assert len(modules()["sqlite_sink.py"].splitlines()) < 60
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
    offered = ("memory = headrace.testing.memory_sink:made", "broken = no_such_module:made")
    package(tmp_path, "\n".join([*offered, "shut = sqlite3:connect"]))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"memory", "broken"} <= set(kinds())
    assert isinstance(open_sink("memory", {}), MemorySink)
    with pytest.raises(HeadraceError, match="cannot be loaded") as caught:
        open_sink("broken", {})
    assert caught.value.kind is Kind.DEPENDENCY
    with pytest.raises(HeadraceError, match="'shut' cannot be opened: TypeError") as caught:
        open_sink("shut", {})
    assert caught.value.kind is Kind.SINK_BUSY
    with pytest.raises(HeadraceError, match="memroy") as caught:
        open_sink("memroy", {})
    assert caught.value.kind is Kind.CONFIG
    assert "memory" in caught.value.remedy
