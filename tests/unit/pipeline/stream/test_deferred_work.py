"""What ends the writing of deferred documents is told; nothing else would show that they stay unwritten."""

from __future__ import annotations

import time
from typing import cast

from pyspark.sql import SparkSession

from headrace.errors import Kind
from headrace.pipeline.stream.deferred_work import DeferredWork
from headrace.pipeline.worker.plan import Work


def test_what_nobody_expected_is_a_failure_and_no_silence() -> None:
    nothing = cast("Work", None)
    with DeferredWork(cast("SparkSession", None), nothing) as beside:
        deadline = time.monotonic() + 10
        while (failure := beside.failure) is None and time.monotonic() < deadline:
            time.sleep(0.01)
    assert failure is not None
    assert failure.kind is Kind.INTERNAL
    assert "writing what was deferred failed" in failure.cause
