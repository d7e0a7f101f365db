"""What a collector receives, and that one which is away, refuses or hangs holds nobody up."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from headrace.embedded.processes import free_port, until
from headrace.model.stage import Stage
from headrace.model.trace import CommitContext, StageSpan, TaskTrace, TraceContext
from headrace.reporter import SilentReporter
from headrace.status.traces import SpanServer, SpanServers, TracedBatch, open_traces
from support.otlp_receiver import OtlpReceiver, attributes_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLUSTER = SpanServer("opensearch", "127.0.0.1", 9200)
DATABASE = SpanServer("postgresql", "127.0.0.1", 5432, "shop")
MANY = 10_000


class Told(SilentReporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, text: str) -> None:
        self.lines.append(f"warning: {text}")

    def info(self, text: str) -> None:
        self.lines.append(text)


def batch(number: int) -> TracedBatch:
    now = time.time_ns()
    return TracedBatch(
        number=number,
        start="0/100",
        end="0/200",
        counts={"changes": 1},
        captured=(now, now),
        confirmed=(now, now),
        task=TaskTrace(
            (CommitContext(1, now // 1000, TraceContext(TRACE, "00f067aa0ba902b7")),),
            (StageSpan("", Stage.WRITE, "", now, now),),
        ),
        servers=SpanServers(DATABASE, CLUSTER, {"": CLUSTER}),
    )


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as running:
        yield running


def variables(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> dict[str, str]:
    """The library reads the environment of the process."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}


def test_what_was_recorded_is_sent_at_the_end(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    with open_traces(variables(monkeypatch, receiver.endpoint), "slot", Told()) as traces:
        assert traces is not None
        traces.record(batch(7))
        assert receiver.requests == 0
    assert {span.name for span in receiver.spans()} == {
        "headrace.batch",
        "headrace.capture",
        "headrace.write",
        "headrace.confirm",
        "headrace.apply",
    }
    [root] = receiver.spans("headrace.batch")
    assert attributes_of(root)["headrace.batch.id"] == 7
    [apply] = receiver.spans("headrace.apply")
    assert apply.trace_id.hex() == TRACE
    assert receiver.services == {"headrace"}


def test_a_collector_that_hangs_holds_nobody_up(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.hangs = True
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")  # s; the library's own end comes too late
    with open_traces(variables(monkeypatch, receiver.endpoint), "slot", Told()) as traces:
        assert traces is not None
        traces.record(batch(0))
        assert until(lambda: receiver.requests > 0, 30)
        began = time.monotonic()
        for number in range(MANY // 10):
            traces.record(batch(number))
        assert time.monotonic() - began < 30, "the queue is bounded, and what does not fit is dropped"
        began = time.monotonic()
    assert time.monotonic() - began < 20, "closing waits for some seconds only"


def test_a_collector_that_is_away_is_told_once_and_that_it_is_back_too(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    receiver.status = 400
    with open_traces(variables(monkeypatch, receiver.endpoint), "slot", told) as traces:
        assert traces is not None
        for number in range(3):
            asked = receiver.requests
            traces.record(batch(number))
            assert until(lambda asked=asked: receiver.requests > asked, 30)  # type: ignore[misc]
        receiver.status = 200
        traces.record(batch(3))
        assert until(lambda: len(told.lines) == 2, 30)
    assert told.lines[0].startswith("warning: the collector of traces does not take spans")
    assert told.lines[1] == "the collector of traces takes spans again"
    sent = [attributes_of(span)["headrace.batch.id"] for span in receiver.spans("headrace.batch")]
    assert sent in ([3], [2, 3]), "the end of the third may have come with what follows it"


def test_closing_does_not_wait_for_a_collector_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with open_traces(variables(monkeypatch, endpoint), "slot", Told()) as traces:
        assert traces is not None
        traces.record(batch(0))
        began = time.monotonic()
    assert time.monotonic() - began < 20
