"""What do values of hundreds of megabytes do to a deployment? Nothing, where no document reads them."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace

_MEGABYTES = 450
"""More than half of this and the JVM that once carried it has no room; an UPDATE of a table with REPLICA
IDENTITY FULL has it twice, and PostgreSQL sends no message of a gigabyte."""

_MORE_THAN_THE_HEAP = """
from headrace.spark.session import local_spark
with local_spark(master="local[1]") as spark:
    context = spark.session.sparkContext
    context._gateway.new_array(context._jvm.long, 2**28)
"""


@pytest.mark.long
def test_a_jvm_without_memory_ends_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MORE_THAN_THE_HEAP], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "[HEADRACE_SPARK] Spark's Java process had no memory left and has ended." in done.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_wide_value_that_no_document_reads_stops_nothing(deploy: Deploy) -> None:
    with deploy() as pipeline:
        shop = pipeline.shop
        shop.run("ALTER TABLE users ADD COLUMN wide text", "ALTER TABLE users REPLICA IDENTITY FULL")
        pipeline.start()
        pipeline.wait_ready()
        wide = f"repeat('0123456789', {_MEGABYTES * 100_000})"
        for value, name in ((wide, "wide"), ("NULL", "narrow again")):
            shop.run(f"UPDATE users SET wide = {value}, name = '{name}' WHERE id = 1")
            pipeline.wait_until(partial(_is_called, pipeline, name), f"did not write {name!r}", 240)
        assert pipeline.is_ready()
        pipeline.converges()
        pipeline.terminate()


def _is_called(pipeline: Headrace, name: str) -> bool:
    return bool(pipeline.documents("users")["1"]["name"] == name)
