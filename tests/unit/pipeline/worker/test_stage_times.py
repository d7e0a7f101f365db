import contextlib
import time
from collections.abc import Iterator

import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA, DocumentOperation
from headrace.model.stage import Stage
from headrace.model.trace import StageSpan
from headrace.pipeline.worker.stage_times import StageTimes
from headrace.pipeline.worker.task import Task


def test_the_time_of_reading_and_that_of_writing_are_told_apart() -> None:
    times = StageTimes()

    def read() -> Iterator[DocumentOperation]:
        for number in range(3):
            time.sleep(0.02)
            yield DocumentOperation("users", str(number), 1, b"{}")

    began = time.monotonic()
    with times.writing():
        for _ in times.assembling(read()):
            time.sleep(0.05)
    took = time.monotonic() - began
    assert times.assembled == 3
    assert times.assemble_seconds >= 0.06
    assert times.write_seconds >= 0.15
    assert times.assemble_seconds + times.write_seconds <= took + 0.001, "no time counts twice"


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
    task = Task(pa.Table.from_pylist(rows, schema=CHANGES_SCHEMA), 1)
    assert task.count_by_table() == {"public.users": 2, "public.orders": 1}
    assert Task(CHANGES_SCHEMA.empty_table(), 1).count_by_table() == {}


def operations(count: int, error: HeadraceError | None = None) -> Iterator[DocumentOperation]:
    for number in range(count):
        time.sleep(0.01)
        yield DocumentOperation("users", str(number), 1, b"{}")
    if error is not None:
        raise error


def spans_of(times: StageTimes) -> dict[tuple[Stage, str], StageSpan]:
    return {(span.stage, span.error): span for span in times.spans("backup")}


def test_each_stage_has_one_span_by_the_clock_of_the_system() -> None:
    began, times = time.time_ns(), StageTimes()
    with times.resolving():
        time.sleep(0.01)
    for _ in range(3):
        with times.writing():
            assert len(list(times.assembling(operations(2)))) == 2
    spans, ended = spans_of(times), time.time_ns()
    assert set(spans) == {(Stage.RESOLVE, ""), (Stage.ASSEMBLE, ""), (Stage.WRITE, "")}
    assert {span.sink for span in spans.values()} == {"backup"}
    resolve, assemble, write = (spans[stage, ""] for stage in (Stage.RESOLVE, Stage.ASSEMBLE, Stage.WRITE))
    slack = 1_000_000
    assert began - slack <= resolve.begin < resolve.end <= assemble.begin
    assert assemble.begin + 9_000_000 < write.begin, "the first document is read before anything is written"
    assert assemble.end <= write.end <= ended + slack
    assert assemble.end - assemble.begin >= 60_000_000


def test_attempts_that_fail_are_spans_of_their_own() -> None:
    times, busy = StageTimes(), HeadraceError(Kind.SINK_BUSY, "later")
    for _ in range(2):
        with contextlib.suppress(HeadraceError), times.writing():
            next(times.assembling(operations(2)))
            raise busy
    with times.writing():
        list(times.assembling(operations(1)))
    assert set(spans_of(times)) == {(Stage.ASSEMBLE, ""), (Stage.WRITE, busy.code), (Stage.WRITE, "")}


def test_a_sink_has_no_part_in_documents_that_cannot_be_read() -> None:
    times, gone = StageTimes(), HeadraceError(Kind.CONNECTION, "gone")
    with contextlib.suppress(HeadraceError), times.writing():
        list(times.assembling(operations(1, gone)))
    with contextlib.suppress(HeadraceError), times.resolving():
        raise gone
    assert set(spans_of(times)) == {(Stage.ASSEMBLE, gone.code), (Stage.RESOLVE, gone.code)}
