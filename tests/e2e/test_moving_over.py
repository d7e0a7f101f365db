"""docs/guides/moving.md, step by step: beside an old index, compared, switched, and back."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Self

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.sinks.opensearch import Client, Endpoint
from integration.cli.command_line import environment


def typed(pipeline: Headrace, *words: str) -> str:
    """What `headrace WORDS` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words, "--config", str(pipeline.config), "--slot", pipeline.name],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment({}),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Readers:
    """Searches under a name, again and again."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._search)
        self.found: list[int] = []
        self.failed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _search(self) -> None:
        while not self._ended.is_set():
            answer = self._client.exchange("GET", f"/{self._name}/_count")
            if answer.ok:
                self.found.append(answer.json()["count"])
            else:
                self.failed += 1


@pytest.mark.long
def test_an_old_tools_readers_are_moved_over_and_back(deploy: Deploy, opensearch: EmbeddedOpenSearch) -> None:
    client = Client(Endpoint((opensearch.url,)))
    with deploy(users=30) as pipeline:
        old, name = f"{pipeline.name}_old_1", f"old{pipeline.name}users"
        client.call("PUT", f"/{old}", {"aliases": {name: {}}})
        client.call("PUT", f"/{old}/_doc/1?refresh=true", {"name": "as it was"})
        pipeline.start()
        pipeline.wait_ready()
        assert json.loads(typed(pipeline, "verify", "users", "--format", "json"))["right"]
        with Readers(client, name) as readers:
            back = json.loads(typed(pipeline, "adopt", "users", "--name", name, "--yes"))
        count = len(pipeline.documents("users"))
        assert readers.failed == 0
        assert set(readers.found) <= {1, count}
        pipeline.shop.run("UPDATE users SET name = name || '!'")
        pipeline.converges()
        [user] = pipeline.shop.ids("SELECT min(id) FROM users WHERE deleted_at IS NULL")
        assert client.read(f"/{name}/_doc/{user}").json()["_source"]["name"].endswith("!")
        client.call("POST", "/_aliases", back)
        assert client.read(f"/{name}/_count").json()["count"] == 1
        assert pipeline.differences() == []
        pipeline.terminate()
        client.call("DELETE", f"/{old}")
    client.close()
