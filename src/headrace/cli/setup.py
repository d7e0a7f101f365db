"""`headrace setup` and `headrace teardown`: show the SQL, ask, run it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.cli import terminal
from headrace.errors import HeadraceError, Kind, Retry
from headrace.pipeline.continuity import check_database
from headrace.pipeline.inspection import inspect
from headrace.pipeline.project import OPENSEARCH, Here, Project, open_project
from headrace.postgres.connection import connect
from headrace.postgres.ddl_plan import SetupPlan, execute_plan
from headrace.postgres.identity import read_identities
from headrace.postgres.publication import read_publication
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import read_slot
from headrace.postgres.slot_lock import advisory_lock
from headrace.postgres.teardown import plan_teardown
from headrace.sinks.opensearch import Client, Generations, MetaIndex, PipelineState
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.lease import Lease
from headrace.sinks.opensearch.secondary_sinks import forget_sink, sinks_document


def set_up(
    config: Path, environ: Mapping[str, str], slot: str | None, publication: str | None, *, yes: bool
) -> bool:
    """Publication and replica identities; the slot is made by the first run, with its snapshot.

    Raises:
        HeadraceError: what keeps it from being done.
    """
    project = open_project(config, environ, slot=slot, publication=publication)
    here = project.resolve()
    with connect(here.database, application_name="headrace setup") as connection:
        inspection = inspect(project, here, connection, policy="auto", reading=False)
        inspection.raise_errors()
        plan = inspection.setup
        for warning in plan.warnings:
            terminal.warn(warning)
        if not plan.steps:
            terminal.done("nothing to do: publication and replica identities are as the documents need them")
            return True
        terminal.script("what the documents need:", plan.steps)
        if not terminal.agreed("Apply this?", yes=yes):
            return False
        execute_plan(plan, connection, lambda step: terminal.say(step.why))
    terminal.done("done; `headrace run` creates the slot and seeds")
    return True


def tear_down(
    config: Path,
    environ: Mapping[str, str],
    slot: str | None,
    publication: str | None,
    *,
    indexes: bool,
    moved: bool,
    yes: bool,
) -> bool:
    """Take back what was made in the database, and with `indexes` in the cluster.

    Args:
        moved: whether the state is this deployment's although it is of another database.

    Raises:
        HeadraceError: SLOT_IN_USE while a run is alive, here or of another deployment that writes the same
            indexes; CONTINUITY for a state of another database; what server or cluster refuse.
    """
    project = open_project(config, environ, slot=slot, publication=publication)
    here = project.resolve()
    with (
        connect(here.database, application_name="headrace teardown") as connection,
        advisory_lock(connection, project.slot),
        contextlib.closing(Client(here.sink)) as client,
        _claimed(project, client, indexes=indexes) as (is_claimed, state),
    ):
        if state is not None and not moved:
            check_database(state, inspect_server(connection, here.database))
        published = read_publication(connection, project.publication)
        record = None if published is None else published.record
        tables = read_identities(connection, () if record is None else record.identities)
        plan = plan_teardown(tables, publication=published, slot=read_slot(connection, project.slot))
        _show(plan, project, indexes=indexes)
        if not terminal.agreed("Undo all of this?", yes=yes):
            return False
        execute_plan(plan, connection, lambda step: terminal.say(step.why))
        if indexes:
            _drop_indexes(project, here)
        elif is_claimed:
            _forget(project, here)
        else:
            terminal.warn("the cluster did not answer and still remembers the slot: run teardown again")
    terminal.done("done")
    return True


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


def _show(plan: SetupPlan, project: Project, *, indexes: bool) -> None:
    for warning in plan.warnings:
        terminal.warn(warning)
    if plan.steps:
        terminal.script("what is taken back:", plan.steps)
    else:
        terminal.say("nothing to undo in the database")
    if indexes:
        names = ", ".join(project.prefix + name for name in project.specs)
        terminal.say(f"and the search indexes behind {names} are deleted")


def _drop_indexes(project: Project, here: Here) -> None:
    client = Client(here.sink)
    try:
        _drop_generations(project, here)
        _forget_state(project, client)
    finally:
        client.close()
    for name, there in here.further.items():
        own = project.of_sink(name)
        if own.kind == OPENSEARCH:
            try:
                with (
                    contextlib.closing(Client(there.sink)) as client,
                    Lease(client, own.slot, own.prefix, [*own.specs]),
                ):
                    _drop_generations(own, there)
            except HeadraceError as error:
                terminal.warn(f"the indexes in the sink {name!r} are still there: {error}")


def _drop_generations(project: Project, here: Here) -> None:
    with contextlib.closing(Client(here.sink)) as client:
        generations = Generations(client, project.prefix)
        for name in project.specs:
            for generation in generations.existing(name):
                generations.drop(generation)


def _forget(project: Project, here: Here) -> None:
    """Without the slot the documents grow stale: the next run must seed again."""
    client = Client(here.sink)
    try:
        _forget_state(project, client)
    except HeadraceError as error:
        terminal.warn(f"the cluster still remembers the slot: {error}")
    finally:
        client.close()


def _forget_state(project: Project, client: Client) -> None:
    """What the cluster remembers, of the further sinks too."""
    document = sinks_document(client, project.slot, project.prefix)
    for name in (document.load() or {}).get("sinks", {}):
        forget_sink(client, project.slot, project.prefix, name)
    document.delete()
    MetaIndex(client, project.slot, project.prefix).delete()
