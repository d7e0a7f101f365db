"""What client and writer make of a cluster that is busy, small, silent, locked or someone else."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
import trustme
from tenacity import stop_after_attempt

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.sinks.base import WriteResult
from headrace.sinks.opensearch import Client, Endpoint, OpenSearchWriter, WriterOptions
from headrace.sinks.opensearch.documents import ids
from headrace.state.system_index import SystemIndex
from integration.sinks.scripted_server import Reply, Request, Scripted, accepted, items, scripted

ONE_SENDER = WriterOptions(senders=1)


def operations(*ids: str) -> list[DocumentOperation]:
    return [DocumentOperation("users", one, 1, b"{}") for one in ids]


def write(server: Scripted, *ids: str, options: WriterOptions = ONE_SENDER) -> WriteResult:
    return deliver(server, operations(*ids), options)


def deliver(server: Scripted, given: list[DocumentOperation], options: WriterOptions) -> WriteResult:
    client = Client(Endpoint((server.url,), timeout=30))
    writer = OpenSearchWriter(client, {"users": "users_ab_1.write"}, options)
    try:
        return writer.write(given)
    finally:
        writer.close()
        client.close()


def in_turn(*replies: Reply | Callable[[Request], Reply]) -> Callable[[Request], Reply]:
    """Answer with each of `replies`, then accept."""
    left = iter(replies)

    def answer(request: Request) -> Reply:
        reply = next(left, accepted)
        return reply(request) if callable(reply) else reply

    return answer


def failing_at(*ids: str, busy: Collection[str] = ()) -> Callable[[Request], Reply]:
    """Fail at some documents whenever they come, as an ingest processor with a bug; take the others."""
    return lambda request: (
        200,
        items(*(500 if id_ in ids else 429 if id_ in busy else 200 for id_ in request.ids)),
    )


@pytest.mark.parametrize("at_once", [2, 5000], ids=["alone", "together"])
def test_a_document_that_the_cluster_fails_at_holds_up_its_index_alone(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as no refused one: what fails in the server may be mended, and `skip` would lose it."""
    # Attempts are counted: on a busy machine one may take all of a short time.
    monkeypatch.setattr("headrace.sinks.opensearch.writer.stop_after_delay", lambda _: stop_after_attempt(3))
    options = WriterOptions(senders=1, max_count=at_once)
    with (
        scripted(failing_at("bad")) as server,
        pytest.raises(
            HeadraceError, match="fails at 1 document, the first is 'bad' of index users"
        ) as caught,
    ):
        write(server, "a", "b", "c", "bad", options=options)
    assert (caught.value.kind, caught.value.units) == (Kind.LOCKED, frozenset(["users"]))
    assert caught.value.remedy
    assert {id_ for request in server.requests for id_ in request.ids} == {"a", "b", "c", "bad"}
    assert server.requests[-1].ids == ["bad"], "what is taken is not sent again"
    assert len(server.requests) > 2, "it is tried for a while"


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (403, "security_exception", "no permissions for [indices:data/write/bulk[s]]"),
        (401, "status_exception", "Received an authentication error status code from inference entity"),
        (409, "status_exception", "Trained model deployment [m] is not allocated to any nodes"),
    ],
)
def test_an_index_that_may_not_be_written_waits_alone(status: int, kind: str, reason: str) -> None:
    """A role that is created again, or the ended key of a service, is no reason to build an index again."""
    error = {"type": kind, "reason": reason}
    body = json.dumps({"errors": True, "items": [{"index": {"status": status, "error": error}}]}).encode()
    with scripted(lambda _: (200, body)) as server, pytest.raises(HeadraceError) as caught:
        write(server, "a")
    assert (caught.value.kind, caught.value.units) == (Kind.LOCKED, frozenset(["users"]))
    assert f"takes no documents of index users now: {kind}: {reason}" in caught.value.cause


