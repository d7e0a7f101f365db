"""Inspect the database and plan what must change before it can be followed; nothing is altered."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.assembly.trials import query_findings, try_reading
from headrace.catalog import Catalog, read_catalog
from headrace.catalog.binding import BindingFinding, complete, findings
from headrace.catalog.checks import nested_findings
from headrace.catalog.fingerprint import Fingerprint, type_definitions
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.usage import used_columns
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.model.names import TableName
from headrace.pipeline.project import Project, with_specs
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection
from headrace.postgres.coverage import TableCoverage, table_coverage
from headrace.postgres.ddl_plan import SetupPlan
from headrace.postgres.identity import IdentityFacts, read_identities, whole_old_rows
from headrace.postgres.publication import PublicationFacts, read_publication
from headrace.postgres.server import (
    ServerFacts,
    inspect_server,
    reader_problems,
    server_problems,
    server_warnings,
)
from headrace.postgres.session import ReadSession
from headrace.postgres.setup import Policy, plan_setup, stream_columns
from headrace.postgres.slot import SlotFacts, read_slot, slot_problem
from headrace.resolution import required_columns
from headrace.schema.normal import spec_hash
from headrace.schema.tree import IndexSpec

_LOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything that an inspection has found, as of one moment.

    Attributes:
        project: the project, with the primary keys that its files left to the catalog.
        findings: findings about the schema files, and about tables that this role may not read.
        problems: problems of the server and the slot.
        setup: the set-up plan, with what it refuses. Only for indexes that fit the catalog.
        coverage: what the log carries of each table, for the same indexes.
        fingerprint: the catalog's fingerprint, of the same moment as `catalog`.
        misfits: the indexes and retained generations whose schemas name what the database does not have.
    """

    project: Project
    server: ServerFacts
    catalog: Catalog
    findings: tuple[BindingFinding, ...]
    problems: tuple[HeadraceError, ...]
    required: Mapping[TableName, tuple[str, ...]]
    identities: tuple[IdentityFacts, ...]
    publication: PublicationFacts | None
    slot: SlotFacts | None
    setup: SetupPlan
    coverage: tuple[TableCoverage, ...] = ()
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    misfits: frozenset[str] = frozenset()

    def usage(self, *names: str) -> dict[TableName, frozenset[str]]:
        """Return the columns that these indexes or retained generations read; all without a name."""
        specs = self.project.followed
        return used_columns([specs[name] for name in names or specs], self.catalog)

    def hashes(self, target: SinkTarget) -> dict[str, str]:
        """Return the hash of what determines each index's documents and mapping in a sink (decision 0060)."""
        return {
            name: spec_hash(spec, target.determinants(spec, self.types(name)))
            for name, spec in self.project.specs.items()
        }

    def types(self, name: str) -> object:
        """Return what the catalog holds about the columns that an index or retained generation reads."""
        return type_definitions(self.fingerprint, self.usage(name))

    @property
    def slot_lost(self) -> HeadraceError | None:
        """Why the slot is lost; None where it is not."""
        return next((error for error in self.problems if error.kind is Kind.SLOT_LOST), None)

    @property
    def other_problems(self) -> tuple[HeadraceError, ...]:
        """The problems beside a lost slot, which is a gap: a run decides by its policy what follows."""
        return tuple(error for error in self.problems if error.kind is not Kind.SLOT_LOST)

    def errors(self) -> tuple[HeadraceError, ...]:
        """Return all that keeps `run` from starting, the policy on replica identities included."""
        return (*_errors(self.findings), *self.other_problems, *self.setup.refused, *self.setup.outstanding)

    def raise_errors(self) -> None:
        """Raise all errors, where there are any.

        Raises:
            ErrorGroup: all errors.
        """
        if errors := self.errors():
            raise ErrorGroup(errors)

    def carried(self) -> dict[TableName, frozenset[str]]:
        """Return the columns that old rows of every leaf must carry in the log, by the root table.

        Empty where the deployment file sets `replica_identity = "ignore"`.
        """
        if self.project.deployment.source.replica_identity == "ignore":
            return {}
        leaves = stream_columns(self.identities, self.required)
        carried: dict[TableName, frozenset[str]] = {}
        for facts in self.identities:
            leaf_columns = leaves[facts.table]
            carried[facts.root] = carried.get(facts.root, leaf_columns) & leaf_columns
        return carried


