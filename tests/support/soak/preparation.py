"""Turn schema files into a backfilled index and a slot, by the steps of the product, without a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.catalog import Catalog, bind, complete, read_catalog
from headrace.catalog.drift import SchemaDrift, compare_fingerprints
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.needs import IndexNeeds, Needs, stream_needs
from headrace.catalog.usage import used_columns
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.pipeline.worker.plan import DocumentsPlan, Endpoints, Work
from headrace.pipeline.worker.worker import BackfillRange
from headrace.postgres.connection import Connection, connect
from headrace.postgres.ddl_plan import execute_plan
from headrace.postgres.identity import IdentityFacts, read_identities
from headrace.postgres.publication import read_publication
from headrace.postgres.server import inspect_server
from headrace.postgres.session import ReadSession
from headrace.postgres.setup import plan_setup, stream_columns
from headrace.postgres.slot import create_slot
from headrace.resolution import plan_resolution, required_columns
from headrace.schema.normal import denormalised, normalised
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import Endpoint, WriterOptions
from headrace.snapshot.planning import plan_ranges
from headrace.state import PipelineState, StateKey
from headrace.testing.memory_sink import MemorySink
from support.soak.memory_worker import MemoryWorker

PUBLICATION = "soak"
_NO_CLUSTER = Endpoint(("http://127.0.0.1:9",))
_RANGE_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Prepared:
    """What following needs.

    Attributes:
        specs: completed from the catalog.
        state: what the meta index would hold when the backfill is over.
        catalog: what the tables have.
        fingerprint: of the catalog that it is planned for, as it is stored.
    """

    url: str
    specs: Mapping[str, IndexSpec]
    work: Work
    needs: Needs
    state: PipelineState
    catalog: Catalog
    fingerprint: str


def prepare(
    url: str,
    declared: Sequence[IndexSpec],
    slot: str,
    sink: MemorySink,
    meanwhile: Callable[[], None],
    *,
    large_change: int,
) -> Prepared:
    """Set up, make the slot, and seed what its snapshot sees.

    Args:
        url: the database.
        declared: the schema files.
        slot: its name.
        sink: takes the documents.
        meanwhile: called between slot and backfill; others may write then.
        large_change: documents that a change may touch before they are deferred.

    Raises:
        HeadraceError: what the product says.
    """
    tables = frozenset[TableName]().union(*(spec.tables() for spec in declared))
    with connect(url, application_name="headrace soak") as connection:
        with ReadSession(url) as session:
            catalog = read_catalog(session, tables)
        for spec in declared:
            for problem in bind(spec, catalog):
                raise problem
        specs = {spec.name: complete(spec, catalog) for spec in declared}
        carried = _set_up(connection, specs, catalog, tables, url)
        with ReadSession(url) as session:
            usage = used_columns(specs.values(), catalog)
            found = read_fingerprint(session, usage, PUBLICATION)
        server = inspect_server(connection, url)
    work = Work(_plan(specs, catalog, found.as_of, slot, large_change), Endpoints(url, _NO_CLUSTER))
    with create_slot(url, slot) as made:
        meanwhile()
        _seed(url, work, made.consistent_point, made.snapshot_name, sink)
    needs = _needs(specs, carried, found, catalog)
    state = PipelineState(
        system_identifier=str(server.system_identifier),
        timeline=server.timeline,
        database_oid=server.database_oid,
        slot=slot,
        publication=PUBLICATION,
        phase="following",
        consistent_point=made.consistent_point,
        applied=made.consistent_point,
    )
    return Prepared(url, specs, work, needs, state, catalog, found.to_text())


def look_at_catalog(prepared: Prepared) -> tuple[SchemaDrift, Prepared]:
    """What a run finds that starts with the schema files as they are stored; and what it stores then."""
    stored = [
        complete(denormalised(json.loads(json.dumps(normalised(spec))), name), prepared.catalog)
        for name, spec in prepared.specs.items()
    ]
    with ReadSession(prepared.url) as session:
        now = read_fingerprint(session, used_columns(stored, prepared.catalog), PUBLICATION)
        drift = compare_fingerprints(session, Fingerprint.from_text(prepared.fingerprint), now)
    return drift, replace(prepared, fingerprint=now.to_text())


def _set_up(
    connection: Connection,
    specs: Mapping[str, IndexSpec],
    catalog: Catalog,
    tables: frozenset[TableName],
    url: str,
) -> dict[TableName, frozenset[str]]:
    """Publication and replica identities; what old rows carry from then on, by table."""
    found = required_columns(specs.values(), catalog)
    required = {name: found[name].columns if name in found else () for name in tables}
    identities = read_identities(connection, required)
    plan = plan_setup(
        identities,
        required,
        publication=PUBLICATION,
        existing=read_publication(connection, PUBLICATION),
        slot=None,
        policy="auto",
        version=inspect_server(connection, url).version,
    )
    execute_plan(plan, connection)
    return _carried(identities, required)


def _carried(
    identities: Sequence[IdentityFacts], required: Mapping[TableName, Sequence[str]]
) -> dict[TableName, frozenset[str]]:
    leaves = stream_columns(identities, required)
    found: dict[TableName, frozenset[str]] = {}
    for facts in identities:
        found[facts.root] = found.get(facts.root, leaves[facts.table]) & leaves[facts.table]
    return found


def _needs(
    specs: Mapping[str, IndexSpec],
    carried: Mapping[TableName, frozenset[str]],
    found: Fingerprint,
    catalog: Catalog,
) -> Needs:
    asked = [IndexNeeds(used_columns([spec], catalog), found.as_of) for spec in specs.values()]
    return stream_needs(asked, carried, found, catalog)


def _plan(
    specs: Mapping[str, IndexSpec], catalog: Catalog, as_of: Lsn, slot: str, large_change: int
) -> DocumentsPlan:
    return DocumentsPlan(
        specs=specs,
        catalog=catalog,
        resolution=plan_resolution(specs.values(), catalog, dict.fromkeys(specs, as_of)),
        targets={name: name for name in specs},
        writer=WriterOptions(),
        key=StateKey(slot, ""),
        skip_rejected=frozenset(),
        large_change=large_change,
    )


def _seed(url: str, work: Work, version: Lsn, snapshot: str, sink: MemorySink) -> None:
    """Every range of every index."""
    worker = MemoryWorker(work, sink)
    try:
        with ReadSession(url, snapshot=snapshot) as session:
            ranges = [
                (name, part)
                for name, spec in work.plan.specs.items()
                for part in plan_ranges(session, work.plan.catalog[spec.table], _RANGE_BYTES)
            ]
        for name, part in ranges:
            worker.backfill(BackfillRange(name, part, version, snapshot))
    finally:
        worker.close()
