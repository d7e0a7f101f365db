"""Does the oracle read an index whole, as it is, and tell what is wrong with it?"""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
import urllib3

from headrace.embedded.opensearch import EmbeddedOpenSearch
from support.shop_oracle import actual_documents, differences

_NUMBERS = '{"exact": 0.1234567890123456789, "whole": 9007199254740993, "zero": 1.50, "none": null}'


def _bulk(url: str, index: str, bodies: dict[str, str]) -> None:
    lines = [line for key, body in bodies.items() for line in (json.dumps({"index": {"_id": key}}), body)]
    response = urllib3.request(
        "POST",
        f"{url}/{index}/_bulk",
        body="\n".join([*lines, ""]),
        headers={"Content-Type": "application/json"},
        timeout=30,
    )
    assert response.json()["errors"] is False


def test_every_document_is_read_through_the_alias_however_many_there_are(
    opensearch: EmbeddedOpenSearch,
) -> None:
    """More than one page; not yet refreshed; numbers neither rounded nor turned into floats."""
    _bulk(opensearch.url, "oracle_pages_1", {str(key): json.dumps({"id": key}) for key in range(2500)})
    _bulk(opensearch.url, "oracle_pages_1", {"exact": _NUMBERS})
    urllib3.request("PUT", f"{opensearch.url}/oracle_pages_1/_alias/oracle_pages", timeout=30)
    found = actual_documents(opensearch.url, "oracle_pages")
    assert found.pop("exact") == {
        "exact": Decimal("0.1234567890123456789"),
        "whole": 9007199254740993,
        "zero": Decimal("1.5"),
        "none": None,
    }
    assert found == {str(key): {"id": key} for key in range(2500)}


def test_what_was_edited_lost_or_added_is_told(opensearch: EmbeddedOpenSearch) -> None:
    expected = {str(key): {"id": key, "name": "x"} for key in range(3)}
    _bulk(opensearch.url, "oracle_wrong", {key: json.dumps(body) for key, body in expected.items()})
    assert differences(expected, actual_documents(opensearch.url, "oracle_wrong")) == []
    urllib3.request("DELETE", f"{opensearch.url}/oracle_wrong/_doc/0", timeout=30)
    _bulk(opensearch.url, "oracle_wrong", {"1": '{"id": 1, "name": "y"}', "9": '{"id": 9}'})
    assert differences(expected, actual_documents(opensearch.url, "oracle_wrong")) == [
        "0: missing",
        "9: should not be there",
        "1 name: expected 'x', found 'y'",
    ]


def test_an_alias_that_is_not_there_is_an_error_and_not_an_empty_index(
    opensearch: EmbeddedOpenSearch,
) -> None:
    with pytest.raises(LookupError, match=r"oracle_nowhere.*404"):
        actual_documents(opensearch.url, "oracle_nowhere")
