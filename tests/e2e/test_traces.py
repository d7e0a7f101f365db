"""Does the trace of an application go on into its document, and does no collector hold the run up?"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from e2e.conftest import Deploy
from e2e.harness import Headrace, Shop
from headrace.embedded.processes import until
from headrace.postgres.address import parse_address
from support.otlp_receiver import OtlpReceiver, attributes_of

_SECONDS = 120.0
_NOW_NS = 1_000_000_000
_STAGES = {"headrace.capture", "headrace.resolve", "headrace.assemble", "headrace.write", "headrace.confirm"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as running:
        yield running


@pytest.fixture(scope="module")
def live(deploy: Deploy, receiver: OtlpReceiver) -> Iterator[Headrace]:
    with deploy(users=20) as pipeline:
        pipeline.variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_SERVICE_NAME": "search documents",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "4",
        }
        pipeline.start()
        pipeline.wait_ready()
        yield pipeline
        pipeline.terminate()


@pytest.fixture(scope="module")
def shop(live: Headrace) -> Shop:
    return live.shop


def emit(content: str, *, prefix: str = "headrace.trace", transactional: bool = True) -> str:
    return f"SELECT pg_logical_emit_message({transactional}, '{prefix}', '{content}')"


def application_span() -> tuple[str, str, str]:
    """A trace, a span of it, and its header."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return trace, span, f"00-{trace}-{span}-01"


def wait_for(found: Callable[[], list[Span]]) -> list[Span]:
    assert until(lambda: bool(found()), _SECONDS)
    return found()


def rename(number: int) -> str:
    return (
        f"UPDATE users SET name = 'n{number}' WHERE id = (SELECT min(id) FROM users WHERE deleted_at IS NULL)"
    )


@pytest.mark.long
def test_the_trace_of_an_application_goes_on_into_its_document(
    live: Headrace, shop: Shop, receiver: OtlpReceiver
) -> None:
    trace, parent, header = application_span()
    began = time.time_ns()
    shop.run(rename(1), emit(header))
    [apply] = wait_for(
        lambda: [span for span in receiver.spans("headrace.apply") if span.trace_id.hex() == trace]
    )
    live.converges()
    assert apply.parent_span_id.hex() == parent
    assert began - _NOW_NS < apply.start_time_unix_nano <= apply.end_time_unix_nano < time.time_ns()
    [link] = apply.links
    [root] = wait_for(
        lambda: [span for span in receiver.spans("headrace.batch") if span.span_id == link.span_id]
    )
    assert [(one.trace_id.hex(), one.span_id.hex()) for one in root.links] == [(trace, parent)]
    assert receiver.services == {"search documents"}


def test_a_batch_has_a_span_for_each_stage_and_its_server(
    live: Headrace, shop: Shop, receiver: OtlpReceiver
) -> None:
    trace, _, header = application_span()
    shop.run(rename(2), emit(header))
    [apply] = wait_for(
        lambda: [span for span in receiver.spans("headrace.apply") if span.trace_id.hex() == trace]
    )
    batch = apply.links[0].trace_id
    assert until(
        lambda: sum(span.trace_id == batch for span in receiver.spans()) == 1 + len(_STAGES), _SECONDS
    )
    spans = {span.name: span for span in receiver.spans() if span.trace_id == batch}
    root = spans.pop("headrace.batch")
    assert set(spans) == _STAGES
    assert not root.parent_span_id
    said = attributes_of(root)
    assert said["headrace.slot"] == live.name
    assert said["headrace.changes"] == 1
    assert said["headrace.upserts"] >= 1
    assert said["headrace.position.start"] < said["headrace.position.end"]
    address = parse_address(shop.url).parameters
    port = int(live.sink_url.rpartition(":")[2])
    for name, span in spans.items():
        assert span.parent_span_id == root.span_id
        assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= root.end_time_unix_nano
        server = attributes_of(span)
        if name in {"headrace.write", "headrace.confirm"}:
            assert (server["db.system.name"], server["server.port"]) == ("opensearch", port)
        else:
            assert (server["db.system.name"], server["db.namespace"]) == ("postgresql", address["dbname"])
    order = [
        spans[name].start_time_unix_nano
        for name in ("headrace.resolve", "headrace.assemble", "headrace.write")
    ]
    assert order == sorted(order)


def test_messages_of_others_and_broken_ones_do_no_harm(
    live: Headrace, shop: Shop, receiver: OtlpReceiver
) -> None:
    shop.run(
        *(emit("x" * 10_000, prefix=f"other{number}") for number in range(50)),
        emit("no traceparent at all"),
        emit("x", transactional=False),
        rename(3),
    )
    live.converges()

    def counted() -> list[Span]:
        roots = receiver.spans("headrace.batch")
        return [span for span in roots if "headrace.malformed_contexts" in attributes_of(span)]

    [root] = wait_for(counted)
    assert attributes_of(root)["headrace.malformed_contexts"] == 1
    assert not root.links
    assert until(
        lambda: b"headrace_malformed_trace_contexts_total 1.0" in live.ask("/metrics").data, _SECONDS
    )


def test_no_span_holds_a_value_or_a_secret(live: Headrace, shop: Shop, receiver: OtlpReceiver) -> None:
    shop.run("UPDATE users SET name = 'a-very-secret-name' WHERE id = (SELECT min(id) FROM users)")
    live.converges()
    asked = len(receiver.spans())
    shop.run(rename(4))
    assert until(lambda: len(receiver.spans()) > asked, _SECONDS)
    said = "".join(str(span) for span in receiver.spans())
    assert "a-very-secret-name" not in said
    password = parse_address(shop.url).parameters.get("password")
    assert password is None or password not in said


def test_a_transaction_of_several_tasks_is_traced(live: Headrace, shop: Shop, receiver: OtlpReceiver) -> None:
    trace, _, header = application_span()
    shop.run(emit(header), "UPDATE order_items SET quantity = quantity % 9 + 1")
    wait_for(lambda: [span for span in receiver.spans("headrace.apply") if span.trace_id.hex() == trace])
    live.converges()


@pytest.mark.long
def test_a_collector_that_hangs_or_refuses_holds_nothing_up(
    live: Headrace, shop: Shop, receiver: OtlpReceiver
) -> None:
    """It is the last test: the run ends in time too, while the collector hangs."""
    receiver.status = 503
    for number in range(20):
        shop.run(rename(10 + number), emit(application_span()[2]))
    live.converges(20)
    receiver.hangs = True
    asked = receiver.requests
    shop.run(rename(100), emit(application_span()[2]))
    assert until(lambda: receiver.requests > asked, _SECONDS)
    for number in range(20):
        shop.run(rename(200 + number), emit(application_span()[2]))
    live.converges(20)
    assert live.is_ready()
    warning = "the collector of traces does not take spans"
    assert until(lambda: warning in live.output.read_text(), _SECONDS)
    assert live.output.read_text().count(warning) == 1
    assert "Transient error" not in live.output.read_text(), "the library says the same again and again"
