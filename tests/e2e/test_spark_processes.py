"""Does a run survive the kill of Spark's Python processes, and end in one line where Java is killed?"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

_EVERY_ITEM = "UPDATE order_items SET quantity = quantity % 9 + 1, unit_price = unit_price + 1"
"""One transaction that touches every order and nearly every user."""


@pytest.fixture
def pipeline(deploy: Deploy) -> Iterator[Headrace]:
    with deploy(users=200) as made:
        yield made


def processes(pipeline: Headrace, name: str, word: str) -> list[psutil.Process]:
    """Return the living processes of the run with this name, and this word in their commands."""
    found = []
    for pid in pipeline.members():
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.name().startswith(name) and word in " ".join(process.cmdline()):
                found.append(process)
    return found


def pythons(pipeline: Headrace) -> list[psutil.Process]:
    """Return Spark's Python processes: the daemon, its workers, and the one that reads the log."""
    return processes(pipeline, "python", "pyspark")


def kill_pythons(pipeline: Headrace) -> None:
    """Kill -9 all of them at once, as a machine without memory may."""
    killed = pythons(pipeline)
    assert killed, "no worker runs"
    for process in killed:
        with suppress(psutil.NoSuchProcess):
            os.kill(process.pid, signal.SIGKILL)


def _at_rest(_pipeline: Headrace) -> None:
    """Change nothing."""


def _in_a_batch(pipeline: Headrace) -> None:
    pipeline.shop.run(_EVERY_ITEM)
    time.sleep(0.3)


def test_killed_python_processes_are_replaced(pipeline: Headrace) -> None:
    """At rest, in a batch, and again before the query that follows has begun."""
    pipeline.start()
    pipeline.wait_ready()
    for prepare in (_at_rest, _in_a_batch, _in_a_batch):
        prepare(pipeline)
        kill_pythons(pipeline)
        pipeline.shop.run("UPDATE users SET name = name || '!' WHERE id % 2 = 0")
        pipeline.converges()
        pipeline.wait_ready()
    pipeline.terminate()


def test_killed_python_processes_do_not_end_a_backfill(pipeline: Headrace) -> None:
    pipeline.start()
    for _ in range(3):
        pipeline.wait_until(lambda: len(pythons(pipeline)) > 2, "started no worker", 120)
        kill_pythons(pipeline)
        time.sleep(2)
    pipeline.wait_ready()
    pipeline.converges()
    pipeline.terminate()


@pytest.mark.parametrize("prepare", [_at_rest, _in_a_batch])
def test_a_killed_java_ends_the_run_in_one_line(
    pipeline: Headrace, prepare: Callable[[Headrace], None]
) -> None:
    pipeline.start()
    pipeline.wait_ready()
    prepare(pipeline)
    before = len(pipeline.output.read_bytes())
    [java] = processes(pipeline, "java", "SparkSubmit")
    java.kill()
    assert pipeline.wait_end() == 1
    told = pipeline.output.read_bytes()[before:].decode().splitlines()
    assert "[HEADRACE_SPARK] Spark's Java process was killed by signal 9" in told[-1], told
    assert "Traceback" not in "\n".join(told)
    pipeline.close()
    pipeline.shop.run("UPDATE users SET name = name || '!'")
    pipeline.start()
    pipeline.wait_ready()
    pipeline.converges()
    pipeline.terminate()
