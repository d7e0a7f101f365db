"""Bring the lake's tables up to date: load them, follow their alterations, apply changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from tenacity import retry, retry_if_exception, stop_after_attempt

from headrace.capture.visibility import await_visible
from headrace.errors import HeadraceError, Kind
from headrace.mirror.alterations import Alteration, altered_rows
from headrace.mirror.drift import TableDrift
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.lake import known_position, opened, trying_again
from headrace.mirror.loading import LakeLoader, LoadedTable
from headrace.mirror.log_gaps import (
    Changes,
    changes_after,
    changes_of_tables,
    find_gap,
    former_names,
    truncated_partitions,
)
from headrace.mirror.net_changes import count_lacking, first_changes, in_order, last_position
from headrace.mirror.observing import decide_each
from headrace.mirror.positions import TablePosition
from headrace.mirror.slot_keeping import keep_slot
from headrace.mirror.tables import LOCK_SECONDS, MirroredTable
from headrace.mirror.typed_changes import typed_rows, without_ahead
from headrace.mirror.units import Alter, Load, ReadParts, Wait, bounds_of, has_other_names
from headrace.mirror.waiting import WaitingTables
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter

_VISIBLE_WITHIN = 60.0
_TRIES = 5
_READ_BYTES = 128 << 20
"""So much, about, of what the log left out is read from the lake for one commit."""
_FIRST_LACKING = 256
"""Changes without a large value that are in the first commit, which shows how large these are."""

Notes = dict[TableName, TablePosition]
"""What is noted of each table. Whoever changes a table changes it; it is written with the next positions."""


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, HeadraceError) and error.kind is Kind.SINK_BUSY


class LakeWriter:
    """Writes the lake's tables from the database's.

    Args:
        ends: where tables are read and written.
        report: is told what is loaded and altered.
        waiting: where a table waits that cannot be written.
        loader: reads tables again.

    Attributes:
        loader: the same.
        tables: each table as the database had it when its changes were last written.
        written: those that the last batch was of.
    """

    def __init__(
        self, ends: MirrorEndpoints, report: Reporter, waiting: WaitingTables, loader: LakeLoader
    ) -> None:
        self._waiting = waiting
        self._ends = ends
        self._report = report
        self.loader = loader
        self.tables: dict[TableName, MirroredTable] = {}
        self.written: tuple[TableName, ...] = ()
        # Of how many changes the large values are read at once.
        self._at_once: dict[TableName, int] = {}

    def bring_up(
        self,
        tables: Mapping[TableName, MirroredTable],
        notes: Notes,
        unsent: Collection[TableName] = (),
        confirmed: Lsn | None = None,
    ) -> list[TableName]:
        """Make the lake's tables fit to take changes; return those that must be loaded.

        One that has to wait is not among them.

        Args:
            tables: the database's tables.
            notes: what is noted of each.
            unsent: those that the publication has not sent all the time since.
            confirmed: from where (bytes) the log will be read again; None: it goes on.
        """
        to_load = []
        actions, now = decide_each(
            self._ends, self._waiting, tables, notes, unsent=unsent, confirmed=confirmed
        )
        for name, action in actions.items():
            with self._waiting.alone(tables[name]):
                match action:
                    case Wait(error):
                        # `alone` makes a waiting table of it.
                        raise error
                    case Load(why):
                        to_load.append(name)
                        if why is not None:
                            self._report.info(why)
                    case ReadParts():
                        if not self._read_parts(action, tables[name], notes):
                            to_load.append(name)
                    case _:
                        if isinstance(action, Alter):
                            self._alter(action.alteration, tables[name])
                        if has_other_names(tables[name], notes[name]):
                            former = notes[name].catalog
                            notes[name] = replace(notes[name], former=former, altered=now)
        return to_load

    def _read_parts(self, action: ReadParts, table: MirroredTable, notes: Notes) -> bool:
        """Read parts of a table again; return False where it was altered again, and must be loaded."""
        self._report.info(f"reading a part of {table.name} again: {action.why}")
        ahead = self.loader.read_parts(table, action.bounds)
        if ahead is None:
            return False
        notes[table.name] = replace(notes[table.name], ahead=(*notes[table.name].ahead, *ahead))
        return True

    def _alter(self, alteration: Alteration, table: MirroredTable) -> None:
        self._report.info(f"altering {table.name}: {alteration}")
        lake = opened(self._ends.lake, table.name)
        rows = altered_rows(lake.rows(), alteration, table.default, table.rules)
        with keep_slot(self._ends.url, self._ends.slot, self._report):
            written = self._ends.lake.write(lake.name, alteration.schema, rows)
        # At the same position: the rows have the same changes in them as before.
        self._ends.lake.commit(lake.name, alteration.schema, written, known_position(lake), lake)

    def apply(
        self, batch: pa.Table, tables: Iterable[TableName], notes: Notes
    ) -> dict[TableName, LoadedTable]:
        """Apply a batch of `envelope=changes`; return the tables that were loaded again, and their positions.

        One that has to wait, now or already, is left as it is.

        Args:
            batch: the changes.
            tables: the followed tables.
            notes: up to where each is complete.
        """
        changes, cut = changes_of_tables(batch), truncated_partitions(batch)
        touched = [name for name in tables if name in changes or str(name) in cut]
        names = [name for name in touched if name not in self._waiting]
        mirrored = self._read_tables(batch, names, notes)
        self.tables |= mirrored
        self.written = tuple(mirrored)
        to_load = self.bring_up(mirrored, notes)
        for table in self._able(mirrored, to_load):
            with self._waiting.alone(table):
                # A partition that is emptied by itself is told by the log, its rows are not.
                is_read = self._read_emptied(table, notes, cut.get(str(table.name), set()))
                # Asked after that: what was read is ahead of a TRUNCATE of the table in this batch.
                if not (is_read and self._is_told(table, changes.get(table.name, ()), notes[table.name])):
                    to_load.append(table.name)
        loaded = dict(self.loader.load(to_load, notes)) if to_load else {}
        self.tables |= {name: table for name, (table, _) in loaded.items()}
        # Asked again: the loop above may have made tables wait, or be loaded.
        for table in self._able(mirrored, to_load):
            with self._waiting.alone(table):
                new = changes.get(table.name, ())
                trying_again(self._ends.lake, partial(self._apply, table, new, notes[table.name]))
        return loaded

    def _able(
        self, tables: Mapping[TableName, MirroredTable], to_load: Sequence[TableName]
    ) -> list[MirroredTable]:
        """Return the tables that can take changes: they do not wait, and are not to be loaded."""
        return [table for name, table in tables.items() if name not in to_load and name not in self._waiting]

    def _read_tables(
        self, batch: pa.Table, names: Sequence[TableName], notes: Notes
    ) -> dict[TableName, MirroredTable]:
        """Read what the database says of tables once it shows what came before these changes."""
        with ReadSession(self._ends.url, lock_seconds=LOCK_SECONDS) as session:
            # The catalog must be as new as the changes: an older one would have other names for columns.
            self._await_visible(session, batch)
            found = self._ends.selection.read(session, names)
        # One that was made again is not published yet: the next start publishes and loads it.
        return {name: table for name, table in found.items() if notes[name].relation == table.relation}

    def _await_visible(self, session: ReadSession, batch: pa.Table) -> None:
        if not len(batch):
            return
        # The log may be ahead of what the server shows: a synchronous standby holds transactions back.
        xids = pc.unique(pc.struct_field(batch.column("source"), "xid")).drop_null()
        if not await_visible(session, xids.to_numpy(), timeout=_VISIBLE_WITHIN):
            raise HeadraceError(
                Kind.CONNECTION,
                "transactions are in the log, but not visible after a minute",
                "A synchronous standby that does not answer may hold them back: see pg_stat_replication.",
            )

    def _is_told(self, table: MirroredTable, changes: Changes, noted: TablePosition) -> bool:
        """Tell whether changes have all that the lake's rows need; say what they lack."""
        position = known_position(opened(self._ends.lake, table.name))
        gap = find_gap(table, changes_after(changes, position), noted)
        if gap is not None:
            self._report.info(gap)
        return gap is None

    def _read_emptied(self, table: MirroredTable, notes: Notes, emptied: Collection[str]) -> bool:
        """Read the parts of a table again whose partitions were truncated; return False to load it whole."""
        if not emptied:
            return True
        noted = notes[table.name]
        parts = {**noted.catalog.tables[table.name].parts, **table.catalog.tables[table.name].parts}
        oids = frozenset(oid for oid, part in parts.items() if str(part.name) in emptied)
        drift = TableDrift(f"{', '.join(sorted(emptied))} was truncated", oids)
        bounds = bounds_of(table, noted, drift) if len(oids) == len(emptied) else None
        return bounds is not None and self._read_parts(ReadParts(bounds, drift.why), table, notes)

    # Files may be joined by another program meanwhile.
    @retry(retry=retry_if_exception(_is_busy), stop=stop_after_attempt(_TRIES), reraise=True)
    def _apply(self, table: MirroredTable, changes: Changes, noted: TablePosition) -> None:
        ends = self._ends.lake
        lake = opened(ends, table.name)
        # The position stands in the same commit as the rows: whatever is repeated is left out here.
        new = changes_after(changes, known_position(lake))
        if not new:
            return
        former = former_names(table, noted)
        typed = [typed_rows(table, part, former, self._report.warning) for part in new]
        # Partitions of a batch come in any order; positions alone say what came last.
        rows = in_order(without_ahead(pa.concat_tables(typed), table, noted.ahead))
        while len(rows):
            part = first_changes(rows, self._at_once.get(table.name, _FIRST_LACKING))
            read = table.rules.apply(ends, lake, table.key, part, last_position(part))
            lacking = count_lacking(part)
            if lacking:
                self._at_once[table.name] = max(1, _READ_BYTES * lacking // max(1, read))
            rows = rows.slice(len(part))
            if len(rows):
                lake = opened(ends, table.name)
