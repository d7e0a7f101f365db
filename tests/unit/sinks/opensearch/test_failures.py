"""What an operator reads of a cluster's answers."""

from __future__ import annotations

import json
import ssl

import pytest
from urllib3 import exceptions

from headrace.errors import Kind
from headrace.sinks.opensearch.failures import (
    describe_without_values,
    from_exception,
    from_status,
    is_of_gateway,
)

FIELD = "failed to parse field [n] of type [long] in document with id '1'. Preview of field's value: 'x'"


@pytest.mark.parametrize("place", ["", "[1:168] "])
def test_the_field_that_a_document_is_refused_for_is_named_and_no_value(place: str) -> None:
    """Elasticsearch 8 and 9 put line and column before the reason."""
    error = {
        "type": "document_parsing_exception",
        "reason": f"{place}{FIELD}",
        "caused_by": {"type": "illegal_argument_exception", "reason": 'For input string: "x"'},
    }
    assert describe_without_values(error) == (
        "document_parsing_exception of illegal_argument_exception: failed to parse field [n] of type [long]"
    )


@pytest.mark.parametrize(
    ("status", "body", "kind", "cause"),
    [
        (
            408,
            {"cluster_name": "c", "status": "red", "timed_out": True, "unassigned_shards": 1},
            Kind.SINK_BUSY,
            (
                "OpenSearch at n cannot take the request now (status 408): "
                "the cluster's health is red, 1 shard unassigned"
            ),
        ),
        (408, None, Kind.SINK_BUSY, "OpenSearch at n cannot take the request now (status 408)"),
        (404, None, Kind.SINK_REJECTED, "OpenSearch at n refused a request (status 404)"),
        (
            401,
            {
                "error": {
                    "type": "security_exception",
                    "reason": "unable to authenticate user [u] for REST request [/users/_doc/secret]",
                },
                "status": 401,
            },
            Kind.AUTHENTICATION,
            ("OpenSearch at n refused the credentials: security_exception: unable to authenticate user [u]"),
        ),
        (403, None, Kind.AUTHENTICATION, "OpenSearch at n does not allow this user to do that"),
        (
            404,
            {
                "error": {
                    "type": "search_phase_execution_exception",
                    "reason": "all shards failed",
                    "caused_by": {
                        "type": "search_context_missing_exception",
                        "reason": "No search context found for id [2]",
                    },
                },
                "status": 404,
            },
            Kind.SINK_BUSY,
            (
                "OpenSearch at n cannot do that now (status 404): search_phase_execution_exception: "
                "all shards failed (No search context found for id [2])"
            ),
        ),
    ],
)
def test_an_answer_is_quoted_where_it_says_something(
    status: int, body: object, kind: Kind, cause: str
) -> None:
    error = from_status(status, b"" if body is None else json.dumps(body).encode(), "n")
    assert (error.kind, error.cause) == (kind, cause)


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (403, "cluster_block_exception", Kind.SINK_BUSY),
        (403, "index_create_block_exception", Kind.SINK_BUSY),
        (400, "index_closed_exception", Kind.SINK_BUSY),
        (400, "snapshot_in_progress_exception", Kind.SINK_BUSY),
        (400, "task_cancelled_exception", Kind.SINK_BUSY),
        (404, "search_context_missing_nodes_exception", Kind.SINK_BUSY),
        (404, "shard_not_found_exception", Kind.SINK_BUSY),
        (429, "too_many_scroll_contexts_exception", Kind.SINK_BUSY),
        (503, "cluster_manager_not_discovered_exception", Kind.SINK_BUSY),
        (400, "validation_exception", Kind.SINK_REJECTED),
        (404, "index_not_found_exception", Kind.SINK_REJECTED),
        (403, "security_exception", Kind.AUTHENTICATION),
    ],
)
def test_what_passes_is_known_by_its_type(status: int, kind: str, expected: Kind) -> None:
    body = {"error": {"root_cause": [{"type": kind}], "type": kind, "reason": "why"}, "status": status}
    assert from_status(status, json.dumps(body).encode(), "n").kind is expected


