"""What is written is searchable soon, and the cluster refreshes little of the time."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
import urllib3

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from headrace.sinks.opensearch import Client, Endpoint
from headrace.sinks.opensearch.refresh import EagerRefresh
from support.http_proxy import Answer, Cut, HttpProxy, Request


@pytest.fixture
def index(opensearch: EmbeddedOpenSearch) -> Iterator[str]:
    name = f"r{uuid.uuid4().hex[:8]}"
    with contextlib.closing(Client(Endpoint((opensearch.url,)))) as client:
        client.call("PUT", f"/{name}", {"settings": {"index": {"refresh_interval": "-1"}}})
        yield name
        client.call("DELETE", f"/{name}")


@pytest.fixture
def proxy(opensearch: EmbeddedOpenSearch) -> Iterator[HttpProxy]:
    with HttpProxy(opensearch.url) as front:
        yield front


@pytest.fixture
def eager(proxy: HttpProxy) -> Iterator[EagerRefresh]:
    with contextlib.closing(Client(Endpoint((proxy.url,)))) as client:
        refresh = EagerRefresh(client)
        yield refresh
        refresh.close()


def found(url: str, index: str) -> int:
    answer = urllib3.request("GET", f"{url}/{index}/_count")
    return int(answer.json()["count"])


def put(url: str, index: str, id_: int) -> None:
    answer = urllib3.request(
        "PUT",
        f"{url}/{index}/_doc/{id_}",
        body=json.dumps({"n": id_}),
        headers={"content-type": "application/json"},
    )
    assert answer.status == 201, answer.data


def test_a_document_is_found_soon(opensearch: EmbeddedOpenSearch, index: str, eager: EagerRefresh) -> None:
    for number in range(3):
        put(opensearch.url, index, number)
        eager.request({index, "there is no such index"})
        eager.request({index})
        assert until(lambda: found(opensearch.url, index) == number + 1, 20)  # noqa: B023 - asked at once


def test_requests_meanwhile_are_one_refresh(proxy: HttpProxy, index: str, eager: EagerRefresh) -> None:
    going, asked = threading.Event(), threading.Event()

    def wait(_: Request) -> None:
        asked.set()
        going.wait(20)

    proxy.spoil = wait
    eager.request({index})
    assert asked.wait(20)
    for _ in range(100):
        eager.request({index})
    proxy.heal()
    going.set()
    assert until(lambda: len(refreshes(proxy)) == 2, 20)
    time.sleep(0.2)
    assert len(refreshes(proxy)) == 2


def test_a_cluster_that_refuses_or_is_away_is_asked_again_next_time(
    opensearch: EmbeddedOpenSearch, proxy: HttpProxy, index: str, eager: EagerRefresh
) -> None:
    put(opensearch.url, index, 1)
    faults = iter((Answer(403), Answer(503), Cut(unheard=True)))
    proxy.spoil = lambda _: next(faults, None)
    for number in (1, 2, 3):
        eager.request({index})
        assert until(lambda: len(refreshes(proxy)) == number, 20)  # noqa: B023 - asked at once
    assert found(opensearch.url, index) == 0
    proxy.heal()
    eager.request({index})
    assert until(lambda: found(opensearch.url, index) == 1, 20)


def refreshes(proxy: HttpProxy) -> list[Request]:
    return [request for request in proxy.requests if "/_refresh?" in request.target]
