"""Read parts of a partitioned table again: those of partitions that came, went or were emptied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.capture.rows import METADATA
from headrace.mirror.columns import PREFIX, fitted
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.files import grouped
from headrace.mirror.keys import equal_keys
from headrace.mirror.lake import known_position, opened
from headrace.mirror.load_units import read_rows
from headrace.mirror.modes import LoadMoment, with_fields
from headrace.mirror.partition_bounds import Ahead, Bounds, condition, rows_within
from headrace.mirror.tables import LOCK_SECONDS, SNAPSHOT_SECONDS, MirroredTable
from headrace.model.names import CtidRange
from headrace.postgres.copying import RowSession
from headrace.postgres.session import ReadSession
from headrace.snapshot.exporting import positioned_snapshot

_BYTES_AT_ONCE, _ROWS_AT_ONCE = 64 << 20, 1 << 18
"""So much, about, is in one commit: of rows, and of keys that are gone."""


@dataclass(frozen=True, slots=True)
class PartReader:
    """Makes parts of the lake's tables as the database's are, in as many rows as the parts have.

    Attributes:
        ends: where tables are read and written.
    """

    ends: MirrorEndpoints

    def read(self, table: MirroredTable, parts: Sequence[Bounds]) -> list[Ahead] | None:
        """Read parts in a snapshot; return up to where the lake has them now, ahead of the table's position.

        Args:
            table: the table.
            parts: the bounds of the parts.

        Returns:
            None: the table was altered again meanwhile, and is to be read whole.
        """
        # Before the snapshot: what commits behind it ends these rows, which must have begun by then.
        with ReadSession(self.ends.url) as session:
            [(now,)] = session.query("SELECT clock_timestamp()")
        with positioned_snapshot(self.ends.url, self.ends.slot, SNAPSHOT_SECONDS) as (start, snapshot):
            with ReadSession(self.ends.url, snapshot=snapshot, lock_seconds=LOCK_SECONDS) as session:
                present = self.ends.selection.read(session, [table.name]).get(table.name)
            # The bounds are those of the catalog that was looked at; of another one they may be others.
            if present is None or present.catalog != table.catalog:
                return None
            with RowSession(self.ends.url, snapshot=snapshot, lock_seconds=LOCK_SECONDS) as session:
                for bounds in parts:
                    self._read(session, table, bounds, LoadMoment(start, now))
        return [Ahead(start, bounds) for bounds in parts]

    def _read(self, session: RowSession, table: MirroredTable, bounds: Bounds, moment: LoadMoment) -> None:
        key = list(table.key)
        gone = equal_keys(self._keys_within(table, bounds))
        # The server leaves the other partitions out.
        within = [condition(bounds, table.columns_by_number)]
        read = read_rows(session, table, [CtidRange(0, None)], within)
        found = (batch.cast(table.schema) for batch in read)
        for rows in grouped(found, table.schema, _BYTES_AT_ONCE):
            gone = gone.join(equal_keys(rows.select(key)), key, join_type="left anti")
            self._write(table, _as_changes(rows, "insert", moment))
        for keys in filter(len, gone.to_batches(max_chunksize=_ROWS_AT_ONCE)):
            rows = pa.Table.from_batches([fitted(keys, table.schema)])
            self._write(table, _as_changes(rows, "delete", moment))

    def _keys_within(self, table: MirroredTable, bounds: Bounds) -> pa.Table:
        """Return the keys of the lake's present rows within bounds."""
        schema = pa.schema([table.schema.field(name) for name in table.key])
        lake = opened(self.ends.lake, table.name)
        found = (batch.filter(table.rules.present(batch)) for batch in lake.rows())
        return pa.Table.from_batches(
            (
                batch.filter(rows_within(batch, bounds, table.columns_by_number))
                .select(schema.names)
                .cast(schema)
                for batch in found
            ),
            schema,
        )

    def _write(self, table: MirroredTable, changes: pa.Table) -> None:
        """Write changes, in one commit that leaves the table's position."""
        lake = opened(self.ends.lake, table.name)
        table.rules.apply(self.ends.lake, lake, table.key, changes, known_position(lake))


def _as_changes(rows: pa.Table, kind: str, moment: LoadMoment) -> pa.Table:
    """Return rows as changes right before the first one that they do not show."""
    values = {
        "change_type": kind,
        "commit_lsn": moment.start - 1,
        "commit_seq": 0,
        "commit_timestamp": moment.time,
    }
    fields = [field.with_name(PREFIX + field.name) for field in METADATA]
    return with_fields(rows, fields, {PREFIX + name: value for name, value in values.items()})
