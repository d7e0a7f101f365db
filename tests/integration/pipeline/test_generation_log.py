"""What is durable of a run's generations, where the cluster fails at one of the steps."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog.drift import SchemaDrift
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.generations import GenerationManager, Seen
from headrace.pipeline.inspection import inspect
from headrace.pipeline.project import Project, open_project
from headrace.pipeline.reloading import Replan
from headrace.pipeline.run import PipelineRun, RunOptions
from headrace.pipeline.schema_drift import CatalogBaseline
from headrace.pipeline.stopping import Stopping
from headrace.pipeline.supervisor import RunningQuery
from headrace.pipeline.worker.plan import Endpoints, Work
from headrace.postgres.connection import connect, execute
from headrace.reporter import LoggingReporter
from headrace.sinks.opensearch import Client
from headrace.spark.jobs import JobGate
from headrace.state import ControlRequests, GenerationState, Mailbox, MetaIndex, OrderKind, PipelineState
from headrace.state.orders import new_order
from headrace.status.board import StatusBoard
from integration.cli.stock import TABLES, Stock
from support.http_proxy import Answer, Cut, HttpProxy, Request

_BUSY = Answer(429, b'{"error": {"type": "rejected_execution_exception", "reason": "queue full"}}')


class Ground:
    """A published generation, and what a run has of it, with all requests through `front`."""

    def __init__(self, stock: Stock, front: HttpProxy) -> None:
        self.front = front
        self.project: Project = open_project(stock.config, {})
        self.endpoints: Endpoints = self.project.resolve()
        self.client = Client(self.endpoints.sink)
        self.mailbox = Mailbox(self.client, self.project.key)
        self.orders = ControlRequests(self.client, self.project.key)
        self.meta = MetaIndex(self.client, self.project.key)
        self.board = StatusBoard(reporter=LoggingReporter(logging.getLogger("headrace")))
        with connect(self.endpoints.database) as connection:
            self.inspection = inspect(self.project, self.endpoints, connection, reading=False)
        state = self.meta.load()
        assert state is not None
        self.generation_log = GenerationLog(
            state,
            GenerationManager(self.inspection, self.project.primary, self.endpoints, self.client, self.board),
            self.meta,
            self.orders,
            self.board,
            as_of=0,
            keep=0,
        )

    def ordered(self) -> list[Any]:
        return self.orders.read(self.project.specs)

    def known(self) -> PipelineState:
        """What the next start would find."""
        found = MetaIndex(self.client, self.project.key).load()
        assert found is not None
        return found

    def reindexed(self) -> GenerationState:
        """An ordered generation, to be completed."""
        self.mailbox.submit(new_order(OrderKind.REINDEX, "stock"))
        self.generation_log.forget(self.generation_log.apply(self.ordered()))
        [one] = self.generation_log.building
        return one

    def exists(self, one: GenerationState) -> bool:
        return self.client.call("HEAD", f"/{one.generation}", allow=(404,)).ok


@pytest.fixture
def ground(database: str, tmp_path: Path, opensearch: EmbeddedOpenSearch) -> Iterator[Ground]:
    with connect(database) as connection:
        for statement in TABLES:
            execute(connection, statement)
    with HttpProxy(opensearch.url) as front:
        stock = Stock(tmp_path, database, front.url)
        stock.seed()
        found = Ground(stock, front)
        with contextlib.closing(found.client):
            yield found
        stock.drop()


def test_what_leaves_the_plan_is_not_in_the_state_any_more(ground: Ground) -> None:
    """The swap is done, and its note is not: who changes the plan of the stream notes it first.

    Else a kill behind that has a next start follow what no live change went to.
    """
    before = ground.generation_log.state.served("stock")
    new = ground.reindexed()

    def lose_notes(request: Request) -> Cut | None:
        swapped = ground.generation_log.to_drop
        return Cut(unheard=True) if swapped and request.method in {"PUT", "POST"} else None

    ground.front.spoil = lose_notes
    with pytest.raises(HeadraceError) as caught:
        ground.generation_log.complete(new, 240)
    assert caught.value.kind is Kind.SINK_UNREACHABLE
    ground.front.heal()
    assert [one.generation for one in ground.known().generations if one.published] == [before.generation]  # type: ignore[union-attr]
    assert ground.generation_log.apply([]) == []
    assert [(one.generation, one.published) for one in ground.known().generations] == [(new.generation, True)]
    assert ground.generation_log.to_drop == {before.generation}  # type: ignore[union-attr]


def test_a_rollback_holds_only_until_the_files_change(ground: Ground) -> None:
    """Files that are changed back to what a rollback had turned away from are followed."""
    log = ground.generation_log
    served = log.state.served("stock")
    assert served is not None
    log.state = log.state.changed(dataclasses.replace(served, pinned="turned away from"))
    log.resume(log.state.published, SchemaDrift(), log.state.catalog, [])
    assert [one.pinned for one in ground.known().generations] == [""]


def test_what_is_built_is_not_missed_by_its_readers(ground: Ground) -> None:
    served = ground.generation_log.state.served("stock")
    assert served is not None
    new = ground.reindexed()
    manager = ground.generation_log.manager
    assert manager.look([served, new]) == Seen()
    ground.client.call("DELETE", f"/{served.generation}/_alias/{ground.project.primary.prefix}stock")
    seen = manager.look([served, new])
    assert (seen.unserved, seen.lost, list(seen.faults)) == (frozenset({served.uuid}), {}, ["stock"])
    ground.client.call("DELETE", f"/{served.generation}")
    assert manager.look([served, new]).lost.keys() == {served.uuid}


@pytest.mark.parametrize("taken", ["removed", "led to another index, too"])
def test_a_start_recreates_what_its_changes_do_not_reach(ground: Ground, taken: str) -> None:
    """The index is there and has its uuid, and nothing would be written to it, or what is to come."""
    served = ground.generation_log.state.served("stock")
    assert served is not None
    alias = f"{served.generation}.write"
    other = f"{served.generation}_elsewhere"
    if taken == "removed":
        ground.client.call("DELETE", f"/{served.generation}/_alias/{alias}")
    else:
        about = {"is_hidden": True, "is_write_index": True}
        ground.client.call("PUT", f"/{other}", {"aliases": {alias: about}})
    state = ground.generation_log.state
    ground.generation_log.resume(state.published, SchemaDrift(), state.catalog, [])
    [before, made] = ground.known().of("stock")
    assert before.generation == served.generation
    assert "alias that it is written by" in before.frozen
    assert made.building
    assert before.published, "its readers keep what they have until then"
    assert ground.generation_log.written == [made]
    ground.client.call("DELETE", f"/{other}", allow=(404,))


def test_what_waits_to_be_dropped_does_not_come_back_with_a_loaded_state(ground: Ground) -> None:
    """The query failed and begins again from what is noted, in which it may be still."""
    before, noted = ground.generation_log.state.served("stock"), ground.known()
    assert before is not None
    new = ground.reindexed()
    ground.generation_log.complete(new, 240)
    ground.generation_log.adopt(dataclasses.replace(noted, generations=(*noted.generations, new)))
    assert [one.generation for one in ground.generation_log.written] == [new.generation]
    ground.generation_log.drop_unneeded()
    assert not ground.exists(before)
    assert ground.exists(new)


def test_what_is_told_of_a_filled_generation_are_its_documents(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream writes into it too, while it is filled: the filling finds those and writes only the rest."""
    caplog.set_level(logging.INFO, "headrace")
    before = ground.known().served("stock")
    assert before is not None
    new = ground.reindexed()
    for number in range(5):
        ground.client.call("PUT", f"/{new.generation}/_doc/a:{number}", {"shop": "a"})
    ground.generation_log.complete(new, 2)
    assert ground.board.view().indexes[0].documents == 5
    assert f"{ground.project.primary.prefix}stock: 5 documents" in caplog.text
    swapped = f"stock: readers see {new.generation}, no longer {before.generation}"
    assert ("headrace", logging.INFO, swapped) in caplog.record_tuples


