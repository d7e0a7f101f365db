"""A slot that retains more log than its budget is released, and everything is backfilled again afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.postgres.connection import connect
from headrace.postgres.slot import read_slot
from support.http_proxy import Answer, HttpProxy

_BUDGET = '[source]\non_gap = "reseed"\nwal_budget = "80 MB"\non_budget = "release"\n'
# The first may end a segment of 16 MB that is nearly full: four are 48 to 64 MB, seven at least 96 MB.
_SEGMENT = ("SELECT pg_logical_emit_message(false, 'headrace-test', 'x')", "SELECT pg_switch_wal()")


@pytest.fixture
def front(opensearch: EmbeddedOpenSearch) -> Iterator[HttpProxy]:
    with HttpProxy(opensearch.url) as proxy:
        yield proxy


def slot_exists(pipeline: Headrace) -> bool:
    with connect(pipeline.shop.url) as connection:
        return read_slot(connection, pipeline.name) is not None


def served(pipeline: Headrace) -> str:
    [name] = pipeline.served("users")
    return name


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("failpoint", ["", "released"])
def test_a_slot_beyond_its_budget_is_released_while_the_cluster_is_away(
    deploy: Deploy, opensearch: EmbeddedOpenSearch, front: HttpProxy, failpoint: str
) -> None:
    with deploy(users=30) as pipeline:
        text = pipeline.config.read_text().replace(opensearch.url, front.url)
        pipeline.config.write_text(text.replace("[source]\n", _BUDGET))
        pipeline.start(failpoint=failpoint)
        pipeline.wait_ready()
        old = served(pipeline)
        front.spoil = lambda _: Answer(503)
        pipeline.shop.run("UPDATE users SET name = name || '!'", *4 * _SEGMENT)
        pipeline.wait_until(
            lambda: "the budget is 76.3 MB" in " ".join(pipeline.status()["warnings"]), "was not warned", 60
        )
        assert slot_exists(pipeline)
        pipeline.shop.run(*3 * _SEGMENT)
        if not failpoint:
            pipeline.wait_until(lambda: not slot_exists(pipeline), "did not release its slot", 60)
        else:
            pipeline.wait_failpoint()
            pipeline.kill()
            assert not slot_exists(pipeline)
        pipeline.shop.run("UPDATE users SET name = name || '?'", "DELETE FROM reviews WHERE id % 5 = 0")
        front.heal()
        if failpoint:
            pipeline.start()
        pipeline.wait_until(lambda: served(pipeline) != old, "was not backfilled again", 300)
        pipeline.wait_ready()
        pipeline.converges()
        pipeline.shop.run("UPDATE users SET name = name || '.'")
        pipeline.converges()
        assert pipeline.status()["warnings"] == []
        pipeline.terminate()
    if not failpoint:
        assert "is released, before the primary's disk is full" in pipeline.output.read_text()
