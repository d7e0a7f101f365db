"""Go on after pg_upgrade: the same database, slot and documents, on a server with another identifier.

A position means nothing on another system, so a run refuses one. pg_upgrade is the exception: it moves a
logical slot (from PostgreSQL 17 on) only where the slot has confirmed the whole log, makes it anew on the new
system before anybody can write there, and lets the new log begin behind the old one. So nothing is missing
between the documents and that slot. That pg_upgrade made the server is for its operator to say; the rest is
checked here.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.moved import find_differences, usage_of
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import format_lsn
from headrace.pipeline.project import Project
from headrace.postgres.connection import connect
from headrace.postgres.locks import advisory_lock
from headrace.postgres.publication import read_memberships
from headrace.postgres.server import ServerFacts, inspect_server
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import SlotFacts, read_slot, slot_in_use
from headrace.sinks.opensearch import Client
from headrace.state import PipelineState, StateStore
from headrace.state.lease import Lease


@dataclass(frozen=True, slots=True)
class PlannedAdoption:
    """A server that was checked and can be gone on with.

    Attributes:
        before: the state as it is stored.
        after: the state as it will be.
    """

    before: PipelineState
    after: PipelineState
    _store: StateStore

    def apply(self) -> None:
        """Store the new state; durable when it returns.

        Raises:
            HeadraceError: CONTINUITY, where another process wrote since; SINK_UNREACHABLE, SINK_BUSY.
        """
        self._store.save(self.after)


@contextlib.contextmanager
def plan_adoption(project: Project) -> Iterator[PlannedAdoption]:
    """Check that the server can be what pg_upgrade has made of the one before; hold the deployment meanwhile.

    Raises:
        HeadraceError: SLOT_IN_USE while a run is alive; SLOT_UNKNOWN where the cluster knows no such
            deployment; USAGE where the server is the one before; CONTINUITY where it is another one; an error
            of either server.
    """
    endpoints = project.resolve()
    with (
        connect(endpoints.database, application_name="headrace adopt") as connection,
        advisory_lock(connection, project.slot),
        contextlib.closing(Client(endpoints.sink)) as client,
        Lease(client, project.key, [*project.specs]),
    ):
        store = StateStore(client, project.key)
        state = store.load()
        if state is None or state.phase != "following":
            raise HeadraceError(
                Kind.SLOT_UNKNOWN,
                f"the cluster has no documents that come from the slot {project.slot!r}",
                "Correct --slot or the file's slot and prefix, or start `headrace run`: it backfills first.",
            )
        server = inspect_server(connection, endpoints.database)
        slot = read_slot(connection, state.slot)
        for obstacle in find_obstacles(state, server, slot):
            raise obstacle
        assert slot is not None, "a missing slot is an obstacle"
        before = Fingerprint.from_text(state.catalog)
        with ReadSession(endpoints.database) as session:
            now = read_fingerprint(session, usage_of(before), state.publication)
        different = next(find_differences(before, now), None)
        if different is not None:
            raise _not_the_same(different)
        members = read_memberships(connection, state.publication)
        published = {str(table): member for table, member in members.items() if str(table) in state.published}
        yield PlannedAdoption(state, _adopted(state, server, slot, now, published), store)


def find_obstacles(
    state: PipelineState, server: ServerFacts, slot: SlotFacts | None
) -> Iterator[HeadraceError]:
    """Yield why the server is not what pg_upgrade makes of the one before; the first explains the others."""
    if state.system_identifier == str(server.system_identifier):
        yield HeadraceError(
            Kind.USAGE,
            "the database is on the system that the documents come from: there is nothing to adopt",
            "Start `headrace run`.",
        )
    if state.database_oid != server.database_oid:
        yield _not_the_same("the database has another oid, and pg_upgrade keeps it")
    if server.in_recovery:
        yield _not_the_same("the server is a standby, and the slot is on its primary")
    if slot is None or slot.lost:
        yield _not_the_same(
            f"it has no usable replication slot {state.slot!r}; pg_upgrade moves slots from PostgreSQL 17 on"
        )
        return
    if slot.active_pid is not None:
        yield slot_in_use(slot)
    if state.ahead is not None:
        # The slot stands where everything is durable, so pg_upgrade would have refused to move it.
        yield _not_the_same("documents were still deferred when the run ended")
    confirmed = slot.confirmed_flush or 0
    if confirmed < state.applied:
        yield _not_the_same(
            f"its slot {state.slot!r} stands at {format_lsn(confirmed)}, before the position "
            f"{format_lsn(state.applied)} that the documents have"
        )


def _not_the_same(why: str) -> HeadraceError:
    return HeadraceError(
        Kind.CONTINUITY,
        f"this server is not what pg_upgrade makes of the one that the documents come from: {why}",
        "Lead the address to the upgraded server. If it was made in another way, everything is built again: "
        "run `headrace teardown --moved`, then `headrace run`.",
    )


def _adopted(
    state: PipelineState, server: ServerFacts, slot: SlotFacts, now: Fingerprint, published: dict[str, int]
) -> PipelineState:
    """Return the state of the same documents on the new system, at the place of its slot."""
    confirmed = slot.confirmed_flush or 0
    return dataclasses.replace(
        state,
        system_identifier=str(server.system_identifier),
        timeline=server.timeline,
        began=0 if server.timeline == 1 else None,
        consistent_point=confirmed,
        applied=confirmed,
        last=None,  # a commit of the other system, where its transaction has another number
        published=published,
        catalog=now.to_text(),
        standby=False,
    )
