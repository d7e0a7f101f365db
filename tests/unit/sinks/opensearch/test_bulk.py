"""Operations become lines, answers become verdicts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.changes import DocumentOperation
from headrace.sinks.base import Rejection, WriteResult
from headrace.sinks.opensearch import bulk
from headrace.sinks.opensearch.bulk import SMALLEST, BulkSize, Item, Outcome


def upsert(
    identity: str, body: bytes = b"{}", version: int = 7, routing: str | None = None
) -> DocumentOperation:
    return DocumentOperation("users", identity, version, body, routing)


def item(identity: str, size: int = 10, *, delete: bool = False) -> Item:
    return Item("users", identity, delete, b"x" * size)


def test_an_upsert_is_an_action_line_and_the_documents_own_bytes() -> None:
    rendered = bulk.render(upsert("1", b'{"a": 1.10}'), "users_ab_1.write")
    assert rendered.lines == (
        b'{"index":{"_index":"users_ab_1.write","_id":"1","version":7,"version_type":"external_gte"}}\n'
        b'{"a": 1.10}\n'
    )


def test_a_delete_is_one_line_and_routing_is_given() -> None:
    rendered = bulk.render(DocumentOperation("users", "1", 9, None, "eu"), "t")
    assert rendered.delete
    assert rendered.lines == (
        b'{"delete":{"_index":"t","_id":"1","version":9,"version_type":"external_gte","routing":"eu"}}\n'
    )


@given(st.text(min_size=1, max_size=40))
def test_every_id_survives_the_action_line(identity: str) -> None:
    operation = upsert(identity)
    if bulk.invalid_reason(operation) is None:
        action = bulk.render(operation, "t").lines.decode().split("\n")[0]
        assert json.loads(action)["index"]["_id"] == identity


def test_line_feeds_between_tokens_never_end_the_line() -> None:
    """A `json` column keeps the white space that it was given."""
    rendered = bulk.render(upsert("1", b'{"j": {\n  "a": "x\\ny"\n}}'), "t")
    _, line, rest = rendered.lines.split(b"\n")
    assert json.loads(line) == {"j": {"a": "x\ny"}}
    assert rest == b""


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        (upsert(""), "empty"),
        (upsert("é" * 257), "514 bytes"),
        (upsert("\ud800"), "Unicode"),
        (upsert("1", version=2**63), "version"),
    ],
)
def test_what_would_fail_a_whole_request_is_refused_before(operation: DocumentOperation, part: str) -> None:
    reason = bulk.invalid_reason(operation)
    assert reason is not None
    assert part in reason


def test_the_longest_id_and_version_are_accepted() -> None:
    assert bulk.invalid_reason(upsert("é" * 256, version=2**63 - 1)) is None


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 60), st.integers(1, 10))
def test_chunks_keep_order_and_limits(sizes: list[int], max_bytes: int, max_count: int) -> None:
    items = [item(str(at), size) for at, size in enumerate(sizes)]
    chunks = list(bulk.chunks(iter(items), lambda: max_bytes, max_count))
    assert [one for chunk in chunks for one in chunk] == items
    for chunk in chunks:
        assert 0 < len(chunk) <= max_count
        assert len(chunk) == 1 or len(bulk.body(chunk)) <= max_bytes


def test_an_answer_without_errors_is_not_parsed() -> None:
    verdict = bulk.judge(b'{"errors":false,"items":[broken', [item("1"), item("2", 5, delete=True)])
    assert verdict.settled == WriteResult(upserted=1, deleted=1, bytes=15)
    assert verdict.again == ()


REASON = {"type": "mapper_parsing_exception", "reason": "failed to parse", "caused_by": {"reason": "bad int"}}
BUSY = {"type": "rejected_execution_exception", "reason": "full"}


def test_each_item_is_counted_once_under_its_own_status() -> None:
    chunk = [item("ok"), item("gone", delete=True), item("old"), item("bad"), item("busy")]
    answer = {
        "errors": True,
        "items": [
            {"index": {"status": 201}},
            {"delete": {"status": 404}},
            {"index": {"status": 409, "error": {"type": "version_conflict_engine_exception"}}},
            {"index": {"status": 400, "error": REASON}},
            {"index": {"status": 429, "error": BUSY}},
        ],
    }
    verdict = bulk.judge(json.dumps(answer).encode(), chunk)
    assert verdict.settled == WriteResult(
        upserted=1,
        deleted=1,
        fenced=1,
        bytes=20,
        rejected=(
            Rejection(
                "users",
                "bad",
                "mapper_parsing_exception: failed to parse (bad int)",
                "mapper_parsing_exception",
            ),
        ),
    )
    assert verdict.again == (chunk[4],)
    assert "full" in verdict.reason
    assert verdict.fatal is None


def test_what_the_server_fails_at_is_sent_again_and_named_without_its_values() -> None:
    error = {"type": "number_format_exception", "reason": 'For input string: "secret"'}
    answer = {
        "errors": True,
        "items": [{"index": {"status": 500, "error": error}}, {"index": {"status": 429, "error": BUSY}}],
    }
    chunk = [item("bad"), item("busy")]
    verdict = bulk.judge(json.dumps(answer).encode(), chunk)
    assert verdict.again == tuple(chunk)
    [failed] = verdict.failed
    assert (failed.index, failed.id, failed.public) == ("users", "bad", "number_format_exception")
    assert "secret" in failed.reason
    assert "secret" not in verdict.reason


@pytest.mark.parametrize(
    ("status", "kind", "delete", "outcome"),
    [
        (200, None, False, Outcome.DONE),
        (404, None, True, Outcome.DONE),
        (409, "version_conflict_engine_exception", False, Outcome.FENCED),
        (409, "status_exception", False, Outcome.BLOCKED),
        (409, "resource_not_ready_exception", True, Outcome.BLOCKED),
        (404, "index_not_found_exception", False, Outcome.GONE),
        (404, "index_not_found_exception", True, Outcome.GONE),
        (429, "rejected_execution_exception", False, Outcome.RETRY),
        (503, "node_closed_exception", False, Outcome.RETRY),
        (503, "unavailable_shards_exception", False, Outcome.BLOCKED),
        (429, "cluster_block_exception", False, Outcome.BLOCKED),
        (403, "cluster_block_exception", False, Outcome.BLOCKED),
        (400, "index_closed_exception", False, Outcome.BLOCKED),
        (403, "security_exception", False, Outcome.BLOCKED),
        (401, "status_exception", False, Outcome.BLOCKED),
        (403, "status_exception", False, Outcome.BLOCKED),
        (400, "strict_dynamic_mapping_exception", False, Outcome.REJECTED),
        (403, "index_create_block_exception", True, Outcome.BLOCKED),
        (404, "shard_not_found_exception", False, Outcome.BLOCKED),
        (404, "index_shard_closed_exception", False, Outcome.BLOCKED),
        (404, "resource_not_found_exception", False, Outcome.BLOCKED),
        (400, "routing_missing_exception", True, Outcome.BLOCKED),
        (400, "task_cancelled_exception", False, Outcome.RETRY),
        (408, "status_exception", False, Outcome.RETRY),
        (500, "fail_processor_exception", False, Outcome.REJECTED),
        (500, "already_closed_exception", False, Outcome.FAILED),
        (500, "mapper_exception", False, Outcome.FAILED),
        (504, "timeout_exception", True, Outcome.FAILED),
        (424, "status_exception", False, Outcome.FAILED),
        (429, "circuit_breaking_exception", False, Outcome.RETRY),
    ],
)
def test_the_meaning_of_a_status(status: int, kind: str | None, delete: bool, outcome: Outcome) -> None:
    """Flusso's hole 18: an item's 429 is called poison, a delete's 404 a rejection."""
    error = None if kind is None else {"type": kind}
    assert bulk.classify(status, error, delete=delete) is outcome


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("no write index is defined for alias [u.write]. The write index may be", Outcome.BLOCKED),
        ("pipeline with id [p] does not exist", Outcome.BLOCKED),
        ("Pipeline processor configured for non-existent pipeline [p]", Outcome.BLOCKED),
        ("Alias [u.write] has index routing associated with it [x], and was provided with", Outcome.BLOCKED),
        ("index/alias [u.write] provided with routing value [x,y] that resolved to", Outcome.BLOCKED),
        ("Number of documents in shard [u][0] exceeds the limit of [2147483519]", Outcome.BLOCKED),
        ("Number of documents in the index can't exceed [2147483519]", Outcome.BLOCKED),
        ("number of documents in the index cannot exceed 2147483519", Outcome.BLOCKED),
        ("field [a] not present as part of path [a]", Outcome.REJECTED),
        ("Limit of total fields [1000] has been exceeded", Outcome.REJECTED),
        ("The number of nested documents has exceeded the allowed limit of [10000].", Outcome.REJECTED),
        ('Document contains at least one immense term in field="v"', Outcome.REJECTED),
    ],
)
def test_an_argument_is_illegal_because_of_the_index_or_of_the_document(
    reason: str, outcome: Outcome
) -> None:
    error = {"type": "illegal_argument_exception", "reason": reason}
    assert bulk.classify(400, error, delete=False) is outcome


