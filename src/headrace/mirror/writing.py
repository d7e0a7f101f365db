"""Bring the lake's tables up to date: load them, follow their alterations, apply changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.envelope import by_table, unwrapped
from headrace.capture.visibility import await_visible
from headrace.catalog.fingerprint import Fingerprint
from headrace.errors import HeadraceError, Kind
from headrace.mirror.alterations import altered_rows
from headrace.mirror.column_names import ColumnNames, rows_names
from headrace.mirror.columns import (
    PREFIX,
    all_fitted,
    defaults_of,
    former_names,
)
from headrace.mirror.drift import TableDrift, altered_columns, column_numbers, find_drift
from headrace.mirror.lake import Lake, LakeTable, known_position
from headrace.mirror.lake_types import explain_unfit
from headrace.mirror.load_units import UnitLoader, load_in_threads
from headrace.mirror.loading import LakeLoader
from headrace.mirror.net_changes import Position
from headrace.mirror.part_reading import PartReader
from headrace.mirror.partition_bounds import Ahead, rows_within
from headrace.mirror.positions import TablePosition
from headrace.mirror.tables import LOCK_SECONDS, MirroredTable, Selection
from headrace.mirror.units import (
    Action,
    Alter,
    Apply,
    LakeFacts,
    Load,
    ObservedTable,
    ReadParts,
    Repartition,
    Wait,
    bounds_of,
    decide,
)
from headrace.mirror.waiting import FAILURES, WaitingTables, failure_of
from headrace.model.changes import Op
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.model.values import column_texts
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter

_VISIBLE_WITHIN = 60.0
_TRIES = 5
PART_SECONDS = 15.0
"""So long the reading of a part waits for open transactions."""
_BETWEEN = "\0"  # no name has it

_POSITION = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
            ELSE pg_current_wal_insert_lsn() END - '0/0'
"""


