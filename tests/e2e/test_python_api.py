"""Do the programs of docs/guides/python.md do what the page says, and is nothing left behind them?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace

PAGE = Path(__file__).parents[2] / "docs/guides/python.md"

AROUND = """
import json, os, pathlib, threading, time
import psutil

def left():
    me = psutil.Process()
    ports = [c.laddr.port for c in me.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    # A thread that Python did not start stays in its list, as a dummy, when it has logged and ended.
    threads = [one.name for one in threading.enumerate() if not isinstance(one, threading._DummyThread)]
    return {{"threads": threads, "children": [c.name() for c in me.children(True)], "ports": ports,
        "environment": sorted(os.environ)}}

import pyspark.sql, headrace.pipeline.pipeline  # what is made at an import is not the run's
before = left()
program = compile(pathlib.Path({program!r}).read_text(), "docs/guides/python.md", "exec")
for _ in range({times}):
    exec(program, {{}})
end = time.monotonic() + 5
while left() != before and time.monotonic() < end:
    time.sleep(0.1)  # py4j's own thread looks once a second whether it is to end
print("LEFT", json.dumps([before, left()]))
"""


def programs(title: str) -> list[str]:
    """The programs below a heading."""
    [text] = [one for one in PAGE.read_text().split("\n## ") if one.startswith(f"{title}\n")]
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def pipeline(deploy: Deploy) -> Iterator[Headrace]:
    with deploy(users=20) as made:
        yield made


def ran(pipeline: Headrace, program: str, *, times: int = 1) -> tuple[str, dict[str, set[object]]]:
    """What a program of the page prints, and what it leaves behind that was not there before."""
    folder = pipeline.config.parent
    file = folder / "program.py"
    file.write_text(program)
    known = {"DB": pipeline.shop.url, "SEARCH": pipeline.sink_url}
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", AROUND.format(program=str(file), times=times)],
        cwd=folder,
        env={**os.environ, **known, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said, _, rest = done.stdout.rpartition("LEFT ")
    before, after = json.loads(rest)
    return said, {
        name: set(after[name]) - set(before[name]) for name in before if before[name] != after[name]
    }


@pytest.mark.long
def test_a_deployment_is_run_twice_in_one_process_and_leaves_nothing(pipeline: Headrace) -> None:
    [program, _] = programs("Run a deployment")
    said, left = ran(pipeline, program, times=2)
    assert said.split() == ["live", "live"]
    assert left == {}
    assert pipeline.differences() == []


@pytest.mark.long
def test_it_runs_in_a_session_of_ones_own(pipeline: Headrace) -> None:
    [_, program] = programs("Run a deployment")
    ran(pipeline, program)
    assert pipeline.differences() == []


OUTLIVED = """
import os, signal, sys
import headrace
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[2]").getOrCreate()
java = spark.sparkContext._gateway.proc
try:
    with headrace.Pipeline.from_file("headrace.toml").start(spark=spark) as running:
        running.wait_ready(timeout=120)
        {end}
        running._thread.join(60)
except headrace.HeadraceError as error:
    print(error.kind.name, error.cause)
java.kill()
java.wait()
"""


@pytest.mark.long
@pytest.mark.parametrize("end", ["spark.stop()", "java.kill()"])
def test_a_session_that_ends_before_the_run_is_told(pipeline: Headrace, end: str) -> None:
    said, _ = ran(pipeline, OUTLIVED.format(end=end))
    assert "SPARK the Spark session that the pipeline was given has ended" in said


@pytest.mark.long
def test_values_are_a_deployment_too(pipeline: Headrace) -> None:
    [program] = programs("Say it with values")
    said, left = ran(pipeline, program)
    assert "CREATE PUBLICATION" in said
    assert left == {}


def test_what_a_field_costs_is_told(pipeline: Headrace) -> None:
    [program] = programs("What a field costs")
    said, left = ran(pipeline, program)
    assert said.startswith("20 documents of ")
    assert "orders ()" in said
    assert left == {}


@pytest.mark.long
def test_what_is_committed_is_waited_for_verified_and_rebuilt(pipeline: Headrace) -> None:
    [program] = programs("Read your own write, verify, rebuild")
    said, left = ran(pipeline, program)
    first, second = re.findall(r"readers see (\S+)", said)
    assert first != second
    assert left == {}
    assert pipeline.documents("users")["1"]["email"] == "new@example.org"


@pytest.mark.long
def test_a_program_pauses_and_resumes_its_run(pipeline: Headrace) -> None:
    [program] = programs("Pause and resume, refused documents, log level")
    said, left = ran(pipeline, program)
    assert said.split("\n")[0] == "paused by the nightly load"
    assert left == {}


@pytest.mark.long
def test_a_log_is_told(pipeline: Headrace) -> None:
    [program] = programs("Hear what happens")
    _, left = ran(pipeline, program)
    assert left == {}


def test_a_mistake_is_an_error_with_its_remedy(pipeline: Headrace) -> None:
    [program] = programs("Errors")
    said, left = ran(pipeline, program)
    assert "CONFIG · 'there-is-no.toml'" in said
    assert left == {}
