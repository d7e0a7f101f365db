"""Hold what the spans of a batch are made of: trace contexts of commits, and when each stage did its work.

Plain data, so that it can be measured where nothing exports spans. It comes to the driver as text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from headrace.model.lsn import Lsn
from headrace.model.stage import Stage

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_INVALID_VERSION, _SAMPLED = "ff", 1


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The span of an application that a commit belongs to (W3C Trace Context).

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        is_sampled: whether the application records its trace.
    """

    trace_id: str
    span_id: str
    is_sampled: bool = True


def parse_traceparent(text: str) -> TraceContext | None:
    """Read the value of a header `traceparent`; None where it is none."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == _INVALID_VERSION or (version == "00" and more) or not int(trace_id, 16) * int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


@dataclass(frozen=True, slots=True)
class CommitContext:
    """A trace context that came with a commit.

    Attributes:
        commit_lsn: where the commit record begins (bytes).
        commit_time: microseconds since 1970-01-01 UTC.
        context: None where the application wrote something else.
    """

    commit_lsn: Lsn
    commit_time: int
    context: TraceContext | None


@dataclass(frozen=True, slots=True)
class StageSpan:
    """From when to when a task worked at a stage for a sink.

    Attributes:
        sink: the name of a secondary sink; empty: the primary one.
        stage: the stage.
        error: the code of the error of attempts that failed; empty: they succeeded.
        begin, end: of the first and the last of these attempts, nanoseconds since 1970-01-01 UTC.
    """

    sink: str
    stage: Stage
    error: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class TaskTrace:
    """What a task reports for the trace of its batch."""

    contexts: tuple[CommitContext, ...] = ()
    spans: tuple[StageSpan, ...] = ()

    def to_text(self) -> str:
        """Return it as JSON."""
        contexts = [
            (each.commit_lsn, each.commit_time)
            if each.context is None
            else (each.commit_lsn, each.commit_time, each.context.trace_id, each.context.span_id)
            for each in self.contexts
        ]
        spans = [(each.sink, each.stage, each.error, each.begin, each.end) for each in self.spans]
        return json.dumps({"contexts": contexts, "spans": spans})

    @classmethod
    def from_text(cls, text: str) -> TaskTrace:
        """Read what `to_text` wrote; an empty text is an empty trace."""
        if not text:
            return cls()
        values = json.loads(text)
        return cls(
            tuple(
                CommitContext(lsn, time, TraceContext(*context) if context else None)
                for lsn, time, *context in values["contexts"]
            ),
            tuple(StageSpan(sink, Stage(stage), *rest) for sink, stage, *rest in values["spans"]),
        )
