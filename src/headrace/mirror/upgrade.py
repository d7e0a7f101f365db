"""Let a mirror go on with the server that pg_upgrade has made of the one before (decision 0194)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import read_positions
from headrace.capture.upgrade import PlannedAdoption, check_upgraded
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.moved import find_differences
from headrace.datasources.publication_membership import read_published
from headrace.errors import HeadraceError, Kind
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.lake import reaching
from headrace.mirror.positions import LakePositions, PositionsTable, TablePosition
from headrace.postgres.connection import connect
from headrace.postgres.locks import SlotLock
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.session import ReadSession

_START_OVER = "run `headrace mirror --reload`: all tables are read again."


@contextlib.contextmanager
def plan_adoption(ends: MirrorEndpoints) -> Iterator[PlannedAdoption]:
    """Check that the server can be what pg_upgrade has made of the one before; keep mirrors away meanwhile.

    Raises:
        HeadraceError: SLOT_IN_USE while a mirror runs; SLOT_UNKNOWN where the lake has no tables yet; USAGE
            where the server is the one before; CONTINUITY where it is another one; an error of either.
    """
    with SlotLock(ends.url, ends.slot), reaching(ends.lake):
        notes = PositionsTable(ends.lake, ends.slot)
        known = notes.read()
        before = None if known.stream is None else LogOrigin.from_json(known.stream)
        if known.stream is None or before is None:
            raise HeadraceError(
                Kind.SLOT_UNKNOWN,
                f"the lake at {ends.lake.location} has no tables yet",
                "Start `headrace mirror`: it loads them.",
            )
        with ReplicationConnection(ends.url, "headrace adopt") as replication:
            log = read_positions(replication, ends.slot)
        with ReadSession(ends.url) as session:
            tables = ends.selection.read(session, known.tables)
        # What was taken out of the file is forgotten, as by a start.
        noted = {name: position for name, position in known.tables.items() if ends.selection.matches(name)}
        # One that waits is read again once it can go on: what it lacks is in no log.
        complete = {name: position for name, position in noted.items() if position.waits_for is None}

        def differences(made: int) -> Iterator[str]:
            for name, position in complete.items():
                now = tables[name].catalog if name in tables else Fingerprint()
                yield from find_differences(position.catalog, now, made)

        reached = Offset.from_json(known.stream)
        with connect(ends.url) as connection:
            confirmed = check_upgraded(
                connection,
                log,
                ends.slot,
                reached,
                before,
                publication=ends.publication,
                differences=differences,
                start_over=_START_OVER,
            )
            published = read_published(connection, ends.publication, [*known.tables])
        stream = Offset(confirmed).to_json() | log.origin.to_json() | published.to_json()
        for name, position in complete.items():
            noted[name] = TablePosition(
                position.version,
                confirmed,
                position.relation,
                position.where,
                tables[name].catalog,
                leaves=tables[name].leaves,
                sent=published.of(name),
            )
        write = partial(notes.write, LakePositions(noted, stream))
        yield PlannedAdoption(before.system, reached.lsn, log.origin.system, confirmed, write)
