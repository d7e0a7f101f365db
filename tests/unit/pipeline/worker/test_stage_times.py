import contextlib
import time
from collections.abc import Iterator

import pyarrow as pa

from headrace.model import CHANGES_SCHEMA, DocumentOperation
from headrace.pipeline.worker.stage_times import StageTimes
from headrace.pipeline.worker.task import Task


def test_the_time_of_reading_and_that_of_writing_are_told_apart() -> None:
    times = StageTimes()

    def read() -> Iterator[DocumentOperation]:
        for number in range(3):
            time.sleep(0.02)
            yield DocumentOperation("users", str(number), 1, b"{}")

    with times.writing():
        for _ in times.assembling(read()):
            time.sleep(0.05)
    assert times.assembled == 3
    assert times.assemble_seconds >= 0.06
    assert times.write_seconds >= 0.15
    assert times.assemble_seconds < times.write_seconds


def fail_after(seconds: float, times: StageTimes) -> None:
    with times.writing():
        time.sleep(seconds)
        raise OSError


def test_a_failure_while_writing_counts_too() -> None:
    times = StageTimes()
    with contextlib.suppress(OSError):
        fail_after(0.02, times)
    assert times.write_seconds >= 0.02


def test_changes_are_counted_by_table() -> None:
    rows = [{"schema": "public", "table": table, "op": "u"} for table in ("users", "users", "orders")]
    task = Task(pa.Table.from_pylist(rows, schema=CHANGES_SCHEMA), 1, 1)
    assert task.count_by_table() == {"public.users": 2, "public.orders": 1}
    assert Task(CHANGES_SCHEMA.empty_table(), 1, 1).count_by_table() == {}
