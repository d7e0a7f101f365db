"""Note up to where each table has the log, and let the slot be confirmed up to there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from headrace.capture import Offset
from headrace.catalog.fingerprint import Fingerprint
from headrace.config.mirror import is_folder
from headrace.datasources.publication_membership import Published
from headrace.errors import HeadraceError, Kind
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.files import flush
from headrace.mirror.lake import LakeTable, known_position
from headrace.mirror.loading import LoadedTable
from headrace.mirror.positions import LakePositions, PositionsTable, TablePosition
from headrace.mirror.source_log import RELOAD
from headrace.mirror.tables import MirroredTable
from headrace.mirror.waiting import WaitingTables
from headrace.model.lsn import Lsn
from headrace.model.names import TableName

_NO_LIMIT = (1 << 64) - 1


class LakeNotes:
    """What is noted of a lake's tables, in memory and in `headrace_positions`.

    Args:
        ends: the database and the lake.
        waiting: the tables that wait, whose notes stay where they were.
        budget: how much log (bytes) the slot may keep for them; None: as much as it takes.

    Attributes:
        table: keeps them in the lake.
        positions: what is noted.
        limit_confirmation: is told up to where (bytes) the slot may be confirmed.
    """

    def __init__(self, ends: MirrorEndpoints, waiting: WaitingTables, budget: int | None) -> None:
        self._ends = ends
        self._waiting = waiting
        self._budget = budget
        self._ahead: set[TableName] = set()
        self.table = PositionsTable(ends.lake, ends.slot)
        self.positions = LakePositions()
        self.limit_confirmation: Callable[[Lsn], object] = lambda _: None

    def note(
        self,
        stream: Mapping[str, Any],
        followed: Mapping[TableName, MirroredTable],
        loaded: Mapping[TableName, LoadedTable],
        only: Collection[TableName] | None = None,
        read_from: Lsn | None = None,
    ) -> None:
        """Write down that all tables have reached an offset; one that waits stays where it was.

        Args:
            stream: the offset.
            followed: the tables as the database had them when their changes were written.
            loaded: those that were read again.
            only: the tables that may have new versions; None: all.
            read_from: from where (bytes) the log will be read again; None: it goes on after the offset.
        """
        offset = Offset.from_json(stream)
        # A table that has waited lacks what lies after its own position, also where the others have it.
        reached = offset.lsn if read_from is None else min(read_from, offset.lsn)
        published = Published.from_json(stream)
        tables = {**self.positions.tables, **{name: position for name, (_, position) in loaded.items()}}
        for name, position in tables.items():
            if name in self._waiting:
                tables[name] = replace(position, waits_for=self._waiting.tables[name].error.cause)
            elif position.waits_for is None:
                is_new = only is None or name in only or name in self._ahead
                lake = self._ends.lake.open(name) if is_new else None
                tables[name] = self._reach(position, offset, reached, lake)
                if name in followed:
                    tables[name] = _as_followed(tables[name], followed[name], published)
        self.positions = LakePositions(tables, dict(stream))
        self.table.write(self.positions)
        # The slot may be confirmed next, and then nobody has the changes but this machine's disk.
        if is_folder(self._ends.lake.location):
            flush(self._ends.lake.location)
        self.limit_confirmation(self.find_limit(offset.lsn))

    def forget(self) -> None:
        """Forget up to where the tables have the log: all are read again.

        Raises:
            HeadraceError: CONFIG, where the location belongs to another slot.
        """
        if self.table.read().tables:
            self.table.write(LakePositions())

    def _reach(
        self, position: TablePosition, offset: Offset, reached: Lsn, lake: LakeTable | None
    ) -> TablePosition:
        """Return the position of a table that has reached an offset.

        Args:
            position: what was noted of it.
            offset: the offset.
            reached: up to where (bytes) it has the log by now.
            lake: the lake's table; None: it has no new version.
        """
        complete, version = max(position.complete, reached), position.version
        is_whole = offset.transaction is None or position.complete >= offset.order[0]
        if lake is not None:
            # A killed mirror wrote it, and not the others: readers have the version before. So they have
            # where another program wrote it, whose commit the next look is to find after that version.
            if known_position(lake)[0] >= complete or lake.find_other_commit(version) is not None:
                self._ahead.add(lake.name)
                complete = position.complete
            else:
                self._ahead.discard(lake.name)
                version = lake.version
        ahead = tuple(part for part in position.ahead if part.start > complete)
        is_whole = is_whole and not ahead
        position = replace(position, version=version, complete=complete, is_whole=is_whole, ahead=ahead)
        if position.altered <= complete:
            # No change of the time before the alteration can come any more.
            position = replace(position, altered=0, former=Fingerprint())
        return position

    def find_limit(self, reached: Lsn) -> Lsn:
        """Return up to where (bytes) the slot may be confirmed: not beyond what waiting tables lack."""
        kept = [
            position.complete
            for name, position in self.positions.tables.items()
            if position.waits_for is not None
            and self._ends.selection.keeps_log(name)
            and (self._budget is None or reached - position.complete <= self._budget)
        ]
        return min(kept, default=_NO_LIMIT)

    def check_reached(self, start: Mapping[str, Any]) -> None:
        """Make sure that the lake has all that lies before an offset, at which the next batch begins.

        Raises:
            HeadraceError: CONTINUITY: it was put back from an older copy than the query's checkpoint.
        """
        wanted, stream = Offset.from_json(start), self.positions.stream
        if stream is not None and Offset.from_json(stream).order >= wanted.order:
            return
        for name, position in self.positions.tables.items():
            if position.complete < wanted.version and position.waits_for is None:
                raise HeadraceError(
                    Kind.CONTINUITY,
                    f"the lake's table {name} lacks changes that the query's checkpoint counts as written",
                    RELOAD,
                )

    def check_published(self, end: Mapping[str, Any]) -> None:
        """Make sure that the publication was as it is in an offset already when tables were looked at last.

        Raises:
            HeadraceError: PUBLICATION.
        """
        # Tables are loaded in between, which may take hours.
        before, now = Published.from_json(self.positions.stream or {}), Published.from_json(end)
        what = None if before is None or now is None else before.lost(now)
        if what is not None:
            raise HeadraceError(
                Kind.PUBLICATION,
                f"the publication {self._ends.publication!r} {what} while tables were loaded: what was "
                "written meanwhile is not in the log",
                "Start again: tables that may lack something are read again.",
            )


def _as_followed(position: TablePosition, table: MirroredTable, published: Published | None) -> TablePosition:
    """Return a table's position with what the database had of it when its changes were written."""
    sent = (published and published.of(table.name)) or position.sent
    return replace(position, leaves=table.leaves, catalog=table.catalog, sent=sent)