def inspect(
    project: Project,
    endpoints: Endpoints,
    connection: Connection,
    *,
    policy: Policy | None = None,
    reading: bool = True,
    lock_seconds: float = _LOCK_SECONDS,
) -> Inspection:
    """Inspect the database of a project.

    A locked table is a warning: its documents show whether it can be read, and they wait alone.

    Args:
        project: the deployment and its schema files.
        endpoints: the endpoints of the deployment.
        connection: a connection to the database that does not replicate.
        policy: the policy on replica identities; None: the deployment's.
        reading: whether to test that this role can read the changes; another role often does the set-up.
        lock_seconds: how long a statement waits for a lock.

    Raises:
        HeadraceError: CONNECTION, AUTHENTICATION, PRIVILEGE, SERVER_VERSION.
    """
    server = inspect_server(connection, endpoints.database)
    with ReadSession(endpoints.database, lock_seconds=lock_seconds) as session:
        catalog, fingerprint = _read_consistent(session, project)
        project, found, misfits = _bind(session, project, catalog, reading=reading)
    publication = read_publication(connection, project.publication)
    slot = read_slot(connection, project.slot)
    fitting = [spec for name, spec in project.followed.items() if name not in misfits]
    required, identities = _required(connection, fitting, catalog)
    setup, coverage = SetupPlan(()), tuple[TableCoverage, ...]()
    if required:
        managed = project.deployment.source.manage_publication
        setup = plan_setup(
            identities,
            required,
            publication=project.publication,
            existing=publication,
            slot=slot,
            policy=policy or project.deployment.source.replica_identity,
            version=server.version,
            managed=managed,
        )
        coverage = table_coverage(
            identities,
            required,
            publication=project.publication,
            existing=publication,
            slot=slot,
            managed=managed,
        )
    whole = whole_old_rows(facts for facts in identities if required[facts.root])
    setup = dataclasses.replace(setup, warnings=(*server_warnings(server, whole), *setup.warnings))
    return Inspection(
        project=project,
        server=server,
        catalog=catalog,
        findings=tuple(found),
        problems=tuple(_find_problems(endpoints.database, server, slot, reading=reading)),
        required=required,
        identities=identities,
        publication=publication,
        slot=slot,
        setup=setup,
        coverage=coverage,
        fingerprint=fingerprint,
        misfits=misfits,
    )


def _find_problems(
    url: str, server: ServerFacts, slot: SlotFacts | None, *, reading: bool
) -> list[HeadraceError]:
    problems = [*server_problems(server)]
    if slot is not None and (problem := slot_problem(slot, server.database)):
        problems.append(problem)
    # Where the slot is read already, its reader shows that this works.
    if reading and not problems and (slot is None or slot.active_pid is None):
        problems += reader_problems(url, server, new_slot=slot is None)
    return problems


def _bind(
    session: ReadSession, project: Project, catalog: Catalog, *, reading: bool
) -> tuple[Project, list[BindingFinding], frozenset[str]]:
    """Return the project with its schemas completed, what is wrong with them, and which do not fit."""
    by_index = {name: findings(spec, catalog) for name, spec in project.followed.items()}
    misfits = frozenset(name for name, found in by_index.items() if _errors(found))
    found = _distinct(finding for listed in by_index.values() for finding in listed)
    project = with_specs(project, {name: complete(spec, catalog) for name, spec in project.followed.items()})
    specs = list(project.followed.values())
    found += query_findings(session, specs, catalog)
    options = project.primary.index_options
    # By the name of the schema: a generation of a secondary sink is followed under its id.
    limits = {spec.name: options(name).nested_objects for name, spec in project.followed.items()}
    found += nested_findings(session, specs, catalog, limits)
    if reading:
        found += try_reading(session, specs, catalog, used_columns(specs, catalog), unfit=misfits)
    return project, found, misfits


def _required(
    connection: Connection, fitting: Sequence[IndexSpec], catalog: Catalog
) -> tuple[dict[TableName, tuple[str, ...]], tuple[IdentityFacts, ...]]:
    """Return the columns that old rows must carry, by table, and the identities, for schemas that fit."""
    if not fitting:
        return {}, ()
    needs = required_columns(fitting, catalog)
    tables = frozenset(table for spec in fitting for table in spec.tables())
    required = {name: needs[name].columns if name in needs else () for name in tables}
    return required, read_identities(connection, required)


def _errors(found: Iterable[BindingFinding]) -> list[HeadraceError]:
    return [finding.error for finding in found if finding.level == "error"]


def _distinct(findings: Iterable[BindingFinding]) -> list[BindingFinding]:
    """Return the findings; of those that the same SQL fixes only the first."""
    first: dict[object, BindingFinding] = {}
    for finding in findings:
        first.setdefault(finding.error.sql or str(finding.error), finding)
    return list(first.values())


def _read_consistent(session: ReadSession, project: Project) -> tuple[Catalog, Fingerprint]:
    """Read the catalog and its fingerprint as of one moment."""
    while True:
        # Each statement sees the catalog of its own moment: both are read again where DDL came in between.
        catalog = read_catalog(session, project.tables())
        # Completed, as the plans are: a generation's saved schema has the keys that its file leaves out.
        usage = used_columns((complete(spec, catalog) for spec in project.followed.values()), catalog)
        fingerprint = read_fingerprint(session, usage, project.publication)
        if read_catalog(session, project.tables()) == catalog:
            return catalog, fingerprint