@pytest.mark.parametrize(
    ("body", "remedy"),
    [
        (
            '{"error":{"type":"security_exception","reason":"action is unauthorized on indices [token_1]"}}',
            "Give the user's role",
        ),
        (
            '{"error":{"type":"security_exception","reason":"current license is non-compliant for [x]"}}',
            "licence",
        ),
        ('{"message":"Signature expired: 1 is now earlier than 2"}', "clock"),
        ('{"message":"The request signature we calculated does not match"}', "must not change the host"),
        ('{"message":"The security token included in the request is expired"}', "renew the credentials"),
        ('{"Message":"User: u is not authorized to perform: es:ESHttpPost"}', "Give the user's role"),
        ("<html><title>403 Forbidden</title></html>", "rules of the proxy"),
    ],
)
def test_the_remedy_of_a_refusal_is_of_whom_refuses(body: str, remedy: str) -> None:
    error = from_status(403, body.encode(), "n")
    assert error.kind is Kind.AUTHENTICATION
    assert remedy in error.remedy


def test_of_a_page_its_title_is_quoted() -> None:
    page = b"<!DOCTYPE html>\n<html lang=en>\n<head><title>\nexample | 524: A timeout</title>"
    assert from_status(524, page, "n").cause.endswith("(status 524): example | 524: A timeout")


@pytest.mark.parametrize(
    "said",
    ["[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "tlsv1 alert unknown ca"],
)
def test_a_cluster_that_wants_another_certificate_of_the_client_is_no_cluster_that_is_away(said: str) -> None:
    error = exceptions.ProtocolError("Connection aborted.", ssl.SSLError(1, said))
    error.__cause__ = ssl.SSLError(1, said)
    found = from_exception(error, "n")
    assert found.kind is Kind.AUTHENTICATION
    assert "client_cert" in found.remedy


@pytest.mark.parametrize("name", ["message", "Message"])
def test_a_gateway_before_the_cluster_is_quoted(name: str) -> None:
    body = json.dumps({name: "The security token included in the request is expired"}).encode()
    assert "token included in the request is expired" in from_status(403, body, "n").cause


@pytest.mark.parametrize(
    "body",
    [
        "default backend - 404",
        '{"message":"no Route matched with those values"}',
        '{"error_msg":"404 Route Not Found"}',
        '{"fault":{"faultstring":"Unable to identify proxy","detail":{"errorcode":"messaging.NotFound"}}}',
        '{"timestamp":"2026-11-26T10:00:00Z","status":404,"error":"Not Found","path":"/x/_search"}',
        '{"type":"about:blank","title":"Not Found","status":404}',
        '{"error":"Not Found"}',
        '{"error":{"code":404,"message":"Requested entity was not found.","status":"NOT_FOUND"}}',
        '{"type":"error","error":{"type":"not_found_error","message":"Not found"}}',
        '{"detail":"Not Found"}',
        "[]",
        "null",
    ],
)
def test_what_no_cluster_says_is_of_a_gateway(body: str) -> None:
    assert is_of_gateway(body.encode())
    assert "proxy" in from_status(404, body.encode(), "n").remedy


@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"type":"index_not_found_exception","reason":"no such index [x]"},"status":404}',
        '{"error":{"type":"null_pointer_exception","reason":null},"status":500}',
        '{"error":"alias [x] missing","status":404,"users":{"aliases":{}}}',
        '{"error":"no handler found for uri [/x] and method [POST]"}',
        '{"_index":"x","_id":"1","found":false}',
        '{"_index":"x","_id":"1","_version":1,"result":"not_found","_shards":{"total":2},"_seq_no":0}',
        '{"succeeded":true,"num_freed":0}',
        '{"cluster_name":"c","status":"red","timed_out":true,"unassigned_shards":1}',
        "{}",
    ],
)
def test_a_cluster_is_known_by_what_it_says(body: str) -> None:
    assert not is_of_gateway(body.encode())


@pytest.mark.parametrize(
    "said",
    [
        "The Canonical String for this request should have been\n'GET\n/\n\nx-amz-security-token:s3cret\n'",
        "it has X-Amz-Security-Token: s3cret",
        "Authorization header requires 'Credential' parameter. Authorization=Basic s3cret",
        "'s3cret' not a valid key=value pair (missing equal-sign) in Authorization header: 'Basic s3cret'.",
        "no user's rule takes 's3cret of a text that was cut",
    ],
)
def test_what_a_gateway_quotes_of_the_request_is_not_shown(said: str) -> None:
    for answer in (json.dumps({"message": f"Refused: {said}"}), f"<title>Refused: {said}</title>"):
        error = from_status(403, answer.encode(), "n")
        assert "Refused: " in error.cause
        assert "s3cret" not in f"{error}{error.detail}"
