"""A cluster that does not take documents: the run waits, says so, and goes on by itself."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace, Shop
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.sinks.opensearch import Client, Endpoint
from support.http_proxy import Answer, Cut, HttpProxy, Request
from support.recovering import recovering

_RENAMED = "UPDATE users SET name = name || '!'"


@pytest.fixture
def front(opensearch: EmbeddedOpenSearch) -> Iterator[HttpProxy]:
    with HttpProxy(opensearch.url) as one:
        yield one


@pytest.fixture
def pipeline(deploy: Deploy, opensearch: EmbeddedOpenSearch, front: HttpProxy) -> Iterator[Headrace]:
    """Its cluster is behind the proxy."""
    with deploy(users=30) as one:
        one.config.write_text(one.config.read_text().replace(opensearch.url, front.url))
        one.start()
        one.wait_ready()
        yield one
        one.terminate()


def is_degraded(pipeline: Headrace, because: str) -> bool:
    status = pipeline.status()
    return status.get("phase") == "degraded" and because in status["reason"]


def says_of_each_index(pipeline: Headrace, because: str) -> bool:
    return all(because in (shown["error"] or "") for shown in pipeline.status()["indexes"])


@pytest.mark.long
def test_a_busy_and_a_full_cluster_are_waited_for(
    pipeline: Headrace, opensearch: EmbeddedOpenSearch, front: HttpProxy
) -> None:
    front.spoil = lambda one: Answer(429, b'{"error":"queue full"}') if _is_bulk(one) else None
    pipeline.shop.run(_RENAMED)
    pipeline.wait_until(lambda: is_degraded(pipeline, "queue full"), "was not degraded", 30)
    sink = pipeline.status()["sinks"]["primary"]
    assert sink["retries"] > 0
    assert "HEADRACE_SINK_BUSY" in sink["error"]
    assert 'headrace_sink_waiting{sink="primary"} 1.0' in pipeline.ask("/metrics").data.decode()
    before = pipeline.confirmed()
    front.heal()
    pipeline.converges()
    pipeline.wait_until(lambda: pipeline.status()["phase"] == "live", "was not live again", 30)
    assert pipeline.confirmed() >= before

    client = Client(Endpoint((opensearch.url,)))
    block = "index.blocks.read_only_allow_delete"
    settings = f"/{pipeline.prefix}*/_settings?expand_wildcards=all"
    client.call("PUT", settings, {block: True})
    pipeline.shop.run(_RENAMED)
    pipeline.wait_until(lambda: says_of_each_index(pipeline, "read-only"), "did not say so", 60)
    client.call("PUT", settings, {block: None})
    pipeline.converges()
    pipeline.wait_until(lambda: pipeline.status()["phase"] == "live", "was not live again", 30)

    faults = itertools.cycle((Cut(), None, Answer(503), Cut(bytes=30), None, Answer(429), Cut(unheard=True)))
    front.spoil = lambda one: next(faults) if _is_bulk(one) else None
    for _ in range(5):
        pipeline.shop.run(_RENAMED)
    pipeline.converges()
    front.heal()


@pytest.mark.long
def test_credentials_that_a_starting_cluster_does_not_know_yet_are_waited_for(
    pipeline: Headrace, front: HttpProxy
) -> None:
    """Elasticsearch 8 refuses every key and every user of its own until their index is recovered."""
    refused: list[str] = []
    body = (
        b'{"error":{"type":"security_exception","reason":"unable to authenticate with provided credentials"}}'
    )

    def refuse(request: Request) -> Answer:
        refused.append(request.target)
        return Answer(401, body)

    def asked_for(part: str) -> bool:
        return sum(part in target for target in refused) > 1

    front.spoil = refuse
    pipeline.shop.run(_RENAMED)
    pipeline.wait_until(lambda: is_degraded(pipeline, "unable to authenticate"), "was not degraded", 60)
    # A worker asks for what is in quarantine before it writes.
    written = ("/_bulk", "headrace_quarantine")
    pipeline.wait_until(lambda: any(map(asked_for, written)), "no write was tried again", 60)
    pipeline.wait_until(lambda: asked_for("headrace_meta/_mget"), "the lease was not renewed", 60)
    front.heal()
    pipeline.converges()
    pipeline.wait_until(lambda: pipeline.status()["phase"] == "live", "was not live again", 60)


@pytest.mark.long
def test_a_cluster_that_recovers_slowly_is_waited_for_and_nothing_is_built_again(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    """Until it has recovered it says that neither the state nor any index exists."""
    with EmbeddedOpenSearch(heap="512m", short_lived=True) as node, contextlib.ExitStack() as held:
        shop = Shop(postgres.create_database("recovering"), 30)
        held.callback(postgres.drop_database, "recovering")
        held.callback(shop.drop_slots)
        pipeline = held.enter_context(contextlib.closing(Headrace(tmp_path, shop, node.url, "recovering")))
        pipeline.start()
        pipeline.wait_ready()
        client = held.enter_context(contextlib.closing(Client(Endpoint((node.url,)))))
        before = client.read(f"/{pipeline.prefix}*?expand_wildcards=all").json().keys()
        node.stop()
        pipeline.wait_until(lambda: pipeline.status()["phase"] == "degraded", "was not degraded", 60)
        with recovering(node):
            shop.run(_RENAMED)
        pipeline.converges(120)
        pipeline.wait_until(lambda: pipeline.status()["phase"] == "live", "was not live again", 60)
        assert client.read(f"/{pipeline.prefix}*?expand_wildcards=all").json().keys() == before
        pipeline.terminate()


def _is_bulk(request: Request) -> bool:
    return request.target.startswith("/_bulk")