def test_an_order_that_the_cluster_has_no_room_for_is_tried_again(ground: Ground) -> None:
    number = ground.mailbox.submit(new_order(OrderKind.REINDEX, "stock")).id
    target = f"/{ground.project.primary.prefix}stock"

    def no_room(request: Request) -> Answer | None:
        return _BUSY if request.method == "PUT" and request.target.startswith(target) else None

    ground.front.spoil = no_room
    asked = ground.ordered()
    assert ground.generation_log.apply(asked) == []
    ground.generation_log.forget([])
    assert ground.generation_log.building == []
    assert "queue full" in (ground.board.view().indexes[0].error or "")
    ground.front.heal()
    assert [one.number for one in ground.ordered()] == [number], "it is still asked for"
    done = ground.generation_log.apply(ground.ordered())
    assert [one.number for one in done] == [number]
    assert [one.request for one in ground.generation_log.building] == [number]
    assert [one.request for one in ground.known().generations if one.building] == [number]
    ground.generation_log.forget(done)
    assert ground.ordered() == []


def test_what_cannot_be_dropped_now_is_dropped_later(ground: Ground) -> None:
    before = ground.generation_log.state.served("stock")
    assert before is not None
    ground.generation_log.complete(ground.reindexed(), 240)
    ground.front.spoil = lambda request: _BUSY if request.method == "DELETE" else None
    with pytest.raises(HeadraceError) as caught:
        ground.generation_log.drop_unneeded()
    assert caught.value.kind is Kind.SINK_BUSY
    ground.front.heal()
    assert ground.generation_log.to_drop == {before.generation}
    ground.generation_log.drop_unneeded()
    assert not ground.exists(before)
    assert ground.generation_log.to_drop == frozenset()


