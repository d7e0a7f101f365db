"""What must a worker know to turn changes into documents?

Plain data, pickled into the query. Secrets travel apart from it, under an option whose name Spark itself
redacts wherever it prints options.
"""

from __future__ import annotations

import base64
import dataclasses
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.capture.projection import KeptColumns, Projection
from headrace.catalog.table import Catalog
from headrace.model import TableName
from headrace.resolution import ResolutionPlan
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import Endpoint, WriterOptions

PLAN_OPTION = "plan"
SINK_OPTION = "sink"
SECRET_OPTION = "connections_secret"  # noqa: S105 - the name of an option; Spark redacts "secret"


@dataclass(frozen=True, slots=True)
class DocumentsPlan:
    """The documents to keep and where they go.

    Two generations of one index may be written by the same batch: each has its own name here, which its
    spec bears too, and so do its operations and its keys.

    Attributes:
        specs: the generations, by name.
        targets: generation → what a bulk request addresses.
        slot: whose position is kept; with `prefix` it says where.
        skip_rejected: indexes that go on without a document that the sink refuses, or that cannot be read.
        quarantine: indexes that keep such documents in quarantine; what of them is in the index is to "keep"
            or to "delete".
        large_change: documents of one index that a change may touch before they are worked off beside
            later changes.
        indexes: generation → the index that people know; one that is not here has the same name.
        served: generations that readers saw when this was planned; a batch writes them before the others.
        kind: of the sink.
        mirrors: of a sink that cannot list what it holds: index → what is read in the cluster that keeps the
            state instead, which holds the same documents.
        further: plans of the other sinks, by name; each has a slot `SLOT/NAME`.
    """

    specs: Mapping[str, IndexSpec]
    catalog: Catalog
    resolution: ResolutionPlan
    targets: Mapping[str, str]
    writer: WriterOptions
    slot: str
    prefix: str
    skip_rejected: frozenset[str]
    large_change: int
    quarantine: Mapping[str, str] = field(default_factory=dict)
    indexes: Mapping[str, str] = field(default_factory=dict)
    served: frozenset[str] = frozenset()
    kind: str = "opensearch"
    mirrors: Mapping[str, str] = field(default_factory=dict)
    secondary: Mapping[str, DocumentsPlan] = field(default_factory=dict)

    @property
    def projection(self) -> Projection:
        """The columns of changed rows that resolution reads, for every sink."""
        found: dict[TableName, KeptColumns] = {}
        for plan in (self, *self.secondary.values()):
            for table, routes in plan.resolution.routes.items():
                for route in routes:
                    columns = KeptColumns(frozenset(route.columns), route.reads or frozenset())
                    found[table] = found[table] | columns if table in found else columns
        return found

    @property
    def routed(self) -> frozenset[str]:
        """The generations whose documents a column routes."""
        return frozenset(name for name, spec in self.specs.items() if spec.routing is not None)

    @property
    def is_plain(self) -> bool:
        """Whether the sink is no cluster, and cannot be asked what it holds."""
        return self.kind != "opensearch"

    def stops_at(self, generation: str) -> bool:
        """Whether a document of it that is refused ends the run."""
        index = self.index_of(generation)
        return index not in self.skip_rejected and index not in self.quarantine

    def index_of(self, generation: str) -> str:
        """The index that people know."""
        return self.indexes.get(generation, generation)


@dataclass(frozen=True, slots=True, repr=False)
class Connections:
    """Where the database and the search cluster are, with what it takes to get in; never printed.

    Attributes:
        state: the cluster that keeps the state; None: `sink`.
        options: of a sink that is no cluster; `sink` is then the one that keeps the state.
        further: of the other sinks, by name.
    """

    database: str
    sink: Endpoint
    state: Endpoint | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    secondary: Mapping[str, Connections] = field(default_factory=dict)

    @property
    def keeps_state(self) -> Endpoint:
        """The cluster that keeps the state."""
        return self.state or self.sink


@dataclass(frozen=True, slots=True)
class Work:
    """A plan and its connections, as options of a source."""

    plan: DocumentsPlan
    connections: Connections

    @property
    def secondary(self) -> dict[str, Work]:
        """The work of the other sinks, by name."""
        found = self.connections.secondary
        return {name: Work(plan, found[name]) for name, plan in self.plan.secondary.items()}

    def beside(self, secondary: Mapping[str, Work]) -> Work:
        """The same, with the work of other sinks."""
        plans = {name: one.plan for name, one in secondary.items()}
        connections = {name: one.connections for name, one in secondary.items()}
        return Work(
            dataclasses.replace(self.plan, secondary=plans),
            dataclasses.replace(self.connections, secondary=connections),
        )

    def to_options(self) -> dict[str, str]:
        """Two options, the second of which holds all that is secret; and the name of a secondary sink."""
        options = {PLAN_OPTION: _packed(self.plan), SECRET_OPTION: _packed(self.connections)}
        return options | ({SINK_OPTION: self.sink} if self.sink else {})

    @property
    def sink(self) -> str:
        """The name of a secondary sink; empty for the one that keeps the state."""
        return self.plan.slot.partition("/")[2]

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """What `to_options` packed; only ever called on options that this process's own driver set."""
        plan, connections = _unpacked(options[PLAN_OPTION]), _unpacked(options[SECRET_OPTION])
        assert isinstance(plan, DocumentsPlan)
        assert isinstance(connections, Connections)
        return cls(plan, connections)


def _packed(value: object) -> str:
    return base64.b64encode(pickle.dumps(value)).decode("ascii")


def _unpacked(text: str) -> object:
    return pickle.loads(base64.b64decode(text))  # noqa: S301 - our own driver wrote it