def test_an_entry_counts_as_written_where_a_newer_version_is_and_not_where_a_model_is_missing() -> None:
    model = {"type": "status_exception", "reason": "Model [m] must be deployed to use"}
    refused = json.dumps({"errors": True, "items": [{"index": {"status": 409, "error": model}}]}).encode()
    with scripted(in_turn((200, items(200, 409)), (200, refused))) as server:
        index = SystemIndex(Client(Endpoint((server.url,))), "entries", {})
        assert index.write([("index", {"_id": id_}, {}) for id_ in "ab"]) == 1
        with pytest.raises(HeadraceError, match="must be deployed") as caught:
            index.write([("index", {"_id": "a"}, {})])
    assert caught.value.kind is Kind.SINK_BUSY


def test_a_cluster_that_is_busy_too_is_waited_for() -> None:
    with (
        scripted(failing_at("bad", busy=["late"])) as server,
        pytest.raises(HeadraceError, match="does not take 2 documents of index users") as caught,
    ):
        write(server, "a", "bad", "late", options=WriterOptions(senders=1, busy_seconds=0.3))
    assert (caught.value.kind, caught.value.units) == (Kind.SINK_BUSY, frozenset())


def test_what_the_cluster_fails_at_for_a_moment_is_written() -> None:
    with scripted(in_turn((200, items(200, 500)), (200, items(500)))) as server:
        assert write(server, "a", "b").upserted == 2


def test_only_the_items_that_were_busy_are_sent_again() -> None:
    with scripted(in_turn((200, items(200, 429, 503, 409)))) as server:
        result = write(server, "a", "b", "c", "d")
    assert [one.ids for one in server.requests] == [["a", "b", "c", "d"], ["b", "c"]]
    assert (result.upserted, result.fenced) == (3, 1)


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_cluster_gets_the_request_again(status: int) -> None:
    with scripted(in_turn((status, b"{}"), (status, b"{}"))) as server:
        assert write(server, "a").upserted == 1
    assert len(server.requests) == 3


def test_patience_ends() -> None:
    with scripted(lambda _: (429, b'{"error":"full"}')) as server, pytest.raises(HeadraceError) as caught:
        write(server, "a", options=WriterOptions(busy_seconds=0.5))
    assert caught.value.kind is Kind.SINK_BUSY
    assert "full" in caught.value.cause


@pytest.mark.parametrize(
    "reply",
    [
        None,
        (502, b""),
        (504, b""),
        (524, b""),
        *((200, body) for body in (b"{", b"[]", b'{"items":null}', b'{"errors":true,"items":[{},1]}')),
        (200, items(200)),
    ],
)
def test_a_bulk_without_a_readable_answer_is_never_sent_again(reply: Reply) -> None:
    with scripted(in_turn(reply)) as server, pytest.raises(HeadraceError) as caught:
        write(server, "a", "b")
    assert caught.value.kind is Kind.SINK_UNREACHABLE
    assert len(server.requests) == 1


def test_the_other_node_does_not_get_what_the_first_may_have_applied() -> None:
    with scripted(in_turn(None)) as first, scripted(accepted) as second:
        client = Client(Endpoint((first.url, second.url)))
        writer = OpenSearchWriter(client, {"users": "t"})
        with pytest.raises(HeadraceError):
            writer.write(operations("a"))
        assert second.requests == []
        assert writer.write(operations("a")).upserted == 1
        assert len(second.requests) == 1
        writer.close()


def test_a_request_that_is_too_large_is_halved_until_the_large_document_stands_alone() -> None:
    def answer(request: Request) -> Reply:
        return (413, b"") if "big" in request.ids else accepted(request)

    with scripted(answer) as server:
        result = write(server, "a", "b", "big", "c", "d")
    [refused] = result.rejected
    assert refused.id == "big"
    assert "http.max_content_length" in refused.reason
    assert result.upserted == 4


def test_a_document_that_is_longer_than_is_allowed_is_never_sent() -> None:
    given = [
        DocumentOperation("users", one, 1, body) for one, body in (("a", b"{}"), ("b", b"{%s}" % (b" " * 99)))
    ]
    with scripted(accepted) as server:
        result = deliver(server, given, WriterOptions(max_document_bytes=100))
        assert [one.ids for one in server.requests] == [["a"]]
    [refused] = result.rejected
    assert (refused.id, result.upserted) == ("b", 1)
    assert refused.reason.startswith(
        "it has 101 bytes, more than max_document_bytes of the sink allows (100)"
    )


