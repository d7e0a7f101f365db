"""Set up a database so that its changes can be followed, and tear a deployment down."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headrace.errors import ErrorGroup, HeadraceError, Kind, Retry
from headrace.pipeline.continuity import check_database
from headrace.pipeline.inspection import inspect
from headrace.pipeline.project import Project
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.postgres.ddl_plan import SetupPlan, Step, execute_plan, render
from headrace.postgres.identity import read_identities
from headrace.postgres.locks import advisory_lock
from headrace.postgres.publication import read_publication
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import read_slot
from headrace.postgres.teardown import plan_teardown as plan_steps
from headrace.reporter import Reporter
from headrace.sinks.opensearch import Client, Generations
from headrace.sinks.opensearch.client import path
from headrace.state import PipelineState, StateStore
from headrace.state.lease import Lease


@dataclass(frozen=True, slots=True)
class PlannedSetup:
    """Planned publication and replica identities; the first run creates the slot, with its snapshot."""

    plan: SetupPlan
    _database: str = field(repr=False)
    _reporter: Reporter = field(repr=False)

    @property
    def steps(self) -> Sequence[Step]:
        """The planned steps: one statement or more each, with its lock, its cost and its undo."""
        return self.plan.steps

    @property
    def warnings(self) -> Sequence[str]:
        """What the operator should know before."""
        return self.plan.warnings

    @property
    def sql(self) -> str:
        """The whole plan as SQL that another role can run; empty where nothing is to be done."""
        return render(self.plan.steps) if self.plan.steps else ""

    def apply(self) -> None:
        """Execute the steps in order; a step that is done already is not repeated.

        Raises:
            HeadraceError: an error of the server.
        """
        with connect(self._database, application_name="headrace setup") as connection:
            execute_plan(self.plan, connection, lambda step: self._reporter.info(step.why))


def plan_setup(project: Project, reporter: Reporter) -> PlannedSetup:
    """Plan what the documents need in the database and is missing; nothing is altered.

    Raises:
        HeadraceError: an error that makes the set-up impossible.
    """
    endpoints = project.resolve()
    with connect(endpoints.database, application_name="headrace setup") as connection:
        inspection = inspect(project, endpoints, connection, policy="auto", reading=False)
    inspection.raise_errors()
    return PlannedSetup(inspection.setup, endpoints.database, reporter)


@dataclass(frozen=True, slots=True)
class PlannedTeardown:
    """What a teardown removes; the deployment cannot be run while this is held.

    Attributes:
        plan: the steps in the database.
        aliases: the aliases whose indexes are deleted, a secondary sink's with its name.
    """

    plan: SetupPlan
    aliases: tuple[str, ...]
    _project: Project
    _endpoints: Endpoints
    _connection: Connection
    _is_claimed: bool
    _reporter: Reporter

    def apply(self) -> None:
        """Execute the teardown, as far as the clusters answer.

        Raises:
            HeadraceError: an error of the server; what stays in a cluster, and why.
        """
        execute_plan(self.plan, self._connection, self._report_step)
        if not self._is_claimed:
            self._reporter.warning(
                "the cluster did not answer and still remembers the slot: run teardown again"
            )
            return
        stays: list[HeadraceError] = []
        for target in self._project.targets.values() if self.aliases else [self._project.primary]:
            try:
                if not target.is_plain:
                    self._clear(target)
            except HeadraceError as error:
                rest = "its indexes are still there" if self.aliases else "it still remembers the slot"
                remedy = f"{error.remedy} Then run the same teardown again.".lstrip()
                cause = f"the sink {target.name!r}: {rest}: {error.cause}"
                stays.append(HeadraceError(error.kind, cause, remedy))
        if stays:
            raise ErrorGroup(stays)

    def _clear(self, target: SinkTarget) -> None:
        """Delete the indexes of a cluster where they are to be deleted, and the state where it is kept.

        Without the slot the documents grow stale, and the next run must backfill them.
        """
        project, is_primary = self._project, target is self._project.primary
        with contextlib.ExitStack() as held:
            client = held.enter_context(contextlib.closing(Client(self._endpoints.of(target.key).sink)))
            if not is_primary:  # the primary's is held already
                held.enter_context(Lease(client, target.lease_key, [*project.specs]))
            generations = Generations(client, target.prefix)
            for generation in generations.find(project.specs if self.aliases else ()).values():
                generations.drop(generation)
            if is_primary:
                StateStore(client, project.key).delete()

    def _report_step(self, step: Step) -> None:
        """Report the statements of a step; its reason would read as if it still held."""
        for statement in step.gist:
            self._reporter.info(statement)


@contextlib.contextmanager
def plan_teardown(
    project: Project, reporter: Reporter, *, indexes: bool, moved: bool
) -> Iterator[PlannedTeardown]:
    """Plan the removal of what was created in the database and, with `indexes`, in the cluster.

    Nothing is altered yet.

    Args:
        project: the deployment.
        reporter: receives the statements and warnings.
        indexes: whether the indexes are deleted too.
        moved: whether the state belongs to this deployment although it names another database.

    Raises:
        HeadraceError: SLOT_IN_USE while a run of this deployment, or of another one that writes the same
            indexes, is alive; CONTINUITY for a state of another database; an error of either server.
    """
    endpoints = project.resolve()
    with (
        connect(endpoints.database, application_name="headrace teardown") as connection,
        advisory_lock(connection, project.slot),
        contextlib.closing(Client(endpoints.sink)) as client,
        _lease_state(project, client, indexes=indexes) as (is_claimed, state),
    ):
        if state is not None and not moved:
            check_database(state, inspect_server(connection, endpoints.database))
        published = read_publication(connection, project.publication)
        record = None if published is None else published.record
        tables = read_identities(connection, () if record is None else record.identities)
        slot, database = read_slot(connection, project.slot), connection.info.dbname
        plan = plan_steps(tables, publication=published, slot=slot, database=database)
        clusters = [target for target in project.targets.values() if indexes and not target.is_plain]
        aliases = tuple(
            f"{target.label}{target.prefix}{name}" for target in clusters for name in project.specs
        )
        yield PlannedTeardown(plan, aliases, project, endpoints, connection, is_claimed, reporter)


@contextlib.contextmanager
def _lease_state(
    project: Project, client: Client, *, indexes: bool
) -> Iterator[tuple[bool, PipelineState | None]]:
    """Yield whether the cluster answered, and the state if there is one, under a lease.

    Raises:
        HeadraceError: SLOT_IN_USE; SINK_UNREACHABLE and SINK_BUSY, where indexes are to be dropped.
    """
    with contextlib.ExitStack() as held:
        state, is_claimed = None, True
        try:
            meta = StateStore(client, project.key)
            if client.read(path(meta.index, "_settings"), allow=(404,)).ok:
                held.enter_context(Lease(client, project.key, [*project.specs]))
                state = meta.load()
        except HeadraceError as error:
            if indexes or error.retry is not Retry.BACK_OFF or error.kind is Kind.SLOT_IN_USE:
                raise
            is_claimed = False
        yield is_claimed, state