def test_a_start_lets_every_index_remember_deletes_long_enough(ground: Ground) -> None:
    """An earlier version left them OpenSearch's minute."""
    served, new = ground.generation_log.state.served("stock"), ground.reindexed()
    assert served is not None
    for one in (served, new):
        ground.client.call("PUT", f"/{one.generation}/_settings", {"index": {"gc_deletes": None}})
    ground.generation_log.resume({}, SchemaDrift(), ground.generation_log.state.catalog, [])
    assert [setting(ground, one, "gc_deletes") for one in (served, new)] == ["2h", "24h"]


def test_settings_that_documents_rest_on_are_kept(ground: Ground) -> None:
    """An acknowledged document that a crash takes away, or one that a pipeline drops or alters."""
    served = ground.generation_log.state.served("stock")
    assert served is not None
    own = {"translog.durability": "request", "default_pipeline": "_none", "final_pipeline": "_none"}
    assert {name: setting(ground, served, name) for name in own} == own
    dropping: dict[str, Any] = {"processors": [{"drop": {}}]}
    ground.client.call("PUT", f"/_ingest/pipeline/{served.generation}", dropping)
    altered = {"translog.durability": "async", "final_pipeline": served.generation, "gc_deletes": "1s"}
    ground.client.call("PUT", f"/{served.generation}/_settings", {"index": altered})
    assert replaced(ground) == []
    assert {name: setting(ground, served, name) for name in own} == own
    assert setting(ground, served, "gc_deletes") == "2h"
    ground.client.call("DELETE", f"/_ingest/pipeline/{served.generation}")


def test_an_index_template_alters_no_document(ground: Ground, opensearch: EmbeddedOpenSearch) -> None:
    prefix = ground.project.primary.prefix
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
    made = ground.reindexed()
    write = f"/{made.generation}.write/_doc/1?refresh=true"
    assert ground.client.exchange("PUT", write, b'{"label":   "x"}').ok
    assert ground.client.read(f"/{made.generation}/_count").json()["count"] == 1
    assert b'"_source":{"label":   "x"}' in ground.client.read(f"/{made.generation}/_doc/1").data
    assert setting(ground, made, "translog.durability") == "request"
    ground.client.call("DELETE", f"/_index_template/{prefix}")
    ground.client.call("DELETE", f"/_ingest/pipeline/{prefix}")


