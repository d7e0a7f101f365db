"""What a run sees of its cluster, and what it does there to generations."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.controller.world import SinkSeen, Unknown
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.project import open_project
from headrace.pipeline.run_sink import ClusterSink
from headrace.postgres.connection import connect, execute
from headrace.reporter import LoggingReporter
from headrace.schema.normal import denormalised, normalised, unpack
from headrace.sinks.opensearch import Client, Endpoint
from headrace.sinks.opensearch.documents import count
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state import GenerationState, StateKey, StateStore, Unit
from headrace.state.lease import Lease
from integration.cli.stock import TABLES, Stock

SETTINGS_FILE = '\nsettings_file = "settings.json"\n'


class Ground:
    """A served generation, and the sink of a run that looks at it."""

    def __init__(self, stock: Stock) -> None:
        project = open_project(stock.config, {})
        source = project.deployment.source.model_copy(update={"replica_identity": "ignore"})
        deployment = project.deployment.model_copy(update={"source": source})
        project = dataclasses.replace(project, deployment=deployment)
        endpoints = project.resolve()
        self.client = Client(endpoints.sink)
        self.prefix = project.primary.prefix
        state = StateStore(self.client, project.key).load()
        assert state is not None
        [self.served] = state.generations
        self.definitions = Definitions(project, endpoints)
        with connect(endpoints.database) as connection:
            self.definitions.look(connection, None)
        self.stock, self.lease_prefix = stock, f"l{stock.prefix}"
        self.sink = self.sink_with(None, self.client)

    def sink_with(self, lease: Lease | None, client: Client) -> ClusterSink:
        target, report = self.definitions.project.primary, LoggingReporter(logging.getLogger("headrace"))
        return ClusterSink(target, client, self.client, self.definitions, report, lease=lease)

    @property
    def hash(self) -> str:
        return self.definitions.hashes[Unit("", "stock")]

    def look(self, *more: GenerationState) -> SinkSeen:
        seen = self.sink.look([self.served, *more])
        assert isinstance(seen, SinkSeen)
        return seen

    def is_lost(self) -> bool:
        """Whether a decision would build the served generation again."""
        seen = self.look()
        found = seen.indexes.get(self.served.generation)
        known = Identity(self.served.uuid, self.served.history)
        return found is None or known.is_another(found) or self.served.generation in seen.faults

    def setting(self, generation: GenerationState, name: str) -> object:
        found = self.client.read(f"/{generation.generation}/_settings?flat_settings=true").json()
        return found[generation.generation]["settings"].get(f"index.{name}")


@pytest.fixture
def ground(database: str, tmp_path: Path, opensearch: EmbeddedOpenSearch) -> Iterator[Ground]:
    with connect(database) as connection:
        for statement in TABLES:
            execute(connection, statement)
    stock = Stock(tmp_path, database, opensearch.url)
    stock.seed()
    found = Ground(stock)
    with contextlib.closing(found.client):
        yield found
    stock.drop()


def test_readers_are_led_to_what_is_complete_and_the_former_one_can_be_dropped(ground: Ground) -> None:
    new = ground.sink.create("stock", ground.hash)
    seen = ground.look(new)
    assert seen.served == {"stock": ground.served.generation}
    assert set(seen.indexes) == {ground.served.generation, new.generation}
    assert seen.read == {ground.served.generation}
    ground.client.call("PUT", f"/{new.generation}/_doc/1", {})
    ground.sink.complete(new)
    assert count(ground.client, new.generation) == 1
    served = dataclasses.replace(new, published=True)
    ground.served = dataclasses.replace(ground.served, published=False)
    assert ground.look(served).served == {"stock": new.generation}
    ground.sink.drop(ground.served.generation)
    ground.sink.drop(ground.served.generation)
    assert set(ground.look(served).indexes) == {new.generation}


def test_the_state_keeps_what_a_generation_was_created_from(ground: Ground) -> None:
    spec = denormalised(unpack(ground.served.schema), ground.served.generation)
    inspection = ground.definitions.inspection
    assert normalised(spec) == normalised(inspection.project.specs["stock"])
    assert ground.sink.create("stock", ground.hash).schema == ground.served.schema


@pytest.mark.parametrize("taken", ["removed", "led to another index, too"])
def test_an_index_that_its_changes_do_not_reach_is_lost(ground: Ground, taken: str) -> None:
    """The index is there and has its uuid, and nothing would be written to it, or what is to come."""
    alias, other = f"{ground.served.generation}.write", f"{ground.served.generation}_elsewhere"
    if taken == "removed":
        ground.client.call("DELETE", f"/{ground.served.generation}/_alias/{alias}")
    else:
        about = {"is_hidden": True, "is_write_index": True}
        ground.client.call("PUT", f"/{other}", {"aliases": {alias: about}})
    assert "alias that it is written by" in ground.look().faults[ground.served.generation]
    ground.client.call("DELETE", f"/{other}", allow=(404,))


def test_every_index_remembers_deletes_long_enough(ground: Ground) -> None:
    new = ground.sink.create("stock", ground.hash)
    for generation in (ground.served, new):
        ground.client.call("PUT", f"/{generation.generation}/_settings", {"index": {"gc_deletes": None}})
    ground.look(new)
    assert [ground.setting(generation, "gc_deletes") for generation in (ground.served, new)] == ["2h", "24h"]


def test_settings_that_documents_depend_on_are_kept(ground: Ground) -> None:
    """An acknowledged document that a crash takes away, or one that a pipeline drops or alters."""
    served = ground.served
    own = {"translog.durability": "request", "default_pipeline": "_none", "final_pipeline": "_none"}
    assert {name: ground.setting(served, name) for name in own} == own
    dropping: dict[str, Any] = {"processors": [{"drop": {}}]}
    ground.client.call("PUT", f"/_ingest/pipeline/{served.generation}", dropping)
    altered = {"translog.durability": "async", "final_pipeline": served.generation, "gc_deletes": "1s"}
    ground.client.call("PUT", f"/{served.generation}/_settings", {"index": altered})
    ground.look()
    assert {name: ground.setting(served, name) for name in own} == own
    assert ground.setting(served, "gc_deletes") == "2h"
    ground.client.call("DELETE", f"/_ingest/pipeline/{served.generation}")


def take_up(ground: Ground, settings: Mapping[str, str]) -> None:
    """Take up files that give the index other settings."""
    config = ground.stock.config
    (config.parent / "settings.json").write_text(json.dumps(settings))
    config.write_text(config.read_text().replace(SETTINGS_FILE, "") + SETTINGS_FILE)
    ground.definitions.adopt(open_project(config, {}))


def test_settings_that_the_cluster_refuses_are_the_fault_of_their_index(ground: Ground) -> None:
    take_up(ground, {"refresh_interval": "1 minute"})
    seen = ground.look()
    error = seen.refused[ground.served.generation]
    assert error.kind is Kind.SINK_REJECTED
    assert "refresh_interval" in error.cause
    assert error.remedy
    assert seen.served == {"stock": ground.served.generation}, "all else is seen as ever"
    assert ground.look().refused, "it is refused again and again"
    take_up(ground, {"refresh_interval": "7s"})
    assert not ground.look().refused
    assert ground.setting(ground.served, "refresh_interval") == "7s"


def test_an_index_that_is_blocked_keeps_no_other_from_its_settings(ground: Ground) -> None:
    new = ground.sink.create("stock", ground.hash)
    for generation in (ground.served, new):
        altered = {"gc_deletes": None, "blocks.read_only": generation is ground.served}
        ground.client.call("PUT", f"/{generation.generation}/_settings", {"index": altered})
    seen = ground.look(new)
    assert seen.refused.keys() == {ground.served.generation}
    assert ground.setting(new, "gc_deletes") == "24h"
    ground.client.call("PUT", f"/{ground.served.generation}/_settings", {"index": {"blocks.read_only": None}})
    assert not ground.look(new).refused
    assert ground.setting(ground.served, "gc_deletes") == "2h"


def test_a_lease_that_was_lost_is_taken_again_and_what_is_followed_is_built_again(
    ground: Ground, opensearch: EmbeddedOpenSearch
) -> None:
    """However long the state takes to say so; what is built then is right."""
    with leased(ground, opensearch) as (sink, meta):
        assert isinstance(sink.look([ground.served]), SinkSeen)
        ground.client.call("DELETE", f"/{meta}")
        seen = looked(sink, ground, lambda seen: isinstance(seen, Unknown))
        assert isinstance(seen, Unknown)
        assert seen.taken
        new = sink.create("stock", ground.hash)
        for _ in range(3):
            seen = sink.look([ground.served, new])
            assert isinstance(seen, SinkSeen)
            assert seen.faults.keys() == {ground.served.generation}
        stopped = dataclasses.replace(ground.served, frozen="another process has written it")
        seen = sink.look([stopped, new])
        assert isinstance(seen, SinkSeen)
        assert not seen.faults


def test_an_added_index_that_another_process_writes_fails_alone(
    ground: Ground, opensearch: EmbeddedOpenSearch
) -> None:
    """What the other one builds is none of ours until it gives the index up."""
    with leased(ground, opensearch) as (sink, _):
        assert isinstance(sink.look([ground.served]), SinkSeen)
        others = f"{ground.prefix}added_aa_1"
        put_generation(ground, others, "added")
        config = ground.stock.config
        config.write_text(f'{config.read_text()}[[index]]\nname = "added"\nschema = "stock.schema.yml"\n')
        ground.definitions.adopt(open_project(config, {}))
        with Lease(ground.client, StateKey("another", ground.lease_prefix), ["added"], beat=0.1):
            seen = sink.look([ground.served])
            assert isinstance(seen, SinkSeen)
            assert seen.indexes.keys() == {ground.served.generation}
            with pytest.raises(HeadraceError, match=r"the index .*added") as refused:
                sink.create("added", ground.hash)
            assert refused.value.kind is Kind.SLOT_IN_USE
        seen = sink.look([ground.served])
        assert isinstance(seen, SinkSeen)
        assert seen.indexes.keys() == {ground.served.generation, others}
        assert sink._taken == {}
        ground.client.call("DELETE", f"/{others}")


def test_of_an_index_that_was_removed_only_what_the_run_has_made_is_its_own(ground: Ground) -> None:
    """Another deployment may have taken the index over since."""
    made = ground.sink.create("stock", ground.hash)
    ground.look(made)
    config = ground.stock.config
    config.write_text(config.read_text().replace('name = "stock"', 'name = "store"'))
    ground.definitions.adopt(open_project(config, {}))
    put_generation(ground, f"{ground.prefix}stock_aa_7", "stock")
    seen = ground.sink.look([])
    assert isinstance(seen, SinkSeen)
    assert seen.indexes.keys() == {ground.served.generation, made.generation}
    ground.sink.drop(made.generation)
    put_generation(ground, made.generation, "stock")
    seen = ground.sink.look([])
    assert isinstance(seen, SinkSeen)
    assert seen.indexes.keys() == {ground.served.generation}, "the other one may give it the same name"
    for name in (f"{ground.prefix}stock_aa_7", made.generation):
        ground.client.call("DELETE", f"/{name}")


def put_generation(ground: Ground, name: str, index: str) -> None:
    """Create an index as a run of another deployment does."""
    about = {"headrace": {"index": index, "hash": name.split("_")[-2]}}
    ground.client.call("PUT", f"/{name}", {"mappings": {"_meta": about}})


@contextlib.contextmanager
def leased(ground: Ground, node: EmbeddedOpenSearch) -> Iterator[tuple[ClusterSink, str]]:
    """The same sink, as a secondary one: it holds leases in its cluster; and the index that has them."""
    key = StateKey("second", ground.lease_prefix)
    lease = Lease(Client(Endpoint((node.url,))), key, [], beat=0.1, patience=30.0)
    sink = ground.sink_with(lease, Client(Endpoint((node.url,))))
    with contextlib.closing(sink):
        yield sink, key.meta_index
    ground.client.call("DELETE", f"/{key.meta_index}", allow=(404,))


def looked(
    sink: ClusterSink, ground: Ground, wanted: Callable[[SinkSeen | Unknown], bool]
) -> SinkSeen | Unknown:
    """Look until something is seen."""
    end = time.monotonic() + 20
    while not wanted(seen := sink.look([ground.served])):
        assert time.monotonic() < end
        time.sleep(0.1)
    return seen


def test_an_index_template_alters_no_document(ground: Ground) -> None:
    prefix = ground.prefix
    ground.client.call("PUT", f"/_ingest/pipeline/{prefix}", {"processors": [{"drop": {}}]})
    given = {
        "index": {
            "default_pipeline": prefix,
            "final_pipeline": prefix,
            "translog.durability": "async",
            "derived_source.enabled": True,
        }
    }
    template = {"index_patterns": [f"{prefix}*"], "template": {"settings": given}}
    ground.client.call("PUT", f"/_index_template/{prefix}", template)
    made = ground.sink.create("stock", ground.hash)
    write = f"/{made.generation}.write/_doc/1?refresh=true"
    assert ground.client.exchange("PUT", write, b'{"label":   "x"}').ok
    assert ground.client.read(f"/{made.generation}/_count").json()["count"] == 1
    assert b'"_source":{"label":   "x"}' in ground.client.read(f"/{made.generation}/_doc/1").data
    assert ground.setting(made, "translog.durability") == "request"
    ground.client.call("DELETE", f"/_index_template/{prefix}")
    ground.client.call("DELETE", f"/_ingest/pipeline/{prefix}")


def test_an_index_template_that_alters_source_in_its_mapping_is_refused_by_name(ground: Ground) -> None:
    """A template's mapping is merged into that of an index, so nothing can override it."""
    prefix = ground.prefix
    mappings = {"_source": {"excludes": ["label"]}}
    template = {"index_patterns": [f"{prefix}*"], "template": {"mappings": mappings}}
    ground.client.call("PUT", f"/_index_template/{prefix}", template)
    before = ground.client.read(f"/{prefix}*?expand_wildcards=all").json().keys()
    with pytest.raises(HeadraceError, match="an index template of the cluster applies to") as refused:
        ground.sink.create("stock", ground.hash)
    assert refused.value.kind is Kind.SINK_REJECTED
    assert "_source has excludes" in refused.value.cause
    assert ground.client.read(f"/{prefix}*?expand_wildcards=all").json().keys() == before
    ground.client.call("DELETE", f"/_index_template/{prefix}")


