"""A deployment whose index has unusual ids, and what a run leaves of it; no Spark."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3

from headrace.pipeline.definitions import Definitions
from headrace.pipeline.planning import Plans
from headrace.pipeline.project import Project, open_project
from headrace.pipeline.run_sink import ClusterSink
from headrace.pipeline.source_of_run import new_state
from headrace.pipeline.worker.plan import Endpoints
from headrace.pipeline.worker.worker import BackfillRange, Worker
from headrace.postgres.connection import connect, execute
from headrace.postgres.server import inspect_server
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import create_slot, drop_slot
from headrace.reporter import SilentReporter
from headrace.sinks.opensearch import Client
from headrace.snapshot.planning import plan_ranges
from headrace.state import Counters, GenerationState, PipelineState, PositionRequest, StateStore, Unit
from headrace.tools.applied_position import AppliedPosition

TABLES = (
    """CREATE TABLE stock (shop text, code numeric(6,2), label text, hidden boolean NOT NULL DEFAULT false,
                          PRIMARY KEY (shop, code)) PARTITION BY LIST (shop)""",
    "CREATE TABLE stock_a PARTITION OF stock FOR VALUES IN ('a:%')",
    "CREATE TABLE stock_rest PARTITION OF stock DEFAULT",
    """INSERT INTO stock SELECT shop, code + 0.50, E'line\\nand "quote" é ' || code, code % 7 = 0
       FROM unnest(ARRAY['a:%', 'b', 'ü/?#', 'with space', '%41', '']) AS shop,
            generate_series(1, 40) AS code""",
)
_SCHEMA = """\
version: 1
table: stock
primary_key: [code, shop]
filters: [{ raw: "NOT hidden AND 12 / length(label) >= 0" }]
fields:
  - keyword: shop
  - decimal: code
  - keyword: label
"""
_ROOT = "publish_via_partition_root = false"
_VERSION = "?version_type=external_gte&version="


class Stock:
    """A deployment whose index `stock` is backfilled, and a pipeline that notes the log's end.

    Args:
        folder: of its files.
        url: of the database.
        sink: the address of the cluster.
        index: more lines of [[index]].
    """

    def __init__(self, folder: Path, url: str, sink: str, index: str = "") -> None:
        self.name = f"stock_{uuid.uuid4().hex[:8]}"
        self.prefix = f"{self.name}_"
        self.url, self.sink = url, sink
        self.config = folder / "headrace.toml"
        (folder / "stock.schema.yml").write_text(_SCHEMA)
        self.config.write_text(
            f'prefix = "{self.prefix}"\n[source]\ntype = "postgres"\nconnection_url = {json.dumps(url)}\n'
            f'slot = "{self.name}"\npublication = "{self.name}"\n'
            f'[sinks.primary]\ntype = "opensearch"\nurl = "{sink}"\n'
            f'[[index]]\nname = "stock"\nschema = "stock.schema.yml"\n{index}'
        )
        self._project: Project = open_project(self.config, {})
        self._endpoints: Endpoints = self._project.resolve()

    def seed(self) -> None:
        """Make the slot and the index, and publish it."""
        project, endpoints = self._project, self._endpoints
        with connect(endpoints.database) as connection:
            execute(connection, f"CREATE PUBLICATION {self.name} FOR TABLE stock WITH ({_ROOT})")
        with create_slot(endpoints.database, project.slot) as slot:
            point = slot.consistent_point
        with connect(endpoints.database) as connection:
            server = inspect_server(connection, endpoints.database)
        state = dataclasses.replace(
            new_state(server, project.slot, project.publication),
            phase="following",
            consistent_point=point,
            applied=point,
        )
        with contextlib.closing(Client(endpoints.sink)) as client:
            made = self._filled(project, "", client, client, state)
            self.generation = made.generation
            StateStore(client, project.key).save(state.changed(made))
        with connect(
            endpoints.database
        ) as connection:  # an edit by hand counts a version up: the log is beyond it
            execute(connection, "CREATE TABLE elsewhere (id int)")

    def seed_beside(self, name: str) -> GenerationState:
        """As a run does with a secondary sink that was added to the file since."""
        project, endpoints = open_project(self.config, {}), self._endpoints
        beside = project.resolve().secondary[name].sink
        with contextlib.closing(Client(endpoints.sink)) as client, contextlib.closing(Client(beside)) as sink:
            store = StateStore(client, project.key)
            state = store.load()
            assert state is not None
            made = self._filled(project, name, sink, client, state)
            store.save_generations([*state.generations, made])
        return made

    def _filled(
        self, project: Project, sink: str, client: Client, state_client: Client, state: PipelineState
    ) -> GenerationState:
        endpoints = project.resolve()
        source = project.deployment.source.model_copy(update={"replica_identity": "ignore"})
        deployment = project.deployment.model_copy(update={"source": source})  # nothing is set up for a run
        project = dataclasses.replace(project, deployment=deployment)
        definitions = Definitions(project, endpoints)
        with connect(endpoints.database) as connection:
            definitions.look(connection, None)
        assert not definitions.waiting, definitions.waiting
        target = project.targets[sink] if sink else project.primary
        cluster = ClusterSink(target, client, state_client, definitions, SilentReporter())
        created = cluster.create("stock", definitions.hashes[Unit(sink, "stock")])
        made = dataclasses.replace(created, sink=sink, backfilled_at=state.applied, published=True)
        work = Plans(definitions, endpoints).work(state.changed(made))
        with contextlib.closing(Worker(work.secondary[sink] if sink else work)) as worker:
            for part in self._ranges(definitions.inspection.catalog):
                worker.backfill(BackfillRange(made.generation, part, state.applied, None))
        cluster.complete(made)
        return made

    def _ranges(self, catalog: Any) -> list[Any]:
        with ReadSession(self._endpoints.database) as session:
            return list(plan_ranges(session, catalog[self._project.specs["stock"].table], 8 << 20))

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """As by a run in which nothing changes: whoever waits is told how far the log is."""
        ended = threading.Event()
        thread = threading.Thread(target=self._follow, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _follow(self, ended: threading.Event) -> None:
        with AppliedPosition(self._endpoints, self._project.key) as applied:
            meta = StateStore(applied.client, applied.key)
            position_request = PositionRequest(applied.client, applied.key)
            meta.load()
            while not ended.wait(0.02):
                meta.advance(min(position_request.read(), applied.end_of_log()), Counters())

    def ask(
        self, method: str, key: str, body: object = None, version: int | None = None, index: str = ""
    ) -> None:
        """Alter a document behind the pipeline's back; the alias is another one where `index` says."""
        fence = "" if version is None else f"{_VERSION}{version}"
        url = f"{self.sink}/{index or self.prefix + 'stock'}/_doc/{quote(key, safe='')}{fence}"
        answer = urllib3.request(method, url, json=body, timeout=30)
        assert answer.status < 300, answer.data

    def ids(self) -> set[str]:
        """Every id of the index."""
        alias = f"{self.sink}/{self.prefix}stock"
        urllib3.request("POST", f"{alias}/_refresh")
        found = urllib3.request("POST", f"{alias}/_search?size=1000", json={"_source": False}).json()
        return {hit["_id"] for hit in found["hits"]["hits"]}

    def drop(self) -> None:
        """Drop the slot."""
        with connect(self.url) as connection:
            drop_slot(connection, self.name, timeout=60)
