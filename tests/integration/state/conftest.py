"""A client of the node that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.sinks.opensearch import Client, Endpoint


@pytest.fixture
def client(opensearch: EmbeddedOpenSearch) -> Iterator[Client]:
    one = Client(Endpoint((opensearch.url,)))
    yield one
    one.close()
