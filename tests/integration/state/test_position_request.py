"""A wish of somebody who waits is read by whoever runs the pipeline, and goes with the pipeline's state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import PipelineState, PositionRequest, StateKey, StateStore


@pytest.fixture
def client(opensearch: EmbeddedOpenSearch) -> Iterator[Client]:
    made = Client(Endpoint((opensearch.url,)))
    yield made
    made.close()


def test_the_last_requested_position_counts_and_the_state_is_not_touched_by_it(client: Client) -> None:
    meta = StateStore(client, StateKey("wished", "wish_test_"))
    assert PositionRequest(client, StateKey("wished", "wish_test_")).read() == 0  # also without an index
    meta.load()
    meta.save(PipelineState("1", 1, 1, "wished", "p", "following", 5, 5))
    position_request, other = (
        PositionRequest(client, StateKey(slot, "wish_test_")) for slot in ("wished", "other")
    )
    position_request.submit(0x100)
    PositionRequest(client, StateKey("wished", "wish_test_")).submit(0x90)
    assert (position_request.read(), other.read()) == (0x90, 0)
    meta.save(PipelineState("1", 1, 1, "wished", "p", "following", 5, 6))
    meta.delete()
    assert position_request.read() == 0
    assert meta.load() is None