@pytest.mark.parametrize(
    ("said", "outcome"),
    [('{"message":null}', Outcome.FAILED), ('{"message":"Too many input tokens"}', Outcome.REJECTED)],
)
def test_a_models_service_that_is_overloaded_says_nothing_against_a_document(
    said: str, outcome: Outcome
) -> None:
    """SageMaker throttles with status 400 and no message."""
    error = {"type": "status_exception", "reason": f"Error from remote service: {said}"}
    assert bulk.classify(400, error, delete=False) is outcome


@pytest.mark.parametrize(
    ("named", "outcome"),
    [
        ({"index": "users_ab_1.write"}, Outcome.GONE),
        ({"index": "users_ab_1"}, Outcome.GONE),
        ({}, Outcome.GONE),
        ({"index": "users-2026"}, Outcome.BLOCKED),
    ],
)
def test_an_index_is_gone_where_it_is_the_documents_own(named: dict[str, str], outcome: Outcome) -> None:
    """An ingest pipeline may set another `_index`."""
    error = {"type": "index_not_found_exception", "reason": "no such index", **named}
    answer = {"errors": True, "items": [{"index": {"status": 404, "error": error}}]}
    verdict = bulk.judge(json.dumps(answer).encode(), [bulk.render(upsert("1"), "users_ab_1.write")])
    assert verdict.fatal is not None
    assert verdict.fatal[0] is outcome