def test_a_document_that_could_take_a_small_nodes_memory_is_not_sent_by_default() -> None:
    given = [DocumentOperation("users", "1", 1, b'{"a":"%s"}' % (b"x" * (20 << 20)))]
    with scripted(accepted) as server:
        result = deliver(server, given, WriterOptions())
        assert server.requests == []
    assert [one.id for one in result.rejected] == ["1"]


def test_what_a_cluster_may_die_of_is_named() -> None:
    large = DocumentOperation("users", "1", 1, b'{"a":"%s"}' % (b"x" * (3 << 20)))
    with scripted(in_turn(None)) as server, pytest.raises(HeadraceError) as caught:
        deliver(server, [large], WriterOptions(max_bytes=1 << 20))
    assert caught.value.kind is Kind.SINK_UNREACHABLE
    assert "one document of 3 MiB (index users)" in caught.value.cause
    assert "max_document_bytes" in caught.value.remedy


def test_a_document_that_no_queue_has_room_for_is_named() -> None:
    large = DocumentOperation("users", "1", 1, b'{"a":"%s"}' % (b"x" * (3 << 20)))
    with scripted(lambda _: (429, b"{}")) as server, pytest.raises(HeadraceError) as caught:
        deliver(server, [large], WriterOptions(max_bytes=1 << 20, busy_seconds=0.3))
    assert caught.value.kind is Kind.SINK_BUSY
    assert "one document of 3 MiB (index users)" in caught.value.cause


GREEN = b'{"status":"green"}'
GATEWAYS = [
    (404, b"default backend - 404"),
    (404, b""),
    (404, b'{"ok":false,"message":"Unknown resource."}'),
    (404, b'{"error_msg":"404 Route Not Found"}'),
    (410, b'{"ok":false,"message":"Resource is gone"}'),
    (400, b"<html><head><title>400 No required SSL certificate was sent</title></head></html>"),
    (302, b""),
]


PASSES = (400, b'{"error":{"type":"task_cancelled_exception","reason":"The parent task was cancelled"}}')


@pytest.mark.parametrize("reply", [*GATEWAYS, PASSES])
def test_what_a_gateway_refuses_or_what_passes_is_no_documents_fault(reply: Reply) -> None:
    with scripted(in_turn((200, GREEN), reply)) as server:
        client = Client(Endpoint((server.url,)))
        client.call("GET", "/_cluster/health")
        writer = OpenSearchWriter(client, {"users": "t"}, ONE_SENDER)
        assert writer.write(operations("a")).upserted == 1
        writer.close()


