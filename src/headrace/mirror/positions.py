"""Keep up to where each mirrored table is complete, in the lake's table `headrace_positions`.

Readers join tables as of one commit with it; a start finds what is loaded, and where the log goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from headrace.catalog.fingerprint import Fingerprint
from headrace.errors import HeadraceError, Kind
from headrace.mirror.lake import POSITIONS, Lake, LakeTable
from headrace.mirror.partition_bounds import Ahead, Leaves
from headrace.model.failpoints import reach
from headrace.model.lsn import Lsn
from headrace.model.names import TableName

_NOTHING = Fingerprint()
_Catalog = Annotated[Fingerprint, PlainValidator(Fingerprint.from_text), PlainSerializer(Fingerprint.to_text)]


@dataclass(frozen=True, slots=True)
class TablePosition:
    """Up to where one table is complete.

    Attributes:
        version: the number of the lake table's commit that this is said of.
        complete: every commit whose record lies before this address (bytes) is in the table.
        relation: the oid of the database's table.
        where: the condition that its rows satisfied when it was loaded; None: there was none.
        catalog: what else its rows' values depended on, and its columns.
        former: the catalog before the last alteration of its columns, while the log is not past that.
        altered: a position (bytes) that all changes of the time before that alteration lie before; 0: there
            was none.
        is_whole: whether the table has no part of a transaction of which other parts are still to come.
        waits_for: why the table is not written for now; None: it is. What it misses since `complete` is in
            no later batch: it must be read again before it goes on.
        leaves: the partitions that held its rows.
        ahead: the parts that the lake has as they were after `complete`.
        sent: how the publication had the table at `complete`, see `Published.of`; None: that is not known.
    """

    version: int
    complete: Lsn
    relation: int
    where: str | None = None
    catalog: _Catalog = _NOTHING
    former: _Catalog = _NOTHING
    altered: Lsn = 0
    is_whole: bool = True
    waits_for: str | None = None
    leaves: Leaves = field(default_factory=dict)
    ahead: tuple[Ahead, ...] = ()
    sent: tuple[int | None, int] | None = None


_POSITION = TypeAdapter(TablePosition)
_NUMBERS = ("version", "complete_lsn", "relation")
_TEXTS = ("table_schema", "table_name", "row_filter", "waits_for", "notes", "slot", "stream")
_SCHEMA = pa.schema(
    {**dict.fromkeys(_TEXTS, pa.string()), **dict.fromkeys(_NUMBERS, pa.int64()), "is_whole": pa.bool_()}
)
"""What is written: `notes` has the whole position, other columns have of it what readers need."""


@dataclass(frozen=True, slots=True)
class LakePositions:
    """The positions of all tables, and of the stream.

    Attributes:
        tables: of each table that is loaded.
        stream: the offset that the tables have reached, with the log that it is a position of; None before
            the first load.
    """

    tables: Mapping[TableName, TablePosition] = field(default_factory=dict)
    stream: Mapping[str, Any] | None = None


class PositionsTable:
    """The table `headrace_positions` of a lake.

    Args:
        lake: the lake.
        slot: the replication slot; a lake belongs to one.
    """

    def __init__(self, lake: Lake, slot: str) -> None:
        self._lake = lake
        self._slot = slot
        self._noted: str | None = None

    def read(self) -> LakePositions:
        """Read the positions; there are none in a new location.

        Raises:
            HeadraceError: CONFIG, where the location belongs to another slot.
        """
        known = self._read(self._lake.open(POSITIONS))
        self._noted = json.dumps(known.stream)
        return known

    def _read(self, table: LakeTable | None) -> LakePositions:
        if table is None:
            return LakePositions()
        rows = [row for batch in table.rows() for row in batch.to_pylist()]
        # Two slots cannot be confirmed by one position: what one has read the other may lack.
        owners = {row["slot"] for row in rows} - {self._slot}
        if owners:
            raise HeadraceError(
                Kind.CONFIG,
                f"the lake at {self._lake.location} is the mirror of another slot, {min(owners)}",
                "Give each mirror a location of its own, or name that slot in [mirror]. If that mirror is "
                f"gone, remove the lake's table {POSITIONS.name}: all tables are then read again.",
            )
        tables = {
            TableName(row["table_schema"], row["table_name"]): _POSITION.validate_json(row["notes"])
            for row in rows
        }
        # Each row carries the same offset: one commit writes them all.
        return LakePositions(tables, json.loads(rows[0]["stream"]) if rows else None)

    def write(self, positions: LakePositions) -> None:
        """Replace the positions, in one commit.

        Raises:
            HeadraceError: CONTINUITY or CONFIG, where another mirror has written others since they were read.
        """
        existing = self._lake.open(POSITIONS)
        # Another mirror that was thought dead may have gone on: the later one's notes would be lost.
        if self._noted is not None and json.dumps(self._read(existing).stream) != self._noted:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"another mirror has written {POSITIONS.name} at {self._lake.location} meanwhile",
                "Let one mirror alone write a location; then start it again.",
            )
        rows = [
            {
                "table_schema": table.schema,
                "table_name": table.name,
                "version": position.version,
                "complete_lsn": position.complete,
                "is_whole": position.is_whole,
                "relation": position.relation,
                "row_filter": position.where,
                "waits_for": position.waits_for,
                "notes": _POSITION.dump_json(position).decode(),
                "slot": self._slot,
                "stream": json.dumps(positions.stream),
            }
            for table, position in sorted(positions.tables.items())
        ]
        files = self._lake.write(POSITIONS, _SCHEMA, [pa.RecordBatch.from_pylist(rows, _SCHEMA)])
        self._lake.commit(POSITIONS, _SCHEMA, files, (0, 0), existing)
        # Without rows there is no place for the offset: the next reading finds none.
        self._noted = json.dumps(positions.stream if rows else None)
        reach("mirror_noted")
