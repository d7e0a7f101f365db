"""Keep up to where each mirrored table is complete, in the lake's table `headrace_positions`.

Readers join tables as of one commit with it; a start finds what is loaded, and where the log goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from headrace.catalog.fingerprint import Fingerprint
from headrace.errors import HeadraceError, Kind
from headrace.mirror.lake import POSITIONS, Lake, LakeTable
from headrace.mirror.partition_bounds import Ahead, Bounds, Leaves
from headrace.model.failpoints import reach
from headrace.model.lsn import Lsn
from headrace.model.names import TableName

_NOTHING = Fingerprint()
_Code = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _json(kind: Any) -> _Code:
    """Return how values of a type become JSON and are read again."""
    adapter = TypeAdapter(kind)
    return lambda value: adapter.dump_json(value).decode(), adapter.validate_json


_FINGERPRINT: _Code = (Fingerprint.to_text, Fingerprint.from_text)


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
            no later batch: it must be read anew before it goes on.
        leaves: the partitions that held its rows.
        ahead: the parts that the lake has as they were behind `complete`.
    """

    version: int
    complete: Lsn
    relation: int
    where: str | None = None
    catalog: Fingerprint = _NOTHING
    former: Fingerprint = _NOTHING
    altered: Lsn = 0
    is_whole: bool = True
    waits_for: str | None = None
    leaves: Leaves = field(default_factory=dict)
    ahead: tuple[Ahead, ...] = ()


_COLUMNS: tuple[tuple[str, pa.DataType, str, _Code | None], ...] = (
    ("version", pa.int64(), "version", None),
    ("complete_lsn", pa.int64(), "complete", None),
    ("is_whole", pa.bool_(), "is_whole", None),
    ("relation", pa.int64(), "relation", None),
    ("row_filter", pa.string(), "where", None),
    ("catalog", pa.string(), "catalog", _FINGERPRINT),
    ("former_catalog", pa.string(), "former", _FINGERPRINT),
    ("altered_lsn", pa.int64(), "altered", None),
    ("waits_for", pa.string(), "waits_for", None),
    ("partitions", pa.string(), "leaves", _json(dict[int, Bounds | None])),
    ("ahead", pa.string(), "ahead", _json(tuple[Ahead, ...])),
)
"""What is written of a position: column, type, attribute, and how it becomes a text and is read again."""
_NAMES = (("table_schema", pa.string()), ("table_name", pa.string()))
_OF_ALL = (("slot", pa.string()), ("stream", pa.string()))
_SCHEMA = pa.schema([*_NAMES, *((name, kind) for name, kind, *_ in _COLUMNS), *_OF_ALL])


def _to_row(position: TablePosition) -> dict[str, Any]:
    values = {name: (getattr(position, attribute), code) for name, _, attribute, code in _COLUMNS}
    return {name: value if code is None else code[0](value) for name, (value, code) in values.items()}


def _from_row(row: Mapping[str, Any]) -> TablePosition:
    values = {
        attribute: row[name] if code is None else code[1](row[name]) for name, _, attribute, code in _COLUMNS
    }
    return TablePosition(**values)


@dataclass(frozen=True, slots=True)
class LakePositions:
    """The positions of all tables, and of the stream.

    Attributes:
        tables: of each table that is loaded.
        stream: the offset that the tables have reached, with the log that it is a position of; None before
            the first load.
    """

    tables: Mapping[TableName, TablePosition] = field(default_factory=lambda: MappingProxyType({}))
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
                f"gone, remove the lake's table {POSITIONS.name}: all tables are then read anew.",
            )
        tables = {TableName(row["table_schema"], row["table_name"]): _from_row(row) for row in rows}
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
                **_to_row(position),
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