def test_an_index_template_that_alters_source_in_its_mapping_is_refused_by_name(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """A template's mapping is merged into that of an index, so nothing can override it."""
    prefix = ground.project.primary.prefix
    mappings = {"_source": {"excludes": ["label"]}}
    template = {"index_patterns": [f"{prefix}*"], "template": {"mappings": mappings}}
    ground.client.call("PUT", f"/_index_template/{prefix}", template)
    before = ground.client.read(f"/{prefix}*?expand_wildcards=all").json().keys()
    ground.mailbox.submit(new_order(OrderKind.REINDEX, "stock"))
    ground.generation_log.apply(ground.ordered())
    assert ground.generation_log.building == []
    assert "an index template of the cluster applies to" in caplog.text
    assert "_source has excludes" in caplog.text
    assert ground.client.read(f"/{prefix}*?expand_wildcards=all").json().keys() == before
    ground.client.call("DELETE", f"/_index_template/{prefix}")


def replaced(ground: Ground) -> list[GenerationState]:
    """What a run finds at its next look, which it does not wait for."""
    watch = ground.generation_log._watch
    watch._next = float("inf")
    watch.look_now(ground.generation_log.state.generations)
    return ground.generation_log.freeze_replaced()


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
def test_an_index_whose_documents_are_others_is_rebuilt(
    ground: Ground, opensearch: EmbeddedOpenSearch, lose: Any
) -> None:
    """By a run that lives, within half a minute; a closed index and one that is opened again are the same."""
    generation_log, served = ground.generation_log, ground.generation_log.state.served("stock")
    assert served is not None
    assert all(served.history)
    assert replaced(ground) == []
    ground.client.call("POST", f"/{served.generation}/_close")
    assert replaced(ground) == []
    ground.client.call("POST", f"/{served.generation}/_open")
    is_open(ground, served.generation)
    assert replaced(ground) == []
    lose(ground, opensearch, served.generation)
    [found] = replaced(ground)
    generation_log.rebuild([found])
    assert replaced(ground) == []
    new = ground.known().generations[-1]
    assert (new.uuid == served.uuid, new.building) == (False, True)
    assert [one.uuid for one in generation_log.written] == [new.uuid]
    generation_log.complete(new, 240)
    generation_log.drop_unneeded()
    assert ground.exists(served) is (lose is not restore), "another's index is left alone"
    assert [one.generation for one in ground.known().generations] == [new.generation]


def test_a_start_rebuilds_what_was_restored_in_place(ground: Ground, opensearch: EmbeddedOpenSearch) -> None:
    state = ground.generation_log.state
    served = state.served("stock")
    assert served is not None
    unknown = dataclasses.replace(served, history=())  # an earlier version noted none
    ground.generation_log.adopt(state.changed(unknown))
    for history in (served.history, served.history):
        ground.generation_log.resume({}, SchemaDrift(), state.catalog, [])
        assert [one.history for one in ground.known().generations] == [history]
    restore(ground, opensearch, served.generation)
    ground.generation_log.resume({}, SchemaDrift(), state.catalog, [])
    [old, new] = ground.known().generations
    assert (old.followed, new.building) == (False, True)
    assert "restored" in old.frozen


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"add": {"filter": {"term": {"label": "x"}}}}, "has a filter"),
        ({"add": {"search_routing": "1"}}, "has a search_routing"),
        ({"remove": {}}, "leads to nothing"),
    ],
)
def test_an_alias_that_somebody_has_altered_is_told_and_set_right_by_a_start(
    ground: Ground, action: dict[str, dict[str, Any]], said: str
) -> None:
    generation_log, served = ground.generation_log, ground.generation_log.state.served("stock")
    assert served is not None
    [(what, how)] = action.items()
    altered = {what: {"index": served.generation, "alias": f"{ground.project.primary.prefix}stock", **how}}
    ground.client.call("POST", "/_aliases", {"actions": [altered]})
    assert replaced(ground) == []
    assert said in (ground.board.view().indexes[0].error or "")
    generation_log.resume({}, SchemaDrift(), generation_log.state.catalog, [])
    assert replaced(ground) == []
    assert ground.board.view().indexes[0].error is None


def setting(ground: Ground, one: GenerationState, name: str) -> object:
    found = ground.client.read(f"/{one.generation}/_settings?flat_settings=true").json()
    return found[one.generation]["settings"].get(f"index.{name}")


class Interrupted:
    """Stands for a query whose JVM is just asked when the signal to stop comes."""

    active = True

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self.answered = False

    def change(self, _work: Work, _needs: object, _ending: object) -> Lsn | None:
        self._stopping.stop()
        self.answered = True
        return None


class Changed:
    """Stands for what is beside the query, and takes a plan."""

    def change(self, _work: Work) -> None:
        pass


def test_a_signal_to_stop_does_not_break_into_what_the_jvm_is_asked(ground: Ground) -> None:
    """Half an answer would stay in the connection, and be taken for the next question's."""
    stopping = Stopping()
    run = PipelineRun(ground.project, ground.endpoints, ground.board, stopping, options=RunOptions())
    known = CatalogBaseline(ground.inspection, ground.endpoints)
    ground.mailbox.submit(new_order(OrderKind.REINDEX, "stock"))
    query: Any = Interrupted(stopping)
    beside: Any = Changed()
    running = RunningQuery(query, beside, beside, JobGate())
    run._catalog, run._generation_log = known, ground.generation_log
    assert not run._supervisor().reloaded_plan(running, ground.ordered(), ()), "the query is ended"
    assert query.answered
    assert stopping.is_set()
    assert len(ground.ordered()) == 1, "the next start carries it out"


