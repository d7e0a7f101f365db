"""Describe what a worker needs to turn changes into documents: the plan and the endpoints.

Plain data, pickled into the options of the query. Secrets are in an option of their own, whose value Spark
redacts wherever it prints options.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.capture.columns import KeptColumns, Projection
from headrace.catalog.table import Catalog
from headrace.model.names import TableName
from headrace.resolution import ResolutionPlan
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import Endpoint, WriterOptions
from headrace.sinks.registry import OPENSEARCH
from headrace.state import StateKey
from headrace.state.pipeline_state import generation_id

PLAN_OPTION = "plan"
SINK_OPTION = "sink"
SECRET_OPTION = "endpoints_secret"  # noqa: S105 - the name of an option; Spark redacts "secret"


@dataclass(frozen=True, slots=True)
class DocumentsPlan:
    """The plan of the documents that the workers write to one sink.

    The same batch may write two generations of one index. So specs, operations and keys bear the name of the
    generation.

    Attributes:
        specs: the schemas, by generation.
        catalog: the catalog that the plan is made for.
        resolution: the plan that finds the documents of a changed row.
        targets: by generation, the name that bulk requests address.
        writer: the settings of bulk requests.
        key: the name of the state.
        skip_rejected: indexes that skip documents that the sink refuses or that cannot be read.
        large_change: documents of one index that a change may touch before they are deferred.
        quarantine: indexes that quarantine such documents; their indexed versions are to "keep" or "delete".
        indexes: by generation, the name of its index; a missing one has the generation's name.
        served: generations that readers saw at planning time; a batch writes them before the others.
        kind: the type of the sink.
        refreshed: by generation, the alias for readers, which is refreshed after a small batch.
        mirrors: for a sink that cannot list its documents: by generation, the indexes in the cluster that
            keeps the state which may hold the same ones.
        code: the digests of the transforms' code that the documents are built with, by the transform's name.
    """

    specs: Mapping[str, IndexSpec]
    catalog: Catalog
    resolution: ResolutionPlan
    targets: Mapping[str, str]
    writer: WriterOptions
    key: StateKey
    skip_rejected: frozenset[str]
    large_change: int
    quarantine: Mapping[str, str] = field(default_factory=dict)
    indexes: Mapping[str, str] = field(default_factory=dict)
    served: frozenset[str] = frozenset()
    kind: str = OPENSEARCH
    refreshed: Mapping[str, str] = field(default_factory=dict)
    mirrors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def routed(self) -> frozenset[str]:
        """The generations whose documents have a routing column."""
        return frozenset(name for name, spec in self.specs.items() if spec.routing is not None)

    @property
    def is_plain(self) -> bool:
        """Whether the sink is not a cluster, and cannot list its documents."""
        return self.kind != OPENSEARCH

    @property
    def units(self) -> dict[str, str]:
        """The generations, by the ids by which errors name them."""
        return {self.unit_of(name): name for name in self.specs}

    def unit_of(self, generation: str) -> str:
        """Return the id by which errors name a generation; two sinks may name an index alike."""
        return generation_id(self.key.sink, generation)

    def stops_at(self, generation: str) -> bool:
        """Whether a refused document of the generation stops its index."""
        index = self.index_of(generation)
        return index not in self.skip_rejected and index not in self.quarantine

    def index_of(self, generation: str) -> str:
        """Return the index of a generation."""
        return self.indexes.get(generation, generation)


@dataclass(frozen=True, slots=True, repr=False)
class Endpoints:
    """The resolved addresses and secrets of a deployment, or of one of its sinks; never printed.

    Attributes:
        database: the connection string of the database.
        sink: the search cluster.
        state: the cluster that keeps the state; None: `sink`.
        options: the options of a plain sink; `sink` is then the cluster that keeps the state.
        secondary: the endpoints of the secondary sinks, by name.
    """

    database: str
    sink: Endpoint
    state: Endpoint | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    secondary: Mapping[str, Endpoints] = field(default_factory=dict)

    @property
    def keeps_state(self) -> Endpoint:
        """The cluster that keeps the state."""
        return self.state or self.sink

    def of(self, key: StateKey) -> Endpoints:
        """Return the endpoints of one sink of the deployment."""
        return self.secondary[key.sink] if key.sink else self


@dataclass(frozen=True, slots=True)
class Work:
    """What workers write to a sink, which travels as options of a Spark source.

    Attributes:
        plan: the plan of the documents.
        endpoints: where they are read and written.
        secondary: the work of every secondary sink beside it, by name, also of one that nothing is written to
            yet: a later plan may write to it, and the endpoints cannot change.
    """

    plan: DocumentsPlan
    endpoints: Endpoints
    secondary: Mapping[str, Work] = field(default_factory=dict)

    @property
    def written(self) -> Mapping[str, Work]:
        """The work of the secondary sinks that something is written to."""
        return {name: work for name, work in self.secondary.items() if work.plan.specs}

    @property
    def projection(self) -> Projection:
        """The columns of changed rows that resolution reads, for all sinks."""
        kept: dict[TableName, KeptColumns] = {}
        for work in (self, *self.secondary.values()):
            for table, routes in work.plan.resolution.routes.items():
                for route in routes:
                    columns = KeptColumns(frozenset(route.columns), route.reads or frozenset())
                    kept[table] = kept[table] | columns if table in kept else columns
        return kept

    def to_options(self) -> dict[str, str]:
        """Return the plans as one option, all secrets as another, and the name of a secondary sink."""
        # Plans and endpoints apart: Spark writes options to logs and pages, and redacts only the secret one.
        works, sink = {"": self, **self.secondary}, self.plan.key.sink
        options = {
            PLAN_OPTION: pack({name: work.plan for name, work in works.items()}),
            SECRET_OPTION: pack({name: work.endpoints for name, work in works.items()}),
        }
        return options | ({SINK_OPTION: sink} if sink else {})

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read what `to_options` wrote; only for options that this process's own driver set."""
        plans, endpoints = unpack(options[PLAN_OPTION]), unpack(options[SECRET_OPTION])
        secondary = {name: Work(plan, endpoints[name]) for name, plan in plans.items() if name}
        return cls(plans[""], endpoints[""], secondary)


def pack(value: object) -> str:
    """Return a value as the text of an option; pickled, so only this process's own driver may have set it."""
    return base64.b64encode(pickle.dumps(value)).decode("ascii")


def unpack(text: str) -> Any:
    """Read what `pack` wrote."""
    content: Any = pickle.loads(base64.b64decode(text))  # noqa: S301 - our own driver wrote it
    return content
