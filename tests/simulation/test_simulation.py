"""Thousands of schedules against the simulated world, and mistakes that they must find."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipeline.controller.reconcile import reconcile
from simulation.mistakes import MISTAKES
from simulation.schedule import Schedule, run

_SCHEDULES, _PARTS = 2_000, 4
_MOST = 12_000
_FIND = """
import sys
from simulation.mistakes import find
found = find(sys.argv[1], int(sys.argv[2]))
print("not found" if found is None else f"found by schedule {found[0]}: {found[1]}")
"""


@pytest.mark.parametrize("part", range(_PARTS))
def test_every_schedule_ends_with_every_unit_live_and_right(part: int) -> None:
    size = _SCHEDULES // _PARTS
    violations = (run(seed) for seed in range(part * size, (part + 1) * size))
    first = next((violation for violation in violations if violation is not None), None)
    assert first is None, str(first)


@pytest.mark.parametrize("name", list(MISTAKES))
def test_the_line_that_a_mistake_replaces_is_there(name: str) -> None:
    mistake = MISTAKES[name]
    source = inspect.getsource(importlib.import_module(mistake.name))
    assert source.count(mistake.right) == 1


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_planted_mistake_is_found(name: str) -> None:
    tests = Path(__file__).parents[1]
    found = subprocess.run(
        [sys.executable, "-c", _FIND, name, str(_MOST)],
        cwd=tests,
        env={"PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith("found by schedule"), found.stdout


def test_a_world_that_is_as_it_should_be_gives_no_action() -> None:
    schedule = Schedule(7)
    schedule.run()
    process = schedule.process
    assert process is not None
    for _ in range(3):
        assert reconcile(*process.look(process.controller.failures)) == ()


def test_the_same_seed_tells_the_same_story() -> None:
    stories = []
    for _ in range(2):
        schedule = Schedule(11)
        schedule.run()
        stories.append(schedule.tale())
    assert stories[0] == stories[1]