class Filled:
    """A backfill that completes these generations."""

    def __init__(self, *filled: GenerationState) -> None:
        self._filled = [(generation, 240) for generation in filled]

    def completed(self) -> list[tuple[GenerationState, int]]:
        filled, self._filled = self._filled, []
        return filled


def test_a_swap_whose_note_was_lost_is_noted_at_the_next_look(ground: Ground) -> None:
    """Readers see the new generation; a state without that would have it backfilled for good."""
    run = PipelineRun(ground.project, ground.endpoints, ground.board, Stopping(), options=RunOptions())
    run._catalog = CatalogBaseline(ground.inspection, ground.endpoints)
    run._generation_log = ground.generation_log
    new = ground.reindexed()
    supervisor, backfills = run._supervisor(), Filled(new)

    def lose_notes(request: Request) -> Cut | None:
        swapped = ground.generation_log.to_drop
        return Cut(unheard=True) if swapped and request.method in {"PUT", "POST"} else None

    ground.front.spoil = lose_notes
    supervisor._publish(backfills)  # type: ignore[arg-type]
    assert [known.published for known in ground.known().generations] == [True, False]
    ground.front.heal()
    supervisor._publish(backfills)  # type: ignore[arg-type]
    [known] = ground.known().generations
    assert (known.generation, known.published, known.building) == (new.generation, True, False)
    assert ground.board.view().indexes[0].generation == new.generation


def refused_next(ground: Ground, generation_log: GenerationLog, index: str) -> None:
    """Let the cluster refuse the next generation of an index, whose served one is stopped."""
    target = f"/{ground.project.primary.prefix}{index}_"
    full = Answer(400, b'{"error": {"type": "validation_exception", "reason": "no shards are free"}}')

    def refuse(request: Request) -> Answer | None:
        return full if request.method == "PUT" and request.target.startswith(target) else None

    served = generation_log.state.served(index)
    assert served is not None
    ground.front.spoil = refuse
    generation_log.rebuild([dataclasses.replace(served, frozen="its table was altered")])
    assert generation_log.building == []
    assert "no shards are free" in (ground.board.view().indexes[0].error or "")


def test_a_cluster_that_is_away_leaves_a_refused_generation_waiting(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run looks again every half minute: that the cluster does not answer just then ends nothing."""
    monkeypatch.setattr("headrace.pipeline.generation_log._MAKE_SECONDS", 0.0)
    generation_log = ground.generation_log
    refused_next(ground, generation_log, "stock")
    target = f"/{ground.project.primary.prefix}stock_"

    def cut(request: Request) -> Cut | None:
        return Cut(unheard=True) if request.method == "PUT" and request.target.startswith(target) else None

    ground.front.spoil = cut
    assert not generation_log.make_refused()
    assert generation_log.building == []
    ground.front.heal()
    assert generation_log.make_refused()
    assert [known.building for known in ground.known().generations if not known.frozen] == [True]


def test_an_index_that_leaves_the_deployment_is_not_made_any_more(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster had no room for its next generation, so somebody takes it out of the file."""
    monkeypatch.setattr("headrace.pipeline.generation_log._MAKE_SECONDS", 0.0)
    generation_log, file = ground.generation_log, ground.project.deployment.file
    refused_next(ground, generation_log, "stock")
    ground.front.heal()
    file.write_text(file.read_text().replace('name = "stock"', 'name = "other"'))
    with connect(ground.endpoints.database) as connection:
        inspection = inspect(open_project(file, {}), ground.endpoints, connection, reading=False)
    catalog = CatalogBaseline(inspection, ground.endpoints)
    manager = GenerationManager(
        inspection, ground.project.primary, ground.endpoints, ground.client, ground.board
    )
    text = catalog.baseline.to_text()
    generation_log.replan(Replan(catalog, manager, generation_log.state.published, (), text))
    assert not generation_log.make_refused()
    assert [known.index for known in ground.known().generations] == ["other"]