@pytest.mark.parametrize("status", [400, 403, 406])
def test_a_document_that_a_firewall_refuses_holds_up_its_index_alone(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sinks.opensearch.writer.stop_after_delay", lambda _: stop_after_attempt(3))
    page = status, b"<html><title>Request blocked</title></html>"

    def answer(request: Request) -> Reply:
        if request.method == "GET":
            return 200, GREEN
        return page if "bad" in request.ids else accepted(request)

    with (
        scripted(answer) as server,
        pytest.raises(HeadraceError, match="refuses the document 'bad'") as caught,
    ):
        write(server, "a", "b", "bad", "c")
    assert (caught.value.kind, caught.value.units) == (Kind.LOCKED, frozenset(["users"]))
    assert "Request blocked" in caught.value.cause
    assert server.requests[-2].ids == ["bad"]


def test_a_firewall_that_lets_nothing_pass_refuses_no_document_in_particular() -> None:
    page = 403, b"<html><title>Request blocked</title></html>"
    with scripted(lambda _: page) as server, pytest.raises(HeadraceError) as caught:
        write(server, "a", "b")
    assert (caught.value.kind, caught.value.units) == (Kind.AUTHENTICATION, frozenset())


@pytest.mark.parametrize("reply", GATEWAYS)
@pytest.mark.parametrize(("before", "kind"), [(True, Kind.SINK_BUSY), (False, Kind.SINK_REJECTED)])
def test_nothing_is_absent_because_a_gateway_does_not_find_it(reply: Reply, before: bool, kind: Kind) -> None:
    with scripted(in_turn(*[(200, GREEN)] * before, reply)) as server:
        client = Client(Endpoint((server.url,)))
        if before:
            client.call("GET", "/_cluster/health")
        with pytest.raises(HeadraceError) as caught:
            client.call("GET", "/x", allow=(404,))
    assert caught.value.kind is kind
    assert "proxy" in caught.value.remedy


@pytest.mark.parametrize(("before", "kind"), [(True, Kind.SINK_BUSY), (False, Kind.SINK_REJECTED)])
def test_nothing_is_done_because_a_page_of_html_says_ok(before: bool, kind: Kind) -> None:
    """A page of HTML also says nothing of credentials: the next refusal of them is the first one."""
    page = 200, b"\n<!DOCTYPE html><title>Log in</title>"
    with scripted(in_turn(*[(200, GREEN)] * before, page, (401, b"{}"))) as server:
        client = Client(Endpoint((server.url,)))
        if before:
            client.call("GET", "/_cluster/health")
        with pytest.raises(HeadraceError, match="does not answer as OpenSearch") as caught:
            client.call("POST", "/_aliases", {})
        with pytest.raises(HeadraceError) as refused:
            client.call("POST", "/_aliases", {})
    assert caught.value.kind is kind
    assert refused.value.kind is (Kind.SINK_BUSY if before else Kind.AUTHENTICATION)


def test_nothing_is_absent_because_a_shard_is_not_there() -> None:
    body = b'{"error":{"type":"shard_not_found_exception","reason":"no such shard"},"status":404}'
    with scripted(lambda _: (404, body)) as server, pytest.raises(HeadraceError) as caught:
        Client(Endpoint((server.url,))).call("GET", "/x", allow=(404,))
    assert caught.value.kind is Kind.SINK_BUSY


@pytest.mark.parametrize(("shards", "is_ready"), [(3, True), (0, False)])
def test_a_cluster_that_stays_red_is_ready_once_it_knows_its_shards(shards: int, is_ready: bool) -> None:
    red = b'{"status":"red","timed_out":true,"active_shards":%d,"unassigned_shards":%d}' % (shards, shards)
    about = b'{"version":{"number":"3.8.0","distribution":"opensearch"}}'
    with scripted(lambda request: (200, about) if request.target == "/" else (408, red)) as server:
        client = Client(Endpoint((server.url,)))
        if is_ready:
            assert client.wait_until_ready(0.3) == "3.8.0"
        else:
            with pytest.raises(HeadraceError, match="red") as caught:
                client.wait_until_ready(0.3)
            assert caught.value.kind is Kind.SINK_BUSY


def test_opensearch_in_compatibility_mode_is_refused_by_name() -> None:
    about = b'{"version":{"number":"7.10.2"},"tagline":"The OpenSearch Project: https://opensearch.org/"}'
    with scripted(lambda _: (200, about)) as server, pytest.raises(HeadraceError) as caught:
        Client(Endpoint((server.url,))).product()
    assert caught.value.kind is Kind.SINK_REJECTED
    assert "override_main_response_version" in caught.value.remedy


def test_what_is_settled_before_a_refusal_counts_once() -> None:
    with scripted(
        in_turn((200, items(200, 429, 429)), (400, b'{"error":{"type":"t","reason":"odd"}}'))
    ) as server:
        result = write(server, "a", "b", "c")
    assert [one.ids for one in server.requests] == [["a", "b", "c"], ["b", "c"], ["b"], ["c"]]
    assert result.upserted == 3


def test_chunks_are_cut_by_count() -> None:
    with scripted(accepted) as server:
        write(server, *"abcde", options=WriterOptions(max_count=2, senders=1))
    assert [one.ids for one in server.requests] == [["a", "b"], ["c", "d"], ["e"]]


def test_the_pipeline_and_the_need_for_an_alias_are_told() -> None:
    with scripted(accepted) as server:
        write(server, "a", options=WriterOptions(pipeline="p q"))
    assert "pipeline=p%20q" in server.requests[0].target
    assert "require_alias=true" in server.requests[0].target


def test_credentials_and_compression_are_sent() -> None:
    with scripted(lambda _: (200, b"{}")) as server:
        Client(Endpoint((server.url,), username="日本", password="p:w", gzip=True)).call(
            "PUT", "/x", {"a": 1}
        )
    request = server.requests[0]
    assert base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode() == "日本:p:w"
    assert gzip.decompress(request.body) == b'{"a": 1}'


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Kind.AUTHENTICATION),
        (403, Kind.AUTHENTICATION),
        (400, Kind.SINK_REJECTED),
        (429, Kind.SINK_BUSY),
        (408, Kind.SINK_BUSY),
        (500, Kind.SINK_BUSY),
    ],
)
def test_an_errors_kind_follows_the_status_and_shows_no_secret(status: int, kind: Kind) -> None:
    reply = (status, b'{"error":{"type":"t","reason":"why\\nnot"}}')
    with scripted(lambda _: reply) as server, pytest.raises(HeadraceError) as caught:
        Client(Endpoint((server.url,), username="me", password="secret")).call("PUT", "/x")
    assert caught.value.kind is kind
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert server.url.removeprefix("http://") in caught.value.cause