def test_a_short_answer_says_nothing() -> None:
    with pytest.raises(ValueError, match="1 answers to 2"):
        bulk.judge(b'{"errors":true,"items":[{"index":{"status":201}}]}', [item("1"), item("2")])


MOST = 8 << 20


def test_what_is_refused_is_halved_once_whoever_tells() -> None:
    """Several senders have requests of the old size under way."""
    size = BulkSize(MOST)
    size.overloaded(MOST)
    size.overloaded(MOST)
    assert size.bytes == MOST // 2


def test_a_bulk_that_was_bounded_by_its_count_says_what_was_too_much() -> None:
    size = BulkSize(MOST)
    size.overloaded(1 << 20)
    assert size.bytes == 1 << 19


def test_it_grows_back_in_small_steps_and_only_by_what_was_large() -> None:
    size = BulkSize(MOST)
    size.overloaded(MOST)
    before = size.bytes
    size.accepted(1_000)
    assert size.bytes == before
    size.accepted(before)
    assert 0 < size.bytes - before <= MOST // 32
    for _ in range(32):
        size.accepted(size.bytes)
    assert size.bytes == MOST


def test_what_is_always_too_large_is_not_tried_again() -> None:
    size = BulkSize(MOST)
    size.too_large(MOST)
    for _ in range(100):
        size.accepted(size.bytes)
    assert size.bytes == MOST // 2


@given(
    st.lists(st.tuples(st.sampled_from(["overloaded", "too_large", "accepted"]), st.integers(1, 2 * MOST)))
)
def test_it_stays_between_the_smallest_and_what_is_asked_for(events: list[tuple[str, int]]) -> None:
    size = BulkSize(MOST)
    for what, sent in events:
        getattr(size, what)(sent)
        assert SMALLEST <= size.bytes <= MOST
