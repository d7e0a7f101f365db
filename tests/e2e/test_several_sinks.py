"""Several sinks in one deployment: each gets each document, and one that fails holds up no other."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import CONVERGED_WITHIN, Headrace
from headrace.cli import main
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.model.lsn import format_lsn
from headrace.pipeline.project import open_project
from headrace.sinks.opensearch import Client, Endpoint, Generations
from headrace.state import PipelineState, StateKey, StateStore
from headrace.tools.demo.shop import INDEXES
from headrace.tools.explain import Explainer
from support.http_proxy import Answer, HttpProxy, Request
from support.shop_oracle import Documents, actual_documents, differences

_RENAMED = "UPDATE users SET name = name || '!'"
_OTHER = '\n[sinks.other]\ntype = "opensearch"\nurl = "{url}"\nprefix = "{prefix}"\nnumber_of_replicas = 0\n'
_PRINTED = '\n[sinks.printed]\ntype = "stdout"\n'


@pytest.fixture
def front(opensearch: EmbeddedOpenSearch) -> Iterator[HttpProxy]:
    with HttpProxy(opensearch.url) as one:
        yield one


def add(pipeline: Headrace, text: str) -> None:
    pipeline.config.write_text(pipeline.config.read_text() + text)


def other(pipeline: Headrace, front: HttpProxy) -> str:
    return _OTHER.format(url=front.url, prefix=prefix_of(pipeline))


def prefix_of(pipeline: Headrace) -> str:
    return f"{pipeline.prefix}other_"


def sink(pipeline: Headrace, name: str) -> dict[str, Any]:
    found: dict[str, Any] = pipeline.status().get("sinks", {}).get(name, {})
    return found


def until_live(pipeline: Headrace, *names: str) -> None:
    for name in names:
        pipeline.wait_until(
            lambda: sink(pipeline, name).get("phase") == "live",  # noqa: B023 (called at once)
            f"had not {name} live",
            100,
        )


def typed(pipeline: Headrace, command: str, *words: str) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main([command, *words, "--config", str(pipeline.config), "--slot", pipeline.name])
    return int(str(ended.value.code))


def held(pipeline: Headrace) -> dict[str, Documents]:
    """What readers of the other cluster find."""
    return {name: actual_documents(pipeline.sink_url, prefix_of(pipeline) + name) for name in INDEXES}


def said_of(pipeline: Headrace, user: int) -> dict[str, str]:
    """What `headrace explain` says that the secondary sinks hold of a user."""
    project = open_project(pipeline.config, os.environ, slot=pipeline.name)
    facts = dict(Explainer(project, project.resolve()).explain("users", str(user)).facts)
    return {name.removeprefix("sink "): says for name, says in facts.items() if name.startswith("sink ")}


def printed(pipeline: Headrace) -> dict[str, Documents]:
    """What somebody has who reads what is printed."""
    found: dict[str, Documents] = {name: {} for name in INDEXES}
    for line in pipeline.output.read_text().splitlines():
        if line.startswith('{"sink":"printed"'):
            one = json.loads(line, parse_float=Decimal)
            found[one["index"]].pop(one["id"], None)
            if one["op"] == "upsert":
                found[one["index"]][one["id"]] = one["document"]
    return found


def converges(pipeline: Headrace, read: Callable[[Headrace], dict[str, Documents]]) -> None:
    expected = pipeline.shop.expected()

    def wrong() -> list[str]:
        try:
            found = read(pipeline)
        except LookupError as error:
            return [str(error)]
        return [line for name in INDEXES for line in differences(expected[name], found[name])]

    end = time.monotonic() + CONVERGED_WITHIN
    while lines := wrong():
        pipeline.assert_running()
        assert time.monotonic() < end, "\n".join(lines)
        time.sleep(0.2)


@pytest.mark.long
def test_each_sink_gets_each_document_and_one_that_fails_holds_up_no_other(
    deploy: Deploy, front: HttpProxy
) -> None:
    with deploy(users=30) as pipeline:
        add(pipeline, other(pipeline, front) + _PRINTED)
        pipeline.start()
        pipeline.wait_ready()
        until_live(pipeline, "other", "printed")
        pipeline.shop.run(_RENAMED, "DELETE FROM order_items WHERE id % 7 = 0")
        pipeline.converges()
        converges(pipeline, held)
        converges(pipeline, printed)

        front.spoil = lambda _: Answer(503)
        pipeline.shop.run(_RENAMED)
        pipeline.converges()
        pipeline.wait_until(lambda: sink(pipeline, "other")["phase"] == "away", "did not say so", 20)
        pipeline.shop.run(_RENAMED, "DELETE FROM orders WHERE id % 5 = 0")
        began = time.monotonic()
        pipeline.converges()
        assert time.monotonic() - began < 8, "nobody waits again for a sink that is away"
        pipeline.wait_until(lambda: sink(pipeline, "other")["deferred"] > 0, "has deferred nothing", 20)
        assert sink(pipeline, "other")["phase"] == "away"
        assert pipeline.status()["phase"] == "live"
        assert pipeline.ask("/readyz").status == 200
        assert typed(pipeline, "wait") == 0
        assert typed(pipeline, "wait", "--sink", "other", "--timeout", "1") == 1
        converges(pipeline, printed)
        assert held(pipeline) != pipeline.shop.expected()

        front.heal()
        converges(pipeline, held)
        until_live(pipeline, "other")
        pipeline.shop.run(_RENAMED)
        assert typed(pipeline, "wait", "--sink", "other", "--searchable") == 0
        assert differences(pipeline.shop.expected()["users"], held(pipeline)["users"]) == []
        converges(pipeline, held)

        assert typed(pipeline, "verify", "users", "--sink", "other") == 0
        with closing(Client(Endpoint((pipeline.sink_url,)))) as client:
            user = pipeline.shop.id("SELECT min(id) FROM users WHERE deleted_at IS NULL")
            client.call("DELETE", f"/{prefix_of(pipeline)}users/_doc/{user}")
        assert said_of(pipeline, user) == {"other": "not there yet"}
        assert typed(pipeline, "verify", "users") == 0
        assert typed(pipeline, "verify", "users", "--sink", "other") == 1
        assert typed(pipeline, "verify", "users", "--sink", "other", "--repair") == 0
        assert differences(pipeline.shop.expected()["users"], held(pipeline)["users"]) == []
        assert said_of(pipeline, user) == {"other": "as the database has it now"}
        front.spoil = lambda _: Answer(503)
        assert "status 503" in said_of(pipeline, user)["other"]
        pipeline.terminate()


@pytest.mark.long
def test_a_sink_that_comes_later_is_filled_alone(deploy: Deploy, front: HttpProxy) -> None:
    with deploy(users=20) as pipeline:
        pipeline.start()
        pipeline.wait_ready()
        first = generations(pipeline, "")
        pipeline.terminate()
        pipeline.shop.run(_RENAMED)

        add(pipeline, other(pipeline, front) + _PRINTED)
        pipeline.start()
        pipeline.wait_ready()
        until_live(pipeline, "other", "printed")
        pipeline.shop.run("DELETE FROM orders WHERE id % 5 = 0", "TRUNCATE product_tags")
        pipeline.converges()
        converges(pipeline, held)
        converges(pipeline, printed)
        assert generations(pipeline, "") == first, "what was there is not built again"
        pipeline.terminate()


@pytest.mark.long
def test_a_sink_goes_on_at_the_next_start_and_is_forgotten_when_it_goes(
    deploy: Deploy, front: HttpProxy
) -> None:
    with deploy(users=20) as pipeline:
        before = pipeline.config.read_text()
        add(pipeline, other(pipeline, front))
        pipeline.start()
        pipeline.wait_ready()
        until_live(pipeline, "other")
        first = generations(pipeline, "other")
        pipeline.terminate()

        pipeline.shop.run("TRUNCATE product_tags")
        pipeline.start()
        pipeline.wait_ready()
        until_live(pipeline, "other")
        converges(pipeline, held)
        assert generations(pipeline, "other") == first, "it is not built again"
        pipeline.terminate()

        pipeline.config.write_text(before)
        pipeline.start()
        pipeline.wait_ready()
        assert generations(pipeline, "other") == []
        assert "other" not in pipeline.status()["sinks"]
        pipeline.terminate()


@pytest.mark.long
def test_a_sink_that_is_away_at_the_start_waits_for_nobody_and_gets_all_of_it_afterwards(
    deploy: Deploy, front: HttpProxy
) -> None:
    with deploy(users=30) as pipeline:
        front.spoil = lambda _: Answer(503)
        add(pipeline, other(pipeline, front))
        pipeline.start()
        pipeline.wait_ready()
        front.heal()
        until_live(pipeline, "other")
        converges(pipeline, held)
        front.spoil = lambda _: Answer(503)
        pipeline.shop.run("DELETE FROM orders WHERE id % 5 = 0")
        pipeline.converges()
        pipeline.kill()

        pipeline.shop.run(_RENAMED)
        pipeline.start()
        pipeline.wait_ready()
        pipeline.converges()
        pipeline.kill()
        front.heal()
        pipeline.start()
        pipeline.wait_ready()
        converges(pipeline, held)
        until_live(pipeline, "other")
        pipeline.terminate()


@pytest.mark.long
@pytest.mark.parametrize("most", [50, 1_000_000], ids=["it was too much", "it was deleted"])
def test_a_sink_whose_backlog_is_lost_is_backfilled_again(
    deploy: Deploy, front: HttpProxy, most: int
) -> None:
    with deploy(users=60) as pipeline:
        pipeline.config.write_text(f"max_deferred = {most}\n" + pipeline.config.read_text())
        add(pipeline, other(pipeline, front))
        pipeline.start()
        pipeline.wait_ready()
        until_live(pipeline, "other")
        first = generations(pipeline, "other")
        front.spoil = lambda _: Answer(503)
        pipeline.shop.run(_RENAMED)
        why = "documents waited for"
        if most > 50:
            pipeline.wait_until(lambda: sink(pipeline, "other").get("deferred", 0) > 50, "did not defer", 30)
            urllib3.request("DELETE", f"{pipeline.sink_url}/{pipeline.prefix}headrace_deferred_secondary")
            front.heal()  # what a sink lacks is looked for once it answers
            why = "the index of what waited"
        pipeline.wait_until(lambda: why in pipeline.last_output(), "did not give it up", 60)
        pipeline.shop.run("DELETE FROM orders WHERE id % 5 = 0")
        pipeline.converges()
        front.heal()
        pipeline.wait_until(
            lambda: not set(first) & set(generations(pipeline, "other")), "had not rebuilt it", 60
        )
        until_live(pipeline, "other")
        converges(pipeline, held)
        with closing(Client(Endpoint((pipeline.sink_url,)))) as client:
            there = Generations(client, prefix_of(pipeline))
            pipeline.wait_until(
                lambda: all(len(there.existing(name)) == 1 for name in INDEXES), "kept what it gave up", 30
            )
        pipeline.terminate()


@pytest.mark.long
def test_an_index_that_is_taken_from_a_sink_is_backfilled_again_and_the_others_go_on(
    deploy: Deploy, front: HttpProxy
) -> None:
    with deploy(users=30) as pipeline, closing(Client(Endpoint((pipeline.sink_url,)))) as client:
        add(pipeline, other(pipeline, front))
        pipeline.start()
        pipeline.wait_ready()
        until_live(pipeline, "other")
        first = generations(pipeline, "")

        def is_rebuilt(before: str, index: str, after: Callable[[], None]) -> None:
            known = uuids(pipeline, "other")
            after()
            pipeline.wait_until(
                lambda: serves_another(pipeline, index, known[index]),
                f"kept {before}, or was not filled",
                120,
            )
            until_live(pipeline, "other")
            converges(pipeline, held)
            kept = {name: uuid for name, uuid in known.items() if name != index}
            assert kept.items() <= uuids(pipeline, "other").items(), "only that one is backfilled again"

        def one_of(index: str) -> str:
            found = state_of(pipeline, "other").served(index)
            assert found is not None
            return found.generation

        def deleted() -> None:
            client.call("DELETE", f"/{one_of('users')}")

        def written() -> None:
            deleted()
            pipeline.shop.run(_RENAMED)
            pipeline.converges()

        def made_again() -> None:
            name = one_of("users")
            client.call("DELETE", f"/{name}")
            client.call("PUT", f"/{name}", {"aliases": {f"{name}.write": {}}})
            pipeline.shop.run(_RENAMED)

        def not_written() -> None:
            name = one_of("users")
            client.call("DELETE", f"/{name}/_alias/{name}.write")
            pipeline.shop.run("DELETE FROM orders WHERE id % 5 = 0")

        def written_elsewhere() -> None:
            name = one_of("orders")
            taken = {"index": one_of("users"), "alias": f"{name}.write", "is_hidden": True}
            client.call("POST", "/_aliases", {"actions": [{"add": {**taken, "is_write_index": True}}]})

        is_rebuilt("an index that is gone and that nothing is written to", "users", deleted)
        is_rebuilt("an index that is gone", "users", written)
        is_rebuilt("an index that is another one", "users", made_again)
        is_rebuilt("an index that is not written any more", "users", not_written)
        is_rebuilt("an index whose changes go to another one", "orders", written_elsewhere)
        assert len(re.findall("was deleted|leads to another index", pipeline.last_output())) >= 5

        client.call("DELETE", f"/{one_of('users')}/_alias/{prefix_of(pipeline)}users")
        converges(pipeline, held)
        pipeline.wait_until(lambda: "alias led elsewhere" in pipeline.last_output(), "did not say so", 10)
        assert "reindex" not in pipeline.last_output()
        assert generations(pipeline, "") == first, "the primary has nothing to do with it"
        assert pipeline.ask("/readyz").status == 200
        pipeline.terminate()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_kill_at_any_commit_point_costs_no_sink_a_document(deploy: Deploy, front: HttpProxy) -> None:
    """The other cluster refuses every third request meanwhile, so that some of it is deferred."""
    number = itertools.count()

    def now_and_then(_: Request) -> Answer | None:
        return Answer(503) if next(number) % 3 == 0 else None

    with deploy(users=60) as pipeline:
        add(pipeline, other(pipeline, front))
        pipeline.start(failpoint="range")
        pipeline.wait_failpoint()
        pipeline.kill()
        for failpoint in ("planned", "bulk", "applied", "confirmed"):
            front.heal()
            pipeline.start()
            pipeline.wait_ready()
            until_live(pipeline, "other")
            pipeline.terminate()
            front.spoil = now_and_then
            pipeline.shop.run(
                _RENAMED,
                "UPDATE order_items SET quantity = quantity % 9 + 1",
                "DELETE FROM orders WHERE id = (SELECT max(id) FROM orders)",
                "DELETE FROM reviews WHERE id % 7 = 0",
            )
            pipeline.start(failpoint=failpoint)
            pipeline.wait_failpoint()
            pipeline.kill()
            pipeline.shop.run("UPDATE users SET name = name || '?' WHERE id % 3 = 0")
            pipeline.start()
            pipeline.wait_ready()
            pipeline.converges()
            front.heal()
            converges(pipeline, held)
            until_live(pipeline, "other")
            pipeline.terminate()


@pytest.mark.long
def test_a_sink_that_is_named_otherwise_or_comes_back_is_backfilled_again(
    deploy: Deploy, front: HttpProxy
) -> None:
    with deploy(users=20) as pipeline:
        before = pipeline.config.read_text()
        add(pipeline, other(pipeline, front))
        pipeline.start()
        pipeline.wait_ready()
        until_live(pipeline, "other")
        front.spoil = lambda _: Answer(503)
        pipeline.shop.run(_RENAMED)
        pipeline.converges()
        pipeline.wait_until(lambda: sink(pipeline, "other").get("deferred", 0) > 0, "did not defer", 30)
        first = set(uuids(pipeline, "other").values())
        pipeline.terminate()
        front.heal()

        pipeline.config.write_text(before)
        pipeline.start()
        pipeline.wait_ready()
        pipeline.shop.run("DELETE FROM orders WHERE id % 5 = 0")
        pipeline.converges()
        pipeline.terminate()

        add(pipeline, other(pipeline, front))
        pipeline.start()
        pipeline.wait_ready()
        until_live(pipeline, "other")
        converges(pipeline, held)
        second = set(uuids(pipeline, "other").values())
        assert not first & second, "what it had lacks what came meanwhile"
        pipeline.terminate()

        pipeline.config.write_text(before)
        add(pipeline, other(pipeline, front).replace("[sinks.other]", "[sinks.renamed]"))
        pipeline.shop.run(_RENAMED)
        pipeline.start()
        pipeline.wait_ready()
        until_live(pipeline, "renamed")
        converges(pipeline, held)
        assert not second & set(uuids(pipeline, "renamed").values())
        assert generations(pipeline, "other") == []
        pipeline.terminate()


@pytest.mark.long
def test_who_waits_for_a_sink_is_not_told_that_what_is_lost_was_written(
    deploy: Deploy, front: HttpProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    with deploy(users=30) as pipeline:
        add(pipeline, other(pipeline, front))
        pipeline.start()
        pipeline.wait_ready()
        until_live(pipeline, "other")
        front.spoil = lambda _: Answer(503)
        pipeline.shop.run(_RENAMED)
        pipeline.wait_until(lambda: sink(pipeline, "other").get("deferred", 0) > 0, "did not defer", 30)
        pipeline.kill()
        urllib3.request("DELETE", f"{pipeline.sink_url}/{pipeline.prefix}headrace_deferred_secondary")
        at = format_lsn(state_of(pipeline, "").reached)
        assert typed(pipeline, "wait", "--sink", "other", "--lsn", at, "--timeout", "1") == 1
        assert "the index of what was deferred" in capsys.readouterr().err
        front.heal()
        pipeline.start()
        until_live(pipeline, "other")
        assert (
            typed(pipeline, "wait", "--sink", "other", "--lsn", at, "--searchable", "--timeout", "300") == 0
        )
        assert differences(pipeline.shop.expected()["users"], held(pipeline)["users"]) == []
        pipeline.terminate()


def serves_another(pipeline: Headrace, index: str, than: str) -> bool:
    """Whether readers of the other cluster see a generation of another uuid."""
    served = state_of(pipeline, "other").served(index)
    return served is not None and served.followed and served.uuid != than


def uuids(pipeline: Headrace, of: str) -> dict[str, str]:
    """The uuid of each index's newest generation."""
    return {one.index: one.uuid for one in state_of(pipeline, of).generations}


def state_of(pipeline: Headrace, of: str) -> PipelineState:
    with closing(Client(Endpoint((pipeline.sink_url,)))) as client:
        state = StateStore(client, StateKey(pipeline.name, pipeline.prefix)).load()
    assert state is not None
    return state.in_sink(of)


def generations(pipeline: Headrace, of: str) -> list[str]:
    return [one.generation for one in state_of(pipeline, of).generations]