class LakeWriter:
    """Writes the lake's tables from the database's.

    Args:
        url: the database.
        slot: the slot that is followed.
        selection: which tables, and what of them.
        lake: the tables.
        report: is told what is loaded and altered.
        load_units: reads units of tables that are loaded.
        waiting: where a table waits that cannot be written; None: its error is raised.

    Attributes:
        loader: reads tables anew.
        tables: each table as the database had it when its changes were last written.
        written: those that the last batch was of.
        altered: the catalog before the last alteration of a table's columns, and a position (bytes) that all
            changes of that time lie before.
        ahead: the parts of a table that the lake has as they were behind the table's position.
    """

    def __init__(
        self,
        url: str,
        slot: str,
        selection: Selection,
        lake: Lake,
        report: Reporter,
        *,
        load_units: UnitLoader = load_in_threads,
        waiting: WaitingTables | None = None,
    ) -> None:
        self._waiting = waiting
        self._url = url
        self._selection = selection
        self._lake = lake
        self._report = report
        self.loader = LakeLoader(url, slot, selection, lake, report, load_units=load_units, waiting=waiting)
        self.tables: dict[TableName, MirroredTable] = {}
        self.written: tuple[TableName, ...] = ()
        self.altered: dict[TableName, tuple[Fingerprint, Lsn]] = {}
        self.ahead: dict[TableName, tuple[Ahead, ...]] = {}
        self._parts = PartReader(url, slot, selection, lake)

    def bring_up(
        self,
        tables: Mapping[TableName, MirroredTable],
        known: Mapping[TableName, TablePosition],
        is_sent: Callable[[TableName], bool] = lambda _: True,
        confirmed: Lsn | None = None,
    ) -> list[TableName]:
        """Make the lake's tables fit to take changes; return those that must be loaded.

        One that has to wait is not among them.

        Args:
            tables: the database's tables.
            known: what is noted of each.
            is_sent: tells whether the publication has sent a table since.
            confirmed: from where (bytes) the log will be read again; None: it goes on.
        """
        to_load = []
        actions, now = self.decide(tables, known, is_sent, confirmed)
        for name, action in actions.items():
            with self._alone(tables[name]):
                if isinstance(action, Wait):
                    raise action.error
                if isinstance(action, Load):
                    to_load.append(name)
                    if action.why is not None:
                        self._report.info(action.why)
                elif isinstance(action, ReadParts):
                    if not self._read_parts(action, tables[name], known[name]):
                        to_load.append(name)
                else:
                    self._act(action, tables[name])
                    if action.renames:
                        self.altered[name] = known[name].catalog, now
        self.altered = {name: before for name, before in self.altered.items() if name not in to_load}
        return to_load

    def decide(
        self,
        tables: Mapping[TableName, MirroredTable],
        known: Mapping[TableName, TablePosition],
        is_sent: Callable[[TableName], bool] = lambda _: True,
        confirmed: Lsn | None = None,
    ) -> tuple[dict[TableName, Action], Lsn]:
        """Return what is to be done with each table, and a position (bytes) behind all that was seen.

        Args:
            tables: the database's tables.
            known: what is noted of each.
            is_sent: tells whether the publication has sent a table since.
            confirmed: from where (bytes) the log will be read again; None: it goes on.
        """
        actions: dict[TableName, Action] = {}
        with ReadSession(self._url, lock_seconds=LOCK_SECONDS) as session:
            [(now,)] = session.query(_POSITION)
            for name, table in tables.items():
                try:
                    noted = known.get(name)
                    observed = replace(
                        self._observe(session, table, noted),
                        now=int(now),
                        is_sent=is_sent(name),
                        is_kept=self._is_kept(noted, confirmed, name),
                    )
                    actions[name] = decide(table, observed)
                except FAILURES as error:
                    actions[name] = Wait(failure_of(table, error))
        return actions, int(now)

    def _is_kept(self, noted: TablePosition | None, confirmed: Lsn | None, name: TableName) -> bool:
        return (
            noted is not None
            and confirmed is not None
            and confirmed <= noted.complete
            and self._selection.keeps_log(name)
        )

    def _observe(
        self, session: ReadSession, table: MirroredTable, noted: TablePosition | None
    ) -> ObservedTable:
        name, facts, drift = table.name, None, None
        lake = self._lake.open(name)
        if lake is not None:
            position = lake.position
            is_known = position is not None and noted is not None
            other = lake.find_other_commit(noted.version) if is_known and noted is not None else None
            is_put_back = other is not None and noted is not None and lake.is_put_back(noted.version)
            facts = LakeFacts(self._lake.path(name), lake.schema, position, other, is_put_back)
        if noted is None:
            return ObservedTable(None, facts, 0)
        if noted.relation == table.relation:
            drift = find_drift(session, noted.catalog, table.catalog, table.columns)
        waits = noted.waits_for if self._waiting is None else self._waiting.reason(name) or noted.waits_for
        return ObservedTable(noted, facts, 0, self._names_before(name, noted), waits=waits, drift=drift)

    def _read_parts(self, action: ReadParts, table: MirroredTable, known: TablePosition) -> bool:
        """Read parts of a table again; return False where it was altered again, and must be loaded."""
        self._report.info(f"reading a part of {table.name} again: {action.why}")
        try:
            ahead = self._parts.read(table, action.bounds, PART_SECONDS)
        except HeadraceError as error:
            if self._waiting is None or error.kind is not Kind.SLOT_WAIT:
                raise
            self._waiting.add(error, table)
            return True
        if ahead is not None:
            self.ahead[table.name] = (*self._aheads(table.name, known), *ahead)
        return ahead is not None

    def _aheads(self, name: TableName, known: TablePosition) -> tuple[Ahead, ...]:
        """Return the parts that the lake's table has as they were behind its own position."""
        return self.ahead.get(name, known.ahead)

    def _act(self, action: Apply | Alter | Repartition, table: MirroredTable) -> None:
        lake = self._opened(table.name)
        match action:
            case Alter(alteration):
                self._report.info(f"altering {table.name}: {alteration}")
                rows = altered_rows(lake.rows(), alteration, table.default, table.rules)
                self._rewrite(lake, alteration.schema, rows)
            case Repartition(schema):
                wanted = ", ".join(map(str, table.partitions)) or "nothing"
                self._report.info(f"partitioning {table.name} by {wanted}")
                self._rewrite(lake, schema, lake.rows())

    def _rewrite(self, lake: LakeTable, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> None:
        written = self._lake.write(lake.name, schema, all_fitted(rows, schema))
        self._lake.replace(lake.name, schema, written, known_position(lake), lake)

    def _alone(self, table: MirroredTable) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._waiting is None else self._waiting.alone(table)

    def _waits(self, name: TableName) -> bool:
        return self._waiting is not None and name in self._waiting

    def _names_before(self, name: TableName, known: TablePosition) -> tuple[Fingerprint, Lsn]:
        """Return the catalog before the last alteration of a table's columns, and where that lies behind."""
        return self.altered.get(name, (known.former, known.altered))

    def apply(
        self, batch: pa.Table, tables: Iterable[TableName], known: Mapping[TableName, TablePosition]
    ) -> dict[TableName, tuple[MirroredTable, Lsn]]:
        """Apply a batch of `envelope=changes`; return the tables that were loaded anew, and their positions.

        One that has to wait, now or already, is left as it is.

        Args:
            batch: the changes.
            tables: the followed tables.
            known: up to where each is complete.
        """
        changes, cut = _changes_of_tables(batch), _truncated_partitions(batch)
        names = [name for name in tables if (name in changes or str(name) in cut) and not self._waits(name)]
        mirrored = self._read_tables(batch, names, known)
        self.tables |= mirrored
        self.written = tuple(mirrored)
        to_load = self.bring_up(mirrored, known)
        for table in self._able(mirrored, to_load):
            with self._alone(table):
                emptied = cut.get(str(table.name), set())
                is_told = not self._is_not_told(table, changes, known)
                if not (is_told and self._read_emptied(table, known[table.name], emptied)):
                    to_load.append(table.name)
        loaded = dict(self.loader.load(to_load, others_go_on=True)) if to_load else {}
        self.tables |= {name: table for name, (table, _) in loaded.items()}
        self.altered = {name: before for name, before in self.altered.items() if name not in loaded}
        for table in self._able(mirrored, to_load):
            with self._alone(table):
                self._apply_anew(
                    table, changes.get(table.name, ()), self._aheads(table.name, known[table.name])
                )
        return loaded

    def _able(
        self, tables: Mapping[TableName, MirroredTable], to_load: Sequence[TableName]
    ) -> list[MirroredTable]:
        """Return the tables that can take changes: they do not wait, and are not to be loaded."""
        return [table for name, table in tables.items() if name not in to_load and not self._waits(name)]

    def _read_tables(
        self, batch: pa.Table, names: Sequence[TableName], known: Mapping[TableName, TablePosition]
    ) -> dict[TableName, MirroredTable]:
        """Read what the database says of tables once it shows what these changes came behind.

        One that was made again is not published yet: the next start publishes and loads it.
        """
        with ReadSession(self._url, lock_seconds=LOCK_SECONDS) as session:
            self._await_visible(session, batch)
            found = self._selection.read(session, names)
        return {name: table for name, table in found.items() if known[name].relation == table.relation}

    def _is_not_told(
        self,
        table: MirroredTable,
        changes: Mapping[TableName, list[pa.RecordBatch]],
        known: Mapping[TableName, TablePosition],
    ) -> bool:
        """Tell whether changes of a table lack what the lake's rows need."""
        own = changes.get(table.name, [])
        return (
            self._lacks_values(table, own)
            or self._is_emptied_behind(table, own, self._aheads(table.name, known[table.name]))
            or self._lacks_keys(table, own)
            or self._lacks_names(table, own, known[table.name])
        )

    def _is_emptied_behind(
        self, table: MirroredTable, changes: Sequence[pa.RecordBatch], aheads: Sequence[Ahead]
    ) -> bool:
        """Tell whether a TRUNCATE lies before the moment of which the lake has some part already."""
        start = max((ahead.start for ahead in aheads), default=0)
        position = known_position(self._opened(table.name)) if start else (0, 0)
        return any(
            pc.any(
                pc.and_(
                    pc.and_(pc.equal(part.column("op"), Op.TRUNCATE.value), _is_after(part, position)),
                    pc.less(part.column("_commit_lsn"), start),
                )
            ).as_py()
            for part in (changes if start else ())
        )

    def _read_emptied(self, table: MirroredTable, known: TablePosition, emptied: Collection[str]) -> bool:
        """Read the parts of a table again whose partitions were truncated; return False to load it whole."""
        if not emptied:
            return True
        parts = {**known.catalog.tables[table.name].parts, **table.catalog.tables[table.name].parts}
        oids = frozenset(oid for oid, part in parts.items() if str(part.name) in emptied)
        drift = TableDrift(f"{', '.join(sorted(emptied))} was truncated", oids)
        bounds = bounds_of(table, known, drift) if len(oids) == len(emptied) else None
        return bounds is not None and self._read_parts(ReadParts(bounds, drift.why), table, known)

    def _lacks_values(self, table: MirroredTable, changes: Sequence[pa.RecordBatch]) -> bool:
        """Tell whether rows came to satisfy `where` without a large value, which nobody has but the database.

        The log has them as inserted; what their update did not touch is not in it, nor is it in the lake.
        """
        if table.where is None:
            return False
        position = known_position(self._opened(table.name))
        return any(_lacks_inserted(part.filter(_is_after(part, position)), table.columns) for part in changes)

    def _lacks_keys(self, table: MirroredTable, changes: Sequence[pa.RecordBatch]) -> bool:
        """Tell whether rows were changed while the log did not have their key before the change.

        REPLICA IDENTITY was another one then. It may be what it was again, so that the catalog does not tell.
        """
        if not any(_lacks_key(part, table.key, {}) for part in changes):
            return False
        lake = self._opened(table.name)
        position, former = known_position(lake), former_names(lake.schema)
        lacks = any(_lacks_key(part.filter(_is_after(part, position)), table.key, former) for part in changes)
        if lacks:
            self._report.info(
                f"the log lacks keys of changed rows of {table.name}: REPLICA IDENTITY was altered"
            )
        return lacks

    def _lacks_names(
        self, table: MirroredTable, changes: Sequence[pa.RecordBatch], known: TablePosition
    ) -> bool:
        """Tell whether rows were written while columns were perhaps called otherwise.

        The catalog does not tell: a column may have its name again, or may have got one that another had.
        """
        catalog = table.catalog.tables[table.name]
        now = {name: number for name, number in column_numbers(catalog).items() if name in table.sent}
        present = ColumnNames.between(now, now, in_order=catalog.in_order)
        former, altered = self._names_before(table.name, known)
        older = present
        if table.name in former.tables:
            unsent = set(column_numbers(catalog).values()) - set(now.values())
            before = column_numbers(former.tables[table.name])
            older = ColumnNames.between(
                {name: number for name, number in before.items() if number not in unsent},
                now,
                in_order=catalog.in_order,
                altered=altered_columns(former.tables[table.name], catalog),
            )
        position = known_position(self._opened(table.name))
        for part in changes:
            is_new = _is_after(part, position)
            is_older = pc.less(part.column("_commit_lsn"), altered)
            for names, chosen in ((older, is_older), (present, pc.invert(is_older))):
                for found, is_inserted in rows_names(part, pc.and_(is_new, chosen)):
                    if not names.tell(found, is_inserted=is_inserted):
                        self._report.info(
                            f"columns of {table.name} may have been called otherwise when rows were written"
                        )
                        return True
        return False

    def _await_visible(self, session: ReadSession, batch: pa.Table) -> None:
        """Wait until the catalog shows the alterations that committed before these changes."""
        if not len(batch):
            return
        xids = pc.unique(pc.struct_field(batch.column("source"), "xid")).drop_null()
        if not await_visible(session, xids.to_numpy(), timeout=_VISIBLE_WITHIN):
            raise HeadraceError(
                Kind.CONNECTION,
                "transactions that the log has are not visible after a minute",
                "A synchronous standby that does not answer holds them back: see pg_stat_replication.",
            )

    def _apply_anew(
        self, table: MirroredTable, changes: Sequence[pa.RecordBatch], aheads: Sequence[Ahead]
    ) -> None:
        """Apply changes, and once more where files were joined by another program meanwhile."""
        for _ in range(_TRIES - 1):
            try:
                self._apply(table, changes, aheads)
            except HeadraceError as error:
                if error.kind is not Kind.SINK_BUSY:
                    raise
            else:
                return
        self._apply(table, changes, aheads)

    def _apply(
        self, table: MirroredTable, changes: Iterable[pa.RecordBatch], aheads: Sequence[Ahead]
    ) -> None:
        lake = self._opened(table.name)
        position = known_position(lake)
        former = former_names(lake.schema)
        after = (part.filter(_is_after(part, position)) for part in changes)
        defaults = defaults_of(lake.schema)
        typed = [
            _typed_rows(table, _renamed(part, former), defaults, self._report.warning)
            for part in after
            if len(part)
        ]
        rows = _not_ahead(pa.concat_tables(typed), table, aheads) if typed else ()
        if len(rows):
            table.rules.apply(self._lake, lake, table.key, rows)

    def _opened(self, name: TableName) -> LakeTable:
        lake = self._lake.open(name)
        if lake is None:
            raise HeadraceError(Kind.CONTINUITY, f"the lake's table {name} is gone", "Start with --reload.")
        return lake


def _changes_of_tables(batch: pa.Table) -> dict[TableName, list[pa.RecordBatch]]:
    """Return the changes of each table, in `CHANGES_SCHEMA`."""
    changes: dict[TableName, list[pa.RecordBatch]] = {}
    for part in map(unwrapped, batch.to_batches()):
        for name, places in by_table(part):
            own = part if len(places) == len(part) else part.take(pa.array(places))
            changes.setdefault(name, []).append(own)
    return changes


def _truncated_partitions(batch: pa.Table) -> dict[str, set[str]]:
    """Return the partitions that were truncated by themselves, by their tables."""
    found: dict[str, set[str]] = {}
    if len(batch):
        source = batch.column("source").combine_chunks()
        source = source.filter(pc.is_valid(pc.struct_field(source, "partition_of")))
        for row in source.to_pylist():
            found.setdefault(row["partition_of"], set()).add(str(TableName(row["schema"], row["table"])))
    return found


def _not_ahead(rows: pa.Table, table: MirroredTable, aheads: Sequence[Ahead]) -> pa.Table:
    """Return changes without those of parts that the lake has as they were behind the changes."""
    for ahead in aheads:
        is_before = pc.less(rows.column(PREFIX + "commit_lsn"), ahead.start)
        within = rows_within(rows, ahead.bounds, table.columns_by_number)
        rows = rows.filter(pc.invert(pc.and_(is_before, within)))
    return rows


def _renamed(changes: pa.RecordBatch, former: Mapping[str, str]) -> pa.RecordBatch:
    """Return changes whose columns have the names that they have now."""
    for side in ("before", "after") if former else ():
        rows = changes.column(side)
        names = rows.keys
        for old, new in former.items():
            names = pc.if_else(pc.equal(names, old), new, names)
        renamed = pa.MapArray.from_arrays(rows.offsets, names, rows.items, rows.type, mask=rows.is_null())
        changes = changes.set_column(
            changes.schema.get_field_index(side), changes.schema.field(side), renamed
        )
    return changes


def _lacks_inserted(changes: pa.RecordBatch, columns: Collection[str]) -> bool:
    """Tell whether an inserted row lacks a column: a large value, or one that was added later."""
    return _lacks_any(_names_after(changes, Op.INSERT), columns)


def _names_after(changes: pa.RecordBatch, op: Op) -> pa.ListArray:
    """Return the names of the columns that the log has of each row, of changes of one kind."""
    rows = changes.filter(pc.equal(changes.column("op"), op.value)).column("after")
    return pa.ListArray.from_arrays(rows.offsets, rows.keys)


def _lacks_any(names: pa.ListArray, columns: Collection[str]) -> bool:
    """Tell whether some list of names, each of which has a name once, lacks one of `columns`."""
    found = pc.is_in(names.flatten(), value_set=pa.array(sorted(columns), pa.string()))
    return bool(found.true_count < len(names) * len(columns))


def _lacks_key(changes: pa.RecordBatch, key: Sequence[str], former: Mapping[str, str]) -> bool:
    """Tell whether the log lacks what tells changed rows apart: the old key, or where there is none all."""
    op = changes.column("op")
    is_changed = pc.or_(pc.equal(op, Op.UPDATE.value), pc.equal(op, Op.DELETE.value))
    identities = pc.binary_join(changes.column("_identity").filter(is_changed), _BETWEEN)
    carried = [text.split(_BETWEEN) for text in pc.unique(identities).drop_null().to_pylist()]
    return any(not key or not {*key} <= {former.get(name, name) for name in names} for names in carried)


def _is_after(changes: pa.RecordBatch, position: Position) -> pa.Array:
    lsn, sequence = changes.column("_commit_lsn").to_numpy(), changes.column("_commit_seq").to_numpy()
    return pa.array((lsn > position[0]) | ((lsn == position[0]) & (sequence > position[1])))


def _typed_rows(
    table: MirroredTable,
    changes: pa.RecordBatch,
    defaults: Mapping[str, str],
    tell: Callable[[str], object],
) -> pa.Table:
    try:
        read = table.shape.rows(changes)
    except HeadraceError as error:
        raise (error if error.kind is not Kind.VALUE else _explain(table, changes) or error) from error
    rows = table.in_lake(pa.Table.from_batches([read]), tell)
    return rows if table.mode == "changes" else _with_defaults(rows, changes, table, defaults)


def _explain(table: MirroredTable, changes: pa.RecordBatch) -> HeadraceError | None:
    """Return the error of the first changes with a value that does not fit, by their key; None: all fit."""
    kinds = table.shape.columns
    texts = replace(table.shape, columns={name: kind.as_text for name, kind in kinds.items()})
    return explain_unfit(texts.rows(changes), kinds, table.name, table.key)


def _with_defaults(
    rows: pa.Table, changes: pa.RecordBatch, table: MirroredTable, texts: Mapping[str, str]
) -> pa.Table:
    """Give rows that were inserted before a column was added the default that they have in the database.

    Args:
        rows: those of `changes`.
        changes: the changes.
        table: the table.
        texts: of the defaults, as the lake has kept them.
    """
    names = [name for name in table.columns if name in texts]
    if not names:
        return rows
    inserted = pc.equal(changes.column("op"), Op.INSERT.value)
    for name, column in column_texts(changes.column("after"), names).items():
        older = pc.and_not(inserted, column.known).to_numpy(zero_copy_only=False)
        if older.any():
            taken = changes.filter(pa.array(older))
            places = set(
                zip(
                    taken.column("_commit_lsn").to_pylist(),
                    taken.column("_commit_seq").to_pylist(),
                    strict=True,
                )
            )
            positions = zip(
                rows.column(PREFIX + "commit_lsn").to_pylist(),
                rows.column(PREFIX + "commit_seq").to_pylist(),
                strict=True,
            )
            mask = pa.array(np.fromiter((position in places for position in positions), np.bool_, len(rows)))
            filled = pc.if_else(mask, table.kept_default(name, texts[name]), rows.column(name))
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), filled)
    return rows
