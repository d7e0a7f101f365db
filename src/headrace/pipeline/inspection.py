"""What does the database have, and what would have to change before it can be followed? Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.catalog import Catalog, read_catalog
from headrace.catalog.binding import BindingFinding, complete, findings
from headrace.catalog.fingerprint import Fingerprint, determining, read_fingerprint
from headrace.catalog.nested_objects import nested_findings
from headrace.catalog.usage import used_columns
from headrace.errors import HeadraceError
from headrace.model import TableName
from headrace.pipeline.dry_run import look_closer, try_reading
from headrace.pipeline.project import Endpoints, Problems, Project, completed
from headrace.postgres.connection import Connection
from headrace.postgres.coverage import TableCoverage, coverage
from headrace.postgres.ddl_plan import SetupPlan
from headrace.postgres.identity import IdentityFacts, read_identities
from headrace.postgres.publication import PublicationFacts, read_publication
from headrace.postgres.replication_capacity import reader_problems
from headrace.postgres.server import ServerFacts, inspect_server, server_problems
from headrace.postgres.session import ReadSession
from headrace.postgres.setup import Policy, plan_setup, stream_columns
from headrace.postgres.slot import SlotFacts, read_slot, slot_problem
from headrace.resolution import required_columns


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything that was found, as of one moment.

    Attributes:
        project: with the primary keys that its files left to the catalog.
        findings: about the schema files, and what this role may not read.
        problems: about the server and the slot.
        setup: what is to be altered; with its refusals. Only of the indexes that fit the catalog.
        coverage: what the log carries of each table, as `setup`.
        fingerprint: of the same moment as the catalog.
        unfit: kept generations that the database does not bear any more, with the reason.
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
    unfit: Mapping[str, str] = field(default_factory=dict)

    def usage(self, *names: str) -> dict[TableName, frozenset[str]]:
        """The columns that the documents of these indexes or kept generations read; of all without a name."""
        specs = self.project.followed
        return used_columns([specs[name] for name in names or specs], self.catalog)

    def hashes(self) -> dict[str, str]:
        """What the documents and the mapping of each index are determined by now (decision 0060)."""
        specs = self.project.specs
        return self.project.hashes(specs, {name: self.types(name) for name in specs})

    def types(self, name: str) -> object:
        """What the catalog says of the columns that an index or a kept generation reads."""
        return determining(self.fingerprint, self.usage(name))

    def errors(self) -> tuple[HeadraceError, ...]:
        """What keeps `run` from starting, the policy on replica identities included."""
        bound = tuple(finding.error for finding in self.findings if finding.level == "error")
        return (*bound, *self.problems, *self.setup.refused, *self.setup.outstanding)

    def raise_errors(self) -> None:
        """Refuse to go on where something is wrong.

        Raises:
            Problems: all of it.
        """
        if errors := self.errors():
            raise Problems(errors)

    def carried(self) -> dict[TableName, frozenset[str]]:
        """The columns that old rows must carry in the log, by the table that documents name; of every leaf.

        Empty where the user has chosen to ignore what they do not carry.
        """
        if self.project.deployment.source.replica_identity == "ignore":
            return {}
        leaves = stream_columns(self.identities, self.required)
        found: dict[TableName, frozenset[str]] = {}
        for facts in self.identities:
            mine = leaves[facts.table]
            found[facts.root] = found.get(facts.root, mine) & mine
        return found


def inspect(
    project: Project,
    endpoints: Endpoints,
    connection: Connection,
    *,
    policy: Policy | None = None,
    reading: bool = True,
) -> Inspection:
    """Look at the one database that is named.

    Args:
        connection: an ordinary one to it.
        policy: on replica identities; None is the deployment's.
        reading: whether this role is to read the changes, and is tried; set-up is often another's.

    Raises:
        HeadraceError: CONNECTION, AUTHENTICATION, PRIVILEGE, SERVER_VERSION.
    """
    server = inspect_server(connection, endpoints.database)
    with ReadSession(endpoints.database) as session:
        catalog, fingerprint = _look(session, project)
        by_index = {name: findings(spec, catalog) for name, spec in project.followed.items()}
        misfits = {n for n, some in by_index.items() if any(one.level == "error" for one in some)}
        unfit = {name: _first_error(by_index.pop(name)) for name in misfits & project.kept.keys()}
        found = _once(one for some in by_index.values() for one in some)
        project = completed(project, {n: complete(s, catalog) for n, s in project.followed.items()})
        specs = list(project.followed.values())
        found += look_closer(session, specs, catalog)
        limits = {name: project.index_options(name).nested_objects for name in project.followed}
        found += nested_findings(session, specs, catalog, limits)
        if reading:
            found += try_reading(session, specs, catalog, used_columns(specs, catalog), unfit=misfits)
    publication = read_publication(connection, project.publication)
    slot = read_slot(connection, project.slot)
    problems = [*server_problems(server)]
    if slot is not None and (problem := slot_problem(slot, server.database)):
        problems.append(problem)
    if reading and not problems and (slot is None or slot.active_pid is None):
        problems += reader_problems(endpoints.database, server, new_slot=slot is None)
    required: dict[TableName, tuple[str, ...]] = {}
    identities: tuple[IdentityFacts, ...] = ()
    setup = SetupPlan(())
    covered: tuple[TableCoverage, ...] = ()
    fitting = [spec for name, spec in project.followed.items() if name not in misfits]
    if fitting:
        needs = required_columns(fitting, catalog)
        tables = frozenset(table for spec in fitting for table in spec.tables())
        required = {name: needs[name].columns if name in needs else () for name in tables}
        identities = read_identities(connection, required)
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
        covered = coverage(
            identities,
            required,
            publication=project.publication,
            existing=publication,
            slot=slot,
            managed=managed,
        )
    return Inspection(
        project,
        server,
        catalog,
        tuple(found),
        tuple(problems),
        required,
        identities,
        publication,
        slot,
        setup,
        covered,
        fingerprint,
        unfit,
    )


def _first_error(found: Iterable[BindingFinding]) -> str:
    return next(one.error.cause for one in found if one.level == "error")


def _once(findings: Iterable[BindingFinding]) -> list[BindingFinding]:
    """Each finding, but of those that the same SQL mends only the first."""
    found: dict[object, BindingFinding] = {}
    for one in findings:
        found.setdefault(one.sql or str(one.error), one)
    return list(found.values())


def _look(session: ReadSession, project: Project) -> tuple[Catalog, Fingerprint]:
    """The catalog and its fingerprint of one moment."""
    while True:
        catalog = read_catalog(session, project.tables())
        usage = used_columns(project.followed.values(), catalog)
        fingerprint = read_fingerprint(session, usage, project.publication)
        if read_catalog(session, project.tables()) == catalog:
            return catalog, fingerprint
