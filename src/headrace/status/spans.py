"""Make spans of batches and export them, with OpenTelemetry's library (the extra `otel`).

The names of attributes are those of the stable semantic conventions for databases, or begin with `headrace.`.
No attribute holds a value of a row, a document, a statement or a secret.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Self

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from headrace.model.lsn import format_lsn
from headrace.model.stage import Stage
from headrace.model.trace import CommitContext, StageSpan, TraceContext
from headrace.reporter import Reporter
from headrace.status.traces import Period, SpanServer, TracedBatch
from headrace.version import __version__

_CLOSE_SECONDS = 3.0
_OPERATIONS = {
    Stage.CAPTURE: "START_REPLICATION",
    Stage.RESOLVE: "SELECT",
    Stage.ASSEMBLE: "SELECT",
    Stage.WRITE: "bulk",
    Stage.CONFIRM: "index",
}
Attributes = dict[str, str | int]


class ExportedTraces:
    """Records batches of a slot with a provider of spans of its own; the program's is left alone."""

    def __init__(self, slot: str, provider: TracerProvider) -> None:
        self._slot = slot
        self._provider = provider
        self._tracer: Tracer = provider.get_tracer("headrace", __version__)

    @classmethod
    def to_collector(cls, slot: str, report: Reporter) -> Self:
        """Export in the background to the collector that the variables name.

        Raises:
            ValueError: a variable cannot be read.
            OSError: a file that a variable names cannot be read.
        """
        # The run closes it, with a time limit: at exit the library would wait for a collector that hangs.
        provider = TracerProvider(resource=service(), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(_ReportedExporter(OTLPSpanExporter(), report)))
        return cls(slot, provider)

    def close(self) -> None:
        """Send what was recorded, for some seconds at most; a collector that hangs holds nobody up."""
        closing = threading.Thread(target=self._provider.shutdown, name="headrace traces", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)

    def record(self, batch: TracedBatch) -> None:
        """Record a batch as a trace, and its commits in the traces of their applications."""
        commits = [(commit, commit.context) for commit in batch.task.contexts if commit.context is not None]
        root = self._tracer.start_span(
            # An empty context follows: where the program traces itself, its spans are not the parents of
            # batches.
            "headrace.batch",
            Context(),
            attributes=self._attributes(batch),
            links=[Link(_remote(context)) for context in dict.fromkeys(context for _, context in commits)],
            start_time=batch.captured[0],
        )
        inside, servers = set_span_in_context(root, Context()), batch.servers
        self._record_stage(inside, Stage.CAPTURE, batch.captured, servers.database)
        for span in batch.task.spans:
            server = servers.sinks.get(span.sink) if span.stage is Stage.WRITE else servers.database
            self._record_stage(inside, span.stage, (span.begin, span.end), server, span)
        self._record_stage(inside, Stage.CONFIRM, batch.confirmed, servers.state)
        durable = max((span.end for span in batch.task.spans if not span.error), default=batch.confirmed[0])
        for commit, context in commits:
            self._record_commit(commit, _remote(context), durable, root)
        root.end(batch.confirmed[1])

    def _attributes(self, batch: TracedBatch) -> Attributes:
        attributes: Attributes = {
            "headrace.slot": self._slot,
            "headrace.batch.id": batch.number,
            "headrace.position.start": batch.start,
            "headrace.position.end": batch.end,
            **{f"headrace.{name}": count for name, count in batch.counts.items()},
        }
        if batch.malformed_contexts:
            attributes["headrace.malformed_contexts"] = batch.malformed_contexts
        return attributes

    def _record_stage(
        self,
        inside: Context,
        stage: Stage,
        period: Period,
        server: SpanServer | None,
        work: StageSpan | None = None,
    ) -> None:
        attributes = {} if server is None else _server_attributes(stage, server)
        if work is not None and work.sink:
            attributes["headrace.sink"] = work.sink
        kind = SpanKind.INTERNAL if server is None else SpanKind.CLIENT
        span = self._tracer.start_span(f"headrace.{stage}", inside, kind, attributes, start_time=period[0])
        if work is not None and work.error:
            span.set_attribute("error.type", work.error)
            span.set_status(Status(StatusCode.ERROR))
        # A stage may report an end before its begin, where two machines took the times.
        span.end(max(period))

    def _record_commit(self, commit: CommitContext, context: SpanContext, durable: int, root: Span) -> None:
        """Record, in the application's trace, the time from a commit to its durable documents."""
        committed = 1000 * commit.commit_time
        span = self._tracer.start_span(
            "headrace.apply",
            set_span_in_context(NonRecordingSpan(context), Context()),
            SpanKind.CONSUMER,
            {"headrace.slot": self._slot, "headrace.commit": format_lsn(commit.commit_lsn)},
            [Link(root.get_span_context())],
            committed,
        )
        span.end(max(committed, durable))  # the clocks are those of two machines


class _ReportedExporter(SpanExporter):
    """An exporter that reports once that the collector is away, and once that it is back."""

    def __init__(self, exporter: SpanExporter, report: Reporter) -> None:
        self._exporter = exporter
        self._report = report
        self._is_away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; those that are not taken are dropped."""
        result = self._exporter.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._is_away:
            self._report.warning("the collector of traces does not take spans; they are dropped meanwhile")
        elif self._is_away and not failed:
            self._report.info("the collector of traces takes spans again")
        self._is_away = failed
        return result

    def shutdown(self) -> None:
        """End what is under way."""
        self._exporter.shutdown()


def service() -> Resource:
    """Return what the variables say of this service, which is called `headrace` where they name none."""
    ours = Resource({"service.name": "headrace", "service.version": __version__})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def _remote(context: TraceContext) -> SpanContext:
    trace_id, span_id = int(context.trace_id, 16), int(context.span_id, 16)
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _server_attributes(stage: Stage, server: SpanServer) -> Attributes:
    found: dict[str, str | int | None] = {
        "db.system.name": server.system,
        "db.operation.name": _OPERATIONS[stage],
        "db.namespace": server.namespace,
        "server.address": server.address,
        "server.port": server.port,
    }
    return {name: value for name, value in found.items() if value}
