"""What several writers report is one picture of each sink."""

from __future__ import annotations

from headrace.errors import HeadraceError, Kind
from headrace.model.stage import Stage
from headrace.sinks.activity import (
    ActivityReport,
    BackfillCounter,
    BackfillReport,
    RejectionsReport,
    StageReport,
)
from headrace.status import IndexPhase, Phase, StatusBoard
from headrace.status.metrics import registry
from headrace.status.sinks import SinkActivity, TaskActivity, parse_report

BUSY = ("SINK_BUSY", "the cluster is full", "Look at its disk")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def report(
    writer: str = "a", *, sink: str = "main", failure: tuple[str, ...] = (), **more: int
) -> ActivityReport:
    given = {"bulk_bytes": 1_000, "in_flight": 1, "retries": 0, **more}
    return ActivityReport("run", sink, writer, **given, lasts=60.0, failure=failure)  # type: ignore[arg-type]


def test_writers_are_counted_together_and_the_most_careful_gives_the_size() -> None:
    board = StatusBoard()
    board.sinks.take(report("a", bulk_bytes=500, retries=2))
    board.sinks.take(report("b", in_flight=2, retries=3))
    board.sinks.take(report("b", sink="other"))
    assert board.view().sinks == (SinkActivity("main", 500, 3, 5), SinkActivity("other", 1_000, 1, 0))
    assert board.snapshot()["sinks"]["main"] == {
        "bulk_bytes": 500,
        "in_flight": 3,
        "retries": 5,
        "error": None,
    }
    numbers = registry(board)
    for name, value in (("bulk_bytes", 500), ("bulks_in_flight", 3), ("retries_total", 5), ("waiting", 0)):
        assert numbers.get_sample_value(f"headrace_sink_{name}", {"sink": "main"}) == value


def test_of_a_writer_that_is_silent_only_its_count_stays() -> None:
    clock = Clock()
    board = StatusBoard(clock=clock)
    board.sinks.take(report("a", bulk_bytes=500, retries=2, failure=BUSY))
    clock.now = 61.0
    board.sinks.take(report("b", retries=1))
    assert board.view().sinks == (SinkActivity("main", 1_000, 1, 3),)


def test_a_writer_that_waits_makes_the_run_degraded_with_its_reason() -> None:
    clock = Clock()
    board = StatusBoard(["users"], clock=clock)
    board.enter(Phase.LIVE)
    board.index("users", phase=IndexPhase.LIVE)
    board.sinks.take(report(failure=BUSY))
    assert board.ready, "what passes at once is no failure"
    clock.now = 1.0
    board.sinks.take(report(failure=BUSY))
    shown = board.snapshot()
    assert (shown["phase"], shown["ready"]) == ("degraded", False)
    assert shown["reason"] == "degraded: [HEADRACE_SINK_BUSY] the cluster is full. Look at its disk"
    assert shown["sinks"]["main"]["error"] == str(HeadraceError(Kind[BUSY[0]], *BUSY[1:]))
    assert registry(board).get_sample_value("headrace_sink_waiting", {"sink": "main"}) == 1
    board.sinks.take(report())
    assert board.ready


def test_the_task_that_is_silent_for_the_longest_time_is_known() -> None:
    clock = Clock()
    board = StatusBoard(clock=clock)

    def tell(worker: str, stage: str, sink: str = "main") -> None:
        clock.now += 1
        board.sinks.take_stage(StageReport("run", sink, worker, stage))

    tell("host:1", "resolve", sink="other")
    assert board.sinks.oldest_task("main") is None
    tell("host:1", "resolve")
    tell("host:2", "resolve")
    tell("host:1", "assemble")
    assert board.sinks.oldest_task("main") == TaskActivity("host:2", Stage.RESOLVE, 3.0)
    assert board.sinks.last == 4.0, "a stage that ends is progress"
    tell("host:2", "")
    assert board.sinks.oldest_task("main") == TaskActivity("host:1", Stage.ASSEMBLE, 4.0)


def test_a_run_that_has_stopped_is_not_degraded() -> None:
    clock = Clock()
    board = StatusBoard(clock=clock)
    board.sinks.take(report(failure=BUSY))
    board.enter(Phase.STOPPED)
    clock.now = 5.0
    assert board.snapshot()["phase"] == "stopped"


def test_a_report_is_what_it_was_when_it_arrives() -> None:
    rejected, stage = RejectionsReport("run", "main", ("a", "b")), StageReport("run", "main", "w", "")
    written = BackfillReport("run", "main", "job", 1, {"users_ab_1": (3, 1)})
    for one in (report(), report(failure=BUSY), rejected, stage, written):
        assert parse_report(one.to_bytes()) == one
    for strange in (b"", b"{}", b"[1]", b'{"run": "run", "sink": "main"}'):
        assert parse_report(strange) is None


def test_only_a_process_with_a_task_of_the_stream_makes_progress_for_it() -> None:
    """A backfill beside a stream that stands still writes documents too."""
    clock = Clock()
    sinks = StatusBoard(clock=clock).sinks
    sinks.take_stage(StageReport("run", "main", "host:1", "resolve"))
    clock.now = 10.0
    sinks.take(report("host:2:a", accepted=3, in_flight=4))
    assert (sinks.last, sinks.of_tasks("main")) == (0.0, None)
    sinks.take(report("host:1:b", accepted=1))
    assert sinks.last == 10.0
    assert sinks.of_tasks("main") == SinkActivity("main", 1_000, 1, 0)
    sinks.take_stage(StageReport("run", "main", "host:1", ""))
    assert sinks.of_tasks("main") is None


def test_what_the_tasks_of_a_backfill_write_is_known_while_they_run() -> None:
    """A repeated range counts once; a task that is tried again begins anew; an ended job is unknown."""
    sinks = StatusBoard().sinks
    sent: list[BackfillReport] = []

    class Counter(BackfillCounter):
        def _report(self) -> None:
            sent.append(BackfillReport("run", "main", "job", self._task, dict(self._written)))

    first, second = Counter(None, "job", 0), Counter(None, "job", 1)
    list(first.count("users_1", range(10)))
    first.finish("users_1", 9)
    list(first.count("users_1", range(5)))
    list(first.count("users_1", range(3)))  # again
    first.finish("users_1", 3)
    second.finish("users_1", 100)
    second.finish("orders_1", 7)
    with sinks.backfill_job("job") as written:
        assert written("users_1") == (0, 0)
        for told in sent:
            report = parse_report(told.to_bytes())
            assert isinstance(report, BackfillReport)
            sinks.take_backfill(report)
        assert (written("users_1"), written("orders_1")) == ((112, 3), (7, 1))
        Counter(None, "job", 1).finish("users_1", 1)
        sinks.take_backfill(sent[-1])
        assert written("users_1") == (13, 3)
    sinks.take_backfill(sent[0])
    with sinks.backfill_job("job") as written:
        assert written("users_1") == (0, 0)
