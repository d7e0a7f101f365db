"""Let a deployment go on with the server that pg_upgrade has made of the one before (decision 0194)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from functools import partial

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import read_positions
from headrace.capture.upgrade import PlannedAdoption, check_upgraded
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.moved import find_differences, usage_of
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.project import Project
from headrace.postgres.address import for_slot
from headrace.postgres.connection import connect
from headrace.postgres.locks import advisory_lock
from headrace.postgres.publication import read_memberships
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.session import ReadSession
from headrace.sinks.opensearch import Client
from headrace.state import StateStore
from headrace.state.lease import Lease

_START_OVER = "run `headrace teardown --moved`, then `headrace run`: everything is built again."


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
        with ReplicationConnection(for_slot(endpoints.database, state.slot), "headrace adopt") as replication:
            now = read_positions(replication, state.slot)
        before = Fingerprint.from_text(state.catalog)
        with ReadSession(endpoints.database) as session:
            catalog = read_fingerprint(session, usage_of(before), state.publication)
        # The slot stands where everything is durable, so pg_upgrade would have refused to move it.
        deferred = [] if state.ahead is None else ["documents were still deferred when the run ended"]
        origin = LogOrigin(state.system_identifier, state.timeline, state.database_oid)
        confirmed = check_upgraded(
            connection,
            now,
            state.slot,
            Offset(state.applied),
            origin,
            publication=state.publication,
            differences=lambda made: [*deferred, *find_differences(before, catalog, made)],
            start_over=_START_OVER,
        )
        members = read_memberships(connection, state.publication)
        published = {str(table): member for table, member in members.items() if str(table) in state.published}
        adopted = dataclasses.replace(
            state,
            system_identifier=now.origin.system,
            timeline=now.origin.timeline,
            began=now.origin.began,
            applied=confirmed,
            last=None,  # a commit of the other system, where its transaction has another number
            published=published,
            catalog=catalog.to_text(),
            standby=False,
        )
        save = partial(store.save, adopted)
        yield PlannedAdoption(origin.system, state.applied, now.origin.system, confirmed, save)
