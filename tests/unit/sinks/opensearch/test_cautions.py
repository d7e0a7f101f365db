"""What is said of a way to a cluster that others can read or alter."""

from __future__ import annotations

import re

import pytest

from headrace.sinks.opensearch import Endpoint
from headrace.sinks.opensearch.cautions import of_endpoints


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        (Endpoint(("https://search:9200",), verify=False), "tls_verify = false.* and search:9200 "),
        (Endpoint(("http://search:9200",), username="u", password="p"), "to search:9200 in the clear"),
        (
            Endpoint(
                ("https://a", "http://u:s3cret@b:1"),
            ),
            "to b:1 in the clear",
        ),
        (Endpoint(("http://[fd00::1]:9200",), api_key="i:k"), "in the clear"),
    ],
)
def test_what_others_can_read_or_alter_is_said_once(endpoint: Endpoint, said: str) -> None:
    [text] = of_endpoints([endpoint, endpoint])
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
def test_what_nobody_else_can_read_is_no_risk(endpoint: Endpoint) -> None:
    assert of_endpoints([endpoint]) == []
