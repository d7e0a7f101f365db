"""Let a mirror go on with the server that pg_upgrade has made of the one before (decision 0194)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import LogPositions, read_positions
from headrace.capture.upgrade import check_upgraded
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.moved import find_differences
from headrace.datasources.publication_membership import read_published
from headrace.errors import HeadraceError, Kind
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.lake import reaching
from headrace.mirror.positions import LakePositions, PositionsTable, TablePosition
from headrace.mirror.tables import MirroredTable
from headrace.model.lsn import Lsn
from headrace.postgres.connection import connect
from headrace.postgres.locks import SlotLock
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.session import ReadSession

_START_OVER = "run `headrace mirror --reload`: all tables are read anew."


@dataclass(frozen=True, slots=True)
class MirrorAdoption:
    """A server that was checked and can be gone on with.

    Attributes:
        before: the system that was read.
        reached: up to where (bytes) it was read.
        now: the positions of the server that goes on.
    """

    before: LogOrigin
    reached: Lsn
    now: LogPositions
    _notes: PositionsTable
    _positions: LakePositions

    def apply(self) -> None:
        """Write the new positions; durable when it returns.

        Raises:
            HeadraceError: CONTINUITY, where another mirror wrote since; SINK_UNREACHABLE, DISK.
        """
        self._notes.write(self._positions)


@contextlib.contextmanager
def plan_adoption(ends: MirrorEndpoints) -> Iterator[MirrorAdoption]:
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
        with ReplicationConnection(ends.url, "headrace adopt") as connection:
            now = read_positions(connection, ends.slot)
        with ReadSession(ends.url) as session:
            tables = ends.selection.read(session, known.tables)
        # One that waits is read anew once it can go on: what it lacks is in no log.
        complete = {name: position for name, position in known.tables.items() if position.waits_for is None}
        differences = [
            difference
            for name, position in complete.items()
            for difference in find_differences(position.catalog, _catalog(tables.get(name)))
        ]
        reached = Offset.from_json(known.stream)
        check_upgraded(now, ends.slot, reached, before, differences=differences, start_over=_START_OVER)
        assert now.confirmed is not None, "a missing slot is refused"
        with connect(ends.url) as session:
            published = read_published(session, ends.publication, [*known.tables])
        stream = Offset(now.confirmed).to_json() | now.origin.to_json() | published.to_json()
        moved = {name: _moved(position, tables[name], now.confirmed) for name, position in complete.items()}
        yield MirrorAdoption(
            before, reached.lsn, now, notes, LakePositions({**known.tables, **moved}, stream)
        )


def _catalog(table: MirroredTable | None) -> Fingerprint:
    return Fingerprint() if table is None else table.catalog


def _moved(position: TablePosition, table: MirroredTable, confirmed: Lsn) -> TablePosition:
    """Return the position of the same table in the new log."""
    return replace(
        position,
        complete=confirmed,
        catalog=table.catalog,
        former=Fingerprint(),
        altered=0,
        is_whole=True,
        leaves=table.leaves,
        ahead=(),
    )
