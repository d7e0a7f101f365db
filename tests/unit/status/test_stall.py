"""When a stream stands still, and when it only seems to."""

from __future__ import annotations

import pytest

from headrace.model.stage import Stage
from headrace.status import StatusBoard
from headrace.status.metrics import registry
from headrace.status.stall import Diagnosis, StallCause, StallDetector


class Stream:
    """A detector of a stream whose source is asked for a batch again and again, and a clock."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.asked: float | None = None
        self.detector = StallDetector(lambda: self.now, 40.0)
        self.detector.watch(lambda: 0.0 if self.asked is None else self.now - self.asked)
        self.detector.note_first_batch()

    def stalls(self) -> bool:
        return self.detector.view(heard=0.0) is not None

    def look(
        self, seconds: float, behind: float | None = 0.0, *, decodes: bool = False, **reached: int
    ) -> None:
        """Let time pass, then look."""
        self.now += seconds
        self.detector.note_look(reached, behind, decodes=decodes)


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_the_first_batch_may_take_a_minute_more_because_processes_start_for_it(stream: Stream) -> None:
    stream.detector.watch(lambda: stream.now - 1_000.0)
    stream.now += 99
    assert not stream.stalls()
    stream.now += 2
    assert stream.stalls()
    stream.detector.watch(lambda: stream.now - 1_101.0)
    stream.detector.note_first_batch()
    stream.now += 41
    assert stream.stalls()


def test_a_server_without_news_is_no_stall(stream: Stream) -> None:
    for _ in range(3_600):
        stream.look(1, confirmed=5, applied=5, sent=5)
        assert not stream.stalls()


def test_a_slot_that_stands_still_while_the_server_moves_is_one_within_a_minute(stream: Stream) -> None:
    stream.look(1, confirmed=5, sent=5)
    for second in range(60):
        stream.look(1, behind=second, confirmed=5, sent=5)
        assert stream.stalls() is (second > 40)


@pytest.mark.parametrize("moving", ["confirmed", "applied", "batches", "sent"])
def test_whatever_advances_is_progress(stream: Stream, moving: str) -> None:
    for second in range(600):
        stream.look(1, float(second), **{"confirmed": 5, "sent": 5, moving: 5 + second})  # type: ignore[arg-type]
        assert not stream.stalls()


def test_a_position_that_falls_back_and_comes_again_is_no_progress(stream: Stream) -> None:
    """As of a walsender that is started again and again."""
    for second in range(60):
        stream.look(1, behind=float(second), confirmed=5, sent=5 + second % 3)
    assert stream.stalls()


def test_a_large_transaction_that_the_server_decodes_is_no_stall(stream: Stream) -> None:
    for second in range(600):
        stream.look(1, behind=float(second), decodes=True, confirmed=5, sent=5)
        assert not stream.stalls()


def test_a_batch_that_hangs_is_one_also_where_the_server_decodes_on(stream: Stream) -> None:
    stream.asked = stream.now
    for second in range(50):
        stream.look(1, behind=float(second), decodes=True, confirmed=5, sent=5 + second)
    assert stream.stalls()


def test_work_on_a_batch_is_progress_and_its_end_too(stream: Stream) -> None:
    stream.asked = stream.now
    for second in range(600):
        stream.look(1, behind=float(second), confirmed=5, sent=5)
        if second % 35 == 0:
            stream.detector.note_work()
        assert not stream.stalls()
    stream.asked = None
    stream.look(1, confirmed=6, sent=6)
    assert not stream.stalls()


def test_a_look_that_hangs_says_nothing_of_the_server(stream: Stream) -> None:
    """A supervisor may be busy for a minute, as while it compares the ids of a large index."""
    stream.look(1, behind=12.0, confirmed=5)
    stream.now += 60
    assert not stream.stalls()
    stream.asked = stream.now - 60
    assert stream.stalls()


def test_nothing_is_watched_before_the_first_batch_and_after_the_query(stream: Stream) -> None:
    stream.look(100, behind=100.0)
    assert stream.stalls()
    stream.detector.watch(lambda: None)
    stream.look(100, behind=100.0)
    assert not stream.stalls()
    stream.detector.watch(None)
    stream.look(100, behind=100.0)
    assert not stream.stalls()


def test_a_stall_is_shown_with_its_diagnosis_and_goes_away_with_it() -> None:
    now = [0.0]
    board = StatusBoard(clock=lambda: now[0])
    numbers = registry(board)
    board.stall.watch(lambda: now[0])
    board.stall.note_first_batch()
    name, labels = "headrace_stalled", {"stage": "assemble", "cause": "lock"}
    assert numbers.get_sample_value(name, {"stage": "assemble", "cause": "none"}) == 0
    now[0] = 46.0
    assert numbers.get_sample_value(name, {"stage": "unknown", "cause": "unknown"}) == 1
    board.stall.diagnosis = Diagnosis(Stage.ASSEMBLE, StallCause.LOCK, "it waits for pid 7", "End it.")
    assert numbers.get_sample_value(name, labels) == 1
    said = "[HEADRACE_STALLED] the stream stands still at the stage assemble: it waits for pid 7. End it."
    assert board.view().unready == f"stalled: {said}"
    board.stall.note_work()
    assert numbers.get_sample_value(name, labels) is None
    assert board.view().stalled is None


def test_a_stream_that_is_paused_does_not_stall_and_may_stall_again_afterwards(stream: Stream) -> None:
    for second in range(120):
        stream.look(1, behind=second, confirmed=5)
        stream.detector.note_pause()
        assert not stream.stalls()
    for second in range(60):
        stream.look(1, behind=120 + second, confirmed=5)
        assert stream.stalls() is (second >= 40)
