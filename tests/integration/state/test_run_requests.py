"""A request for a whole run waits in the cluster until the run has carried it out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import PipelineState, StateStore
from headrace.state.key import StateKey
from headrace.state.run_requests import RunRequests


@pytest.fixture
def client(opensearch: EmbeddedOpenSearch) -> Iterator[Client]:
    made = Client(Endpoint((opensearch.url,)))
    yield made
    made.close()


def test_a_newer_request_replaces_one_of_the_same_subject_alone(client: Client) -> None:
    requests = RunRequests(client, StateKey("asked", "run_requests_"))
    assert requests.read() == []  # also without an index
    requests.submit("pause", "ada")
    requests.submit("log_level", "ada", "debug")
    [pause, level] = requests.read()
    number = requests.submit("resume", "bob")
    assert [(each.kind, each.value, each.by) for each in requests.read()] == [
        ("resume", "", "bob"),
        ("log_level", "debug", "ada"),
    ]
    requests.done(pause)  # which the resume has replaced, so it stays
    requests.done(level)
    assert [each.number for each in requests.read()] == [number]
    assert RunRequests(client, StateKey("other", "run_requests_")).read() == []


def test_requests_go_with_a_start_and_with_the_state(client: Client) -> None:
    requests = RunRequests(client, StateKey("left", "run_requests_"))
    requests.submit("pause", "ada")
    requests.forget()
    assert requests.read() == []
    meta = StateStore(client, StateKey("left", "run_requests_"))
    meta.load()
    meta.save(PipelineState("1", 1, 1, "left", "p", "following", 5, 5))
    requests.submit("pause", "ada")
    meta.delete()
    assert requests.read() == []
