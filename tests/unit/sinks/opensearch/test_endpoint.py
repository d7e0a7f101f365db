"""Addresses and credentials."""

from __future__ import annotations

import pickle
import re

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import Endpoint
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.endpoint import connection_warnings


@pytest.mark.parametrize(
    "url", ["host:9200", "ftp://host", "http://", "http://host?x=1", "", "https://me:s3cret@host", "http://["]
)
def test_another_form_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        Endpoint((url,))
    assert caught.value.kind is Kind.CONFIG
    assert "s3cret" not in str(caught.value)


def test_a_collection_of_opensearch_serverless_is_refused_by_name() -> None:
    with pytest.raises(HeadraceError, match="OpenSearch Serverless, which keeps no versions") as caught:
        Endpoint(("https://abc123.eu-west-1.aoss.amazonaws.com",))
    assert (caught.value.kind, "aws_region" in caught.value.remedy) == (Kind.CONFIG, True)


def test_no_url_is_refused() -> None:
    with pytest.raises(HeadraceError, match="no URL"):
        Endpoint(())


def test_the_password_is_not_shown_and_survives_pickling() -> None:
    endpoint = Endpoint(("http://h",), username="u", password="secret")
    assert "secret" not in repr(endpoint)
    assert pickle.loads(pickle.dumps(endpoint)).password == "secret"


def test_parts_of_a_path_are_escaped() -> None:
    assert path("a", "_doc", "x/y z?", query={"routing": "é"}) == "/a/_doc/x%2Fy%20z%3F?routing=%C3%A9"


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        (Endpoint(("https://search:9200",), verify=False), "tls_verify = false.* and search:9200 "),
        (Endpoint(("http://search:9200",), username="u", password="p"), "to search:9200 in the clear"),
        (Endpoint(("https://a", "http://b:1"), username="u", password="s3cret"), "to b:1 in the clear"),
        (Endpoint(("http://[fd00::1]:9200",), api_key="i:k"), "in the clear"),
        (Endpoint(("http://search:9200",), bearer_token="s3cret"), "in the clear"),
        (Endpoint(("http://search:9200",), aws_region="eu-west-1"), "in the clear"),
    ],
)
def test_a_connection_that_others_can_read_or_alter_is_warned_about_once(
    endpoint: Endpoint, said: str
) -> None:
    [text] = connection_warnings([endpoint, endpoint])
    assert re.search(said, text)
    assert "s3cret" not in text


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint(("https://search:9200",), username="u", password="p"),
        Endpoint(("http://search:9200",)),
        Endpoint(("http://127.0.0.1:9200", "http://localhost:9200", "http://[::1]:9200"), api_key="i:k"),
    ],
)
def test_a_safe_connection_has_no_warning(endpoint: Endpoint) -> None:
    assert connection_warnings([endpoint]) == []
