"""What an operator reads of a cluster's answers."""

from __future__ import annotations

import json
import ssl

import pytest
from urllib3 import exceptions

from headrace.errors import Kind
from headrace.sinks.opensearch.failures import describe_without_values, from_exception, from_status

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
    ],
)
def test_an_answer_is_quoted_where_it_says_something(
    status: int, body: object, kind: Kind, cause: str
) -> None:
    error = from_status(status, b"" if body is None else json.dumps(body).encode(), "n")
    assert (error.kind, error.cause) == (kind, cause)


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