def is_open(ground: Ground, index: str) -> None:
    """Wait until its shards are there."""
    ground.client.read(f"/_cluster/health/{index}?wait_for_status=yellow&timeout=60s")


def restore(ground: Ground, node: EmbeddedOpenSearch, index: str) -> None:
    """Snapshot and restore in place: the index stays the same, with the documents of another time."""
    where, name = f"/_snapshot/{index}", {"indices": index, "include_global_state": False}
    body = {"type": "fs", "settings": {"location": str(node.snapshots / index)}}
    ground.client.call("PUT", where, body)
    ground.client.call("PUT", f"{where}/one?wait_for_completion=true", name)
    ground.client.call("POST", f"/{index}/_close")
    ground.client.call("POST", f"{where}/one/_restore?wait_for_completion=true", name)
    is_open(ground, index)
    ground.client.call("DELETE", where)


def delete(ground: Ground, _: EmbeddedOpenSearch, index: str) -> None:
    ground.client.call("DELETE", f"/{index}")


def make_again(ground: Ground, _: EmbeddedOpenSearch, index: str) -> None:
    ground.client.call("DELETE", f"/{index}")
    ground.client.call("PUT", f"/{index}")


@pytest.mark.parametrize("lose", [restore, delete, make_again])
def test_an_index_whose_documents_are_others_is_lost(
    ground: Ground, opensearch: EmbeddedOpenSearch, lose: Any
) -> None:
    """A closed index and one that is opened again are the same."""
    assert all(ground.served.history)
    assert not ground.is_lost()
    ground.client.call("POST", f"/{ground.served.generation}/_close")
    assert not ground.is_lost()
    ground.client.call("POST", f"/{ground.served.generation}/_open")
    is_open(ground, ground.served.generation)
    assert not ground.is_lost()
    lose(ground, opensearch, ground.served.generation)
    assert ground.is_lost()
    ground.sink.drop(ground.served.generation)
    exists = ground.client.call("GET", f"/{ground.served.generation}", allow=(404,)).ok
    assert exists is (lose is make_again), "another's index is left alone"


@pytest.mark.parametrize(
    "action",
    [{"add": {"filter": {"term": {"label": "x"}}}}, {"add": {"search_routing": "1"}}, {"remove": {}}],
)
def test_an_alias_that_somebody_has_altered_is_set_right(
    ground: Ground, action: dict[str, dict[str, Any]]
) -> None:
    [(what, how)] = action.items()
    altered = {what: {"index": ground.served.generation, "alias": f"{ground.prefix}stock", **how}}
    ground.client.call("POST", "/_aliases", {"actions": [altered]})
    assert ground.look().served == {}
    ground.sink.serve(ground.served)
    assert ground.look().served == {"stock": ground.served.generation}


def test_what_another_program_has_under_the_name_is_never_taken(ground: Ground) -> None:
    ground.client.call("DELETE", f"/{ground.served.generation}")
    ground.client.call("PUT", f"/{ground.prefix}stock")
    with pytest.raises(HeadraceError, match="that Headrace did not make"):
        ground.sink.create("stock", ground.hash)
    ground.client.call("DELETE", f"/{ground.prefix}stock")
