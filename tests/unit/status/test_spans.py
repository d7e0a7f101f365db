"""Which spans a batch becomes: one trace of its own, and one span in the trace of each application."""

from __future__ import annotations

from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv.attributes import db_attributes, error_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode

from headrace.model.stage import Stage
from headrace.model.trace import CommitContext, StageSpan, TaskTrace, TraceContext
from headrace.status.spans import ExportedTraces, service
from headrace.status.traces import SpanServer, SpanServers, TracedBatch

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECOND = 1_000_000_000
DATABASE = SpanServer("postgresql", "db.example", 5433, "shop")
CLUSTER = SpanServer("opensearch", "search.example", 9200)
BATCH = TracedBatch(
    number=12,
    start="0/100",
    end="0/200",
    counts={"changes": 3, "upserts": 2, "deletes": 1, "rejected": 0},
    captured=(20 * SECOND, 21 * SECOND),
    confirmed=(27 * SECOND, 28 * SECOND),
    task=TaskTrace(
        spans=(
            StageSpan("", Stage.RESOLVE, "", 21 * SECOND, 22 * SECOND),
            StageSpan("", Stage.ASSEMBLE, "", 22 * SECOND, 24 * SECOND),
            StageSpan("", Stage.WRITE, "", 23 * SECOND, 26 * SECOND),
        )
    ),
    servers=SpanServers(DATABASE, CLUSTER, {"": CLUSTER}),
)
COMMIT = CommitContext(0x180, 19_000_000, TraceContext(TRACE, PARENT))


def spans_of(batch: TracedBatch) -> dict[str, ReadableSpan]:
    found = all_spans_of(batch)
    assert len({span.name for span in found}) == len(found)
    return {span.name: span for span in found}