def test_a_read_is_repeated() -> None:
    with scripted(in_turn(None, (503, b""), (200, b'{"a":1}'))) as server:
        assert Client(Endpoint((server.url,))).read("/x").json() == {"a": 1}


def test_a_slow_answer_is_no_answer() -> None:
    def answer(_: Request) -> Reply:
        time.sleep(1)
        return 200, b"{}"

    with scripted(answer) as server, pytest.raises(HeadraceError, match="no answer") as caught:
        Client(Endpoint((server.url,), timeout=0.2)).call("PUT", "/x")
    assert caught.value.kind is Kind.SINK_UNREACHABLE


def test_nobody_there_is_told_with_the_place() -> None:
    with pytest.raises(HeadraceError, match=r"no connection to OpenSearch at 127\.0\.0\.1:9") as caught:
        Client(Endpoint(("http://127.0.0.1:9",), "u", "secret")).wait_until_ready(0.3)
    assert caught.value.kind is Kind.SINK_UNREACHABLE
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]"])
def test_something_else_is_not_taken_for_opensearch(body: bytes) -> None:
    with scripted(lambda _: (200, body)) as server, pytest.raises(HeadraceError) as caught:
        Client(Endpoint((server.url,))).wait_until_ready(5)
    assert caught.value.kind is Kind.SINK_REJECTED


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (b'"_shards":{"total":2,"successful":1,"failed":1}', "1 of 2 shards"),
        (b'"timed_out":true,"_shards":{"total":2,"successful":2,"failed":0}', "its time was over"),
    ],
)
def test_an_enumeration_of_a_part_is_an_error(found: bytes, said: str) -> None:
    page = b'{"_scroll_id":"s",%s,"hits":{"hits":[{"_id":"1"}]}}' % found
    about = b'{"version":{"number":"3.8.0","distribution":"opensearch"}}'
    told = {True: (200, about), False: (200, page)}
    with (
        scripted(lambda request: told[request.target == "/"]) as server,
        pytest.raises(HeadraceError, match=said),
    ):
        list(ids(Client(Endpoint((server.url,))), "users"))


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[tuple[Scripted, Path]]:
    """A server with a certificate of its own authority, and that authority's file."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    with scripted(lambda _: (200, b"{}"), tls=context) as server:
        yield server, bundle


def test_an_unknown_authority_is_refused_and_named(locked: tuple[Scripted, Path]) -> None:
    server, _ = locked
    with pytest.raises(HeadraceError, match="not trusted") as caught:
        Client(Endpoint((server.url,))).call("PUT", "/x")
    assert caught.value.kind is Kind.AUTHENTICATION
    assert "ca_file" in caught.value.remedy
    assert server.requests == []


def test_a_given_authority_is_trusted(locked: tuple[Scripted, Path]) -> None:
    server, bundle = locked
    assert Client(Endpoint((server.url,), ca_file=bundle)).call("PUT", "/x").ok


def test_verification_can_be_turned_off(locked: tuple[Scripted, Path]) -> None:
    server, _ = locked
    assert Client(Endpoint((server.url,), verify=False)).call("PUT", "/x").ok
