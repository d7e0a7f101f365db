"""A database whose documents a backfill writes through a proxy, for tests that drive it by hand."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from headrace.config.deployment import BackfillConfig
from headrace.pipeline.backfill import Backfill
from headrace.pipeline.worker.plan import Endpoints, Work
from headrace.sinks.opensearch import Endpoint
from headrace.spark.jobs import JobGate
from headrace.spark.session import LocalSpark
from headrace.state import GenerationState, PipelineState, StateKey, StateStore
from headrace.status.board import StatusBoard
from integration.documents.indexed_database import IndexedDatabase
from support.http_proxy import HttpProxy

SCHEMA = """
version: 1
table: person
primary_key: id
fields:
  - keyword: name
"""


class BackfilledDatabase(IndexedDatabase):
    """A database with a table `person`, and one generation that joined where the log ends.

    Args:
        url, node, folder: as of `IndexedDatabase`.
        front: the proxy before the node, by which the backfill writes.
        spark: runs its jobs.
    """

    limits = BackfillConfig()
    """Of the backfill."""

    def __init__(self, url: str, front: HttpProxy, node: str, folder: Path, spark: LocalSpark) -> None:
        super().__init__(url, node, folder, SCHEMA)
        self.front, self.spark = front, spark
        made = self.new_generation()
        self.name = made.index
        self.spec = replace(self.spec, name=made.index)
        self.key = StateKey(f"s{uuid.uuid4().hex[:8]}", "test_backfill_")
        plan = self.plan_of(made, key=self.key)
        self.work = Work(plan, Endpoints(url, Endpoint((front.url,))))
        position = self.position()
        self.generation = GenerationState(made.index, made.index, "1", "aa", joined=position)
        state = PipelineState("7", 1, 5, "s", "p", "following", position, position, (self.generation,))
        self.store = StateStore(self.client, self.key)
        self.store.load()
        self.store.save(state)

    def backfill(self) -> Backfill:
        """Begin to fill the generation, behind what an earlier backfill has filled."""
        filling = Backfill(
            self.generation,
            self.spark,
            self.work,
            self.store,
            StatusBoard(),
            snapshot=None,
            limits=self.limits,
            job_gate=JobGate(),
        )
        filling.start()
        return filling
