"""A document that the cluster refuses, an index whose settings change: through a run and its restarts."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import Quarantine, StateKey
from support.shop_oracle import differences


def generation(client: Client, pipeline: Headrace) -> str:
    [index] = client.read(f"/_alias/{pipeline.prefix}users").json()
    return str(index)


def settings(client: Client, index: str) -> dict[str, Any]:
    found: dict[str, Any] = client.read(f"/{index}/_settings?flat_settings=true").json()[index]["settings"]
    return found


@pytest.mark.long
@pytest.mark.timeout(600)
def test_refused_documents_and_changed_settings(deploy: Deploy, opensearch: EmbeddedOpenSearch) -> None:
    client = Client(Endpoint((opensearch.url,)))
    with deploy(users=30) as pipeline:
        own = pipeline.config.parent / "own.json"
        own.write_text(json.dumps({"max_result_window": 20_000}))
        (own.parent / "small.json").write_text('{"properties": {"level": {"type": "byte"}}}')
        files = 'settings_file = "own.json"\nmappings_file = "small.json"\n'
        text = 'on_error = "quarantine"\n' + pipeline.config.read_text()
        named = 'name = "users"\n'
        assert named in text
        pipeline.config.write_text(text.replace(named, named + files))
        shop, quarantine = pipeline.shop, Quarantine(client, StateKey(pipeline.name, pipeline.prefix))
        [first, second] = shop.ids("SELECT id FROM users WHERE deleted_at IS NULL ORDER BY id LIMIT 2")
        shop.run(f"UPDATE users SET level = 1000 WHERE id = {first}")
        pipeline.start()
        pipeline.wait_ready()
        assert [(one.index, one.id) for one in quarantine.entries()] == [("users", str(first))]
        before = generation(client, pipeline)
        assert settings(client, before)["index.max_result_window"] == "20000"

        shop.run(
            f"UPDATE users SET level = 1000 WHERE id = {second}",
            f"UPDATE users SET level = 7 WHERE id = {first}",
        )
        pipeline.wait_until(
            lambda: [one.id for one in quarantine.entries()] == [str(second)], "did not heal", 60
        )
        expected = shop.expected()["users"]
        expected.pop(str(second))
        held = pipeline.documents("users")
        assert held.pop(str(second)), "its older version stays"
        assert differences(expected, held) == []
        pipeline.wait_until(lambda: _of_users(pipeline)["quarantined"] == 1, "was not counted", 30)
        pipeline.wait_until(
            lambda: pipeline.status()["counters"]["rejected"] >= 1, "its refusal was not counted", 30
        )
        pipeline.terminate()

        own.write_text(json.dumps({"max_result_window": 30_000}))
        pipeline.start()
        pipeline.wait_ready()
        assert generation(client, pipeline) == before
        assert settings(client, before)["index.max_result_window"] == "30000"
        pipeline.terminate()

        shop.run(f"UPDATE users SET level = 7 WHERE id = {second}")
        own.write_text(json.dumps({"number_of_shards": 2}))
        pipeline.start()
        pipeline.wait_ready()
        pipeline.wait_until(lambda: generation(client, pipeline) != before, "did not rebuild it", 60)
        after = generation(client, pipeline)
        assert settings(client, after)["index.number_of_shards"] == "2"
        pipeline.converges()
        assert quarantine.entries() == []
        pipeline.terminate()
    client.close()


@pytest.mark.long
def test_a_log_names_the_field_that_is_refused_and_the_quarantine_its_value(
    deploy: Deploy, opensearch: EmbeddedOpenSearch
) -> None:
    with deploy(users=10) as pipeline, closing(Client(Endpoint((opensearch.url,)))) as client:
        (pipeline.config.parent / "small.json").write_text('{"properties": {"level": {"type": "byte"}}}')
        named = 'name = "users"\n'
        text = pipeline.config.read_text().replace(named, f'{named}mappings_file = "small.json"\n')
        pipeline.config.write_text(text)
        pipeline.start()
        pipeline.wait_ready()
        user = pipeline.shop.id("SELECT min(id) FROM users WHERE deleted_at IS NULL")
        pipeline.shop.run(f"UPDATE users SET level = 987654 WHERE id = {user}")
        refused = "failed to parse field [level] of type [byte]"
        pipeline.wait_until(lambda: refused in pipeline.output.read_text(), "did not name the field", 30)
        quarantine = Quarantine(client, StateKey(pipeline.name, pipeline.prefix))
        pipeline.wait_until(lambda: len(quarantine.entries()) == 1, "kept no entry", 30)
        assert "987654" in quarantine.entries()[0].reason
        assert "987654" not in json.dumps(pipeline.status())
        pipeline.terminate()
        assert "987654" not in pipeline.output.read_text()


def _of_users(pipeline: Headrace) -> dict[str, Any]:
    [found] = [one for one in pipeline.status()["indexes"] if one["name"] == "users"]
    return dict(found)
