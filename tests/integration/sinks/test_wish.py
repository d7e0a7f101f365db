"""A wish of somebody who waits is read by whoever runs the pipeline, and goes with the pipeline's state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.sinks.opensearch import Client, Endpoint, MetaIndex, PipelineState, Wish


@pytest.fixture
def client(opensearch: EmbeddedOpenSearch) -> Iterator[Client]:
    made = Client(Endpoint((opensearch.url,)))
    yield made
    made.close()


def test_the_last_wish_counts_and_the_state_is_not_touched_by_it(client: Client) -> None:
    meta = MetaIndex(client, "wished", "wish_test_")
    assert Wish(client, "wished", "wish_test_").read() == 0  # also without an index
    meta.load()
    meta.save(PipelineState("1", 1, 1, "wished", "p", "following", 5, 5))
    wish, other = (Wish(client, slot, "wish_test_") for slot in ("wished", "other"))
    wish.make(0x100)
    Wish(client, "wished", "wish_test_").make(0x90)
    assert (wish.read(), other.read()) == (0x90, 0)
    meta.save(PipelineState("1", 1, 1, "wished", "p", "following", 5, 6))
    meta.delete()
    assert wish.read() == 0
    assert meta.load() is None
