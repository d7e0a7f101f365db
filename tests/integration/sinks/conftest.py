"""A client of the node that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.sinks.opensearch import Client, Endpoint
from headrace.testing.opensearch import EmbeddedOpenSearch


@pytest.fixture
def client(opensearch: EmbeddedOpenSearch) -> Iterator[Client]:
    one = Client(Endpoint((opensearch.url,)))
    yield one
    one.close()