def all_spans_of(batch: TracedBatch) -> list[ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ExportedTraces("shop_slot", provider).record(batch)
    return list(exporter.get_finished_spans())


def seconds(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / SECOND, span.end_time / SECOND


def test_a_batch_is_one_trace_with_a_span_for_each_stage() -> None:
    spans = spans_of(BATCH)
    assert {name: seconds(span) for name, span in spans.items()} == {
        "headrace.batch": (20, 28),
        "headrace.capture": (20, 21),
        "headrace.resolve": (21, 22),
        "headrace.assemble": (22, 24),
        "headrace.write": (23, 26),
        "headrace.confirm": (27, 28),
    }
    root = spans.pop("headrace.batch")
    assert root.parent is None
    assert root.attributes == {
        "headrace.slot": "shop_slot",
        "headrace.batch.id": 12,
        "headrace.position.start": "0/100",
        "headrace.position.end": "0/200",
        "headrace.changes": 3,
        "headrace.upserts": 2,
        "headrace.deletes": 1,
        "headrace.rejected": 0,
    }
    for span in spans.values():
        assert span.parent is not None
        assert (span.context.trace_id, span.parent.span_id) == (root.context.trace_id, root.context.span_id)
        assert span.kind is SpanKind.CLIENT


def test_servers_are_named_as_the_conventions_for_databases_say() -> None:
    spans = spans_of(BATCH)
    names = (
        db_attributes.DB_SYSTEM_NAME,
        db_attributes.DB_NAMESPACE,
        db_attributes.DB_OPERATION_NAME,
        server_attributes.SERVER_ADDRESS,
        server_attributes.SERVER_PORT,
    )
    named = {name: tuple((span.attributes or {}).get(each) for each in names) for name, span in spans.items()}
    assert named == {
        "headrace.batch": (None,) * 5,
        "headrace.capture": ("postgresql", "shop", "START_REPLICATION", "db.example", 5433),
        "headrace.resolve": ("postgresql", "shop", "SELECT", "db.example", 5433),
        "headrace.assemble": ("postgresql", "shop", "SELECT", "db.example", 5433),
        "headrace.write": ("opensearch", None, "bulk", "search.example", 9200),
        "headrace.confirm": ("opensearch", None, "index", "search.example", 9200),
    }


def test_attempts_that_failed_are_spans_with_their_error() -> None:
    failed = StageSpan("", Stage.WRITE, "HEADRACE_SINK_BUSY", 22 * SECOND, 23 * SECOND)
    found = all_spans_of(replace(BATCH, task=TaskTrace(spans=(*BATCH.task.spans, failed))))
    [span] = [span for span in found if span.status.status_code is StatusCode.ERROR]
    assert span.name == "headrace.write"
    assert (span.attributes or {})[error_attributes.ERROR_TYPE] == "HEADRACE_SINK_BUSY"
    assert span.status.description is None, "an error's text is not sent"


def test_a_secondary_sink_has_spans_of_its_own() -> None:
    more = (
        StageSpan("backup", Stage.WRITE, "", 23 * SECOND, 25 * SECOND),
        StageSpan("console", Stage.WRITE, "", 23 * SECOND, 25 * SECOND),
    )
    sinks = {"": CLUSTER, "backup": SpanServer("elasticsearch"), "console": None}
    servers = replace(BATCH.servers, sinks=sinks)
    found = all_spans_of(replace(BATCH, task=TaskTrace(spans=more), servers=servers))
    written = {
        str((span.attributes or {})["headrace.sink"]): span for span in found if span.name == "headrace.write"
    }
    assert (written["backup"].attributes or {}).get("db.system.name") == "elasticsearch"
    assert "server.address" not in (written["backup"].attributes or {}), "the settings name several nodes"
    assert written["console"].kind is SpanKind.INTERNAL
    assert written["console"].attributes == {"headrace.sink": "console"}


def test_the_trace_of_an_application_goes_on_into_its_documents() -> None:
    spans = spans_of(replace(BATCH, task=replace(BATCH.task, contexts=(COMMIT,))))
    root, apply = spans["headrace.batch"], spans["headrace.apply"]
    assert apply.parent is not None
    assert f"{apply.context.trace_id:032x}" == TRACE
    assert f"{apply.parent.span_id:016x}" == PARENT
    assert seconds(apply) == (19, 26), "from the commit until the documents are durable"
    assert apply.attributes == {"headrace.slot": "shop_slot", "headrace.commit": "0/180"}
    assert [link.context.span_id for link in apply.links] == [root.context.span_id]
    assert [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in root.links] == [
        f"{TRACE}-{PARENT}"
    ]


def test_two_commits_of_one_span_are_one_link() -> None:
    later = replace(COMMIT, commit_lsn=0x190)
    found = all_spans_of(replace(BATCH, task=replace(BATCH.task, contexts=(COMMIT, later))))
    assert sum(span.name == "headrace.apply" for span in found) == 2
    [root] = [span for span in found if span.name == "headrace.batch"]
    assert len(root.links) == 1


def test_a_server_whose_clock_is_ahead_gives_no_span_that_ends_before_it_begins() -> None:
    ahead = replace(COMMIT, commit_time=90_000_000)
    apply = spans_of(replace(BATCH, task=replace(BATCH.task, contexts=(ahead,))))["headrace.apply"]
    assert seconds(apply) == (90, 90)


def test_what_is_no_context_is_counted() -> None:
    contexts = (CommitContext(1, 1, None), COMMIT, CommitContext(2, 2, None))
    batch = replace(BATCH, task=replace(BATCH.task, contexts=contexts))
    assert batch.malformed_contexts == 2
    spans = spans_of(batch)
    assert (spans["headrace.batch"].attributes or {})["headrace.malformed_contexts"] == 2
    assert "headrace.apply" in spans


def test_a_batch_that_wrote_nothing_is_applied_when_its_position_is_saved() -> None:
    apply = spans_of(replace(BATCH, task=TaskTrace(contexts=(COMMIT,))))["headrace.apply"]
    assert seconds(apply) == (19, 27)


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "headrace"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs,a=b"}, "theirs"),
    ],
)
def test_the_service_has_a_name_of_its_own(
    variables: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert service().attributes["service.name"] == name
