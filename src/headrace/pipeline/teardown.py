"""Take back what a deployment made in the database, and if asked in the cluster: shown first, then done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import HeadraceError, Kind, Retry
from headrace.pipeline.continuity import check_database
from headrace.pipeline.project import OPENSEARCH, Endpoints, Project
from headrace.postgres.connection import Connection, connect
from headrace.postgres.ddl_plan import SetupPlan, Step, execute_plan
from headrace.postgres.identity import read_identities
from headrace.postgres.locks import advisory_lock
from headrace.postgres.publication import read_publication
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import read_slot
from headrace.postgres.teardown import plan_teardown as plan_steps
from headrace.reporter import Reporter
from headrace.sinks.opensearch import Client, Generations, MetaIndex, PipelineState
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.lease import Lease
from headrace.sinks.opensearch.secondary_sinks import forget_sink, sinks_document


@dataclass(frozen=True, slots=True)
class PlannedTeardown:
    """What is taken back; the deployment cannot be run while this is held.

    Attributes:
        plan: of the database.
        aliases: whose indexes are deleted.
    """

    plan: SetupPlan
    aliases: tuple[str, ...]
    _project: Project
    _endpoints: Endpoints
    _connection: Connection
    _is_claimed: bool
    _reporter: Reporter

    def apply(self) -> None:
        """Take it back.

        Raises:
            HeadraceError: what server or cluster refuse.
        """
        execute_plan(self.plan, self._connection, self._tell)
        if self.aliases:
            _drop_indexes(self._project, self._endpoints, self._reporter)
        elif self._is_claimed:
            _forget(self._project, self._endpoints, self._reporter)
        else:
            self._reporter.warning(
                "the cluster did not answer and still remembers the slot: run teardown again"
            )

    def _tell(self, step: Step) -> None:
        """What is run now; why it was made would read as if it were still so."""
        for statement in step.gist:
            self._reporter.info(statement)


@contextlib.contextmanager
def plan_teardown(
    project: Project, reporter: Reporter, *, indexes: bool, moved: bool
) -> Iterator[PlannedTeardown]:
    """What was made in the database, and with `indexes` in the cluster; nothing is altered yet.

    Args:
        moved: whether the state is this deployment's although it is of another database.

    Raises:
        HeadraceError: SLOT_IN_USE while a run is alive, here or of another deployment that writes the same
            indexes; CONTINUITY for a state of another database; what server or cluster refuse.
    """
    endpoints = project.resolve()
    with (
        connect(endpoints.database, application_name="headrace teardown") as connection,
        advisory_lock(connection, project.slot),
        contextlib.closing(Client(endpoints.sink)) as client,
        _claimed(project, client, indexes=indexes) as (is_claimed, state),
    ):
        if state is not None and not moved:
            check_database(state, inspect_server(connection, endpoints.database))
        published = read_publication(connection, project.publication)
        record = None if published is None else published.record
        tables = read_identities(connection, () if record is None else record.identities)
        plan = plan_steps(tables, publication=published, slot=read_slot(connection, project.slot))
        aliases = tuple(project.prefix + name for name in project.specs) if indexes else ()
        yield PlannedTeardown(plan, aliases, project, endpoints, connection, is_claimed, reporter)


@contextlib.contextmanager
def _claimed(
    project: Project, client: Client, *, indexes: bool
) -> Iterator[tuple[bool, PipelineState | None]]:
    """Whether the cluster answered, and the state if there is one; nobody else can change it meanwhile.

    Raises:
        HeadraceError: SLOT_IN_USE; SINK_UNREACHABLE and SINK_BUSY, where indexes are to be dropped.
    """
    with contextlib.ExitStack() as held:
        state, is_claimed = None, True
        try:
            meta = MetaIndex(client, project.slot, project.prefix)
            if client.call("HEAD", path(meta.index), allow=(404,)).ok:
                held.enter_context(Lease(client, project.slot, project.prefix, [*project.specs]))
                state = meta.load()
        except HeadraceError as error:
            if indexes or error.retry is not Retry.BACK_OFF or error.kind is Kind.SLOT_IN_USE:
                raise
            is_claimed = False
        yield is_claimed, state


def _drop_indexes(project: Project, endpoints: Endpoints, reporter: Reporter) -> None:
    client = Client(endpoints.sink)
    try:
        _drop_generations(project, endpoints)
        _forget_state(project, client)
    finally:
        client.close()
    for name, there in endpoints.secondary.items():
        own = project.of_sink(name)
        if own.kind == OPENSEARCH:
            try:
                with (
                    contextlib.closing(Client(there.sink)) as client,
                    Lease(client, own.slot, own.prefix, [*own.specs]),
                ):
                    _drop_generations(own, there)
            except HeadraceError as error:
                reporter.warning(f"the indexes in the sink {name!r} are still there: {error}")


def _drop_generations(project: Project, endpoints: Endpoints) -> None:
    with contextlib.closing(Client(endpoints.sink)) as client:
        generations = Generations(client, project.prefix)
        for name in project.specs:
            for generation in generations.existing(name):
                generations.drop(generation)


def _forget(project: Project, endpoints: Endpoints, reporter: Reporter) -> None:
    """Without the slot the documents grow stale: the next run must seed again."""
    client = Client(endpoints.sink)
    try:
        _forget_state(project, client)
    except HeadraceError as error:
        reporter.warning(f"the cluster still remembers the slot: {error}")
    finally:
        client.close()


def _forget_state(project: Project, client: Client) -> None:
    """What the cluster remembers, of the secondary sinks too."""
    document = sinks_document(client, project.slot, project.prefix)
    for name in (document.load() or {}).get("sinks", {}):
        forget_sink(client, project.slot, project.prefix, name)
    document.delete()
    MetaIndex(client, project.slot, project.prefix).delete()
