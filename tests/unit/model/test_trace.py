"""A header `traceparent` is read as the W3C defines it; what a task measured comes back from its text."""

from __future__ import annotations

import pytest

from headrace.model.stage import Stage
from headrace.model.trace import CommitContext, StageSpan, TaskTrace, TraceContext, parse_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_traceparent_names_a_span_and_whether_it_is_recorded() -> None:
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-01") == TraceContext(TRACE, SPAN, is_sampled=True)
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-03") == TraceContext(TRACE, SPAN, is_sampled=True)
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-00") == TraceContext(TRACE, SPAN, is_sampled=False)


def test_a_later_version_may_say_more() -> None:
    assert parse_traceparent(f"cc-{TRACE}-{SPAN}-01-what-it-says") == TraceContext(TRACE, SPAN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


def test_what_a_task_measured_comes_back_from_its_text() -> None:
    trace = TaskTrace(
        (CommitContext(7, 1_000, TraceContext(TRACE, SPAN)), CommitContext(8, 1_001, None)),
        (StageSpan("", Stage.WRITE, "", 1, 2), StageSpan("backup", Stage.RESOLVE, "HEADRACE_X", 3, 4)),
    )
    assert TaskTrace.from_text(trace.to_text()) == trace
    assert TaskTrace.from_text("") == TaskTrace()
