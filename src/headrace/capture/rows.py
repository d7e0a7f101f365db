"""Convert changes of one table to rows of its typed columns, with metadata columns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.envelope import as_maps, attempts, check_truncated
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA, Op
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.model.types import quoted, spark_type
from headrace.model.value_type import ValueType
from headrace.model.values import ColumnTexts, column_texts, convert_all, convert_fitting, rescued

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]

CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete", "truncate")
"""The values of `_change_type`, as in Delta's change data feed; `truncate` is an addition."""
_INSERT, _PREIMAGE, _POSTIMAGE, _DELETE, _TRUNCATE = range(len(CHANGE_TYPES))
_ALWAYS = {Op.READ: _INSERT, Op.INSERT: _INSERT, Op.DELETE: _DELETE, Op.TRUNCATE: _TRUNCATE}

_NAMES = pa.list_(pa.field("element", pa.string()))
METADATA = (
    pa.field("change_type", pa.string()),
    pa.field("commit_lsn", pa.int64()),
    pa.field("commit_seq", pa.int64()),
    pa.field("commit_timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("xid", pa.int64()),
    pa.field("snapshot", pa.bool_()),
    pa.field("snapshot_attempt", pa.int32()),
    pa.field("unchanged", _NAMES),
)
"""The metadata columns that follow a table's columns; their names get a prefix."""
RESCUED = pa.field("rescued_data", pa.string())
"""The last column with `rescues`: JSON of the values that the planned columns cannot hold."""


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """The position of an initial snapshot's rows: right before the first change after them.

    A reader that keeps the row with the greatest (`_commit_lsn`, `_commit_seq`) of each key has the right
    rows, also where the snapshot had to begin again: a `truncate` removes the rows of an earlier attempt, the
    new rows follow it, and the stream follows them.

    Attributes:
        start: the first position in the log (bytes) whose commits the rows do not show.
        attempt: from 1; greater where the snapshot began again.
    """

    start: Lsn
    attempt: int

    @property
    def lsn(self) -> Lsn:
        """The rows' `_commit_lsn`: less than that of any later change."""
        # Records begin at multiples of eight bytes: no commit has this position.
        return self.start - 1

    @property
    def sequence(self) -> int:
        """The rows' `_commit_seq`."""
        # Even for rows, odd for the truncate before them: attempts are in order, whatever they hold.
        return 2 * self.attempt

    @property
    def emptied(self) -> int:
        """The `_commit_seq` of the `truncate` before the rows."""
        return self.sequence - 1


@dataclass(frozen=True)
class RowShape:
    """The columns of a table's rows, and how changes become such rows.

    Attributes:
        table: the table.
        columns: its columns' names and types, in order.
        key: the key columns; empty for a table without a key.
        prefix: the prefix of the metadata columns' names.
        pre_images: whether an update also yields the row before it.
        rescues: whether values that do not fit `columns` are kept as text in a column of their own.
        left_out: the columns that were deselected; their values are not kept.
        inserts_are_whole: whether an inserted row lacks only columns that its table did not have yet.
    """

    table: TableName
    columns: Mapping[str, ValueType]
    key: tuple[str, ...]
    prefix: str = "_"
    pre_images: bool = False
    rescues: bool = False
    left_out: frozenset[str] = frozenset()
    inserts_are_whole: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema: the table's columns, then the metadata."""
        own = [pa.field(name, kind.arrow) for name, kind in self.columns.items()]
        return pa.schema([*own, *(field.with_name(self.prefix + field.name) for field in self.metadata)])

    @property
    def metadata(self) -> tuple[pa.Field, ...]:
        """The metadata columns, without the prefix."""
        return (*METADATA, RESCUED) if self.rescues else METADATA

    @property
    def ddl(self) -> str:
        """The schema as Spark DDL."""
        return ", ".join(f"{quoted(field.name)} {spark_type(field.type)}" for field in self.schema)

    def rows(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Convert each change to its rows; all `changes` must be of the table.

        An update that changes the key becomes a `delete` of the old key and an `insert`. A deleted row holds
        what the log holds of it: its key, or with REPLICA IDENTITY FULL all columns. A `truncate` holds no
        values. Values that a new row lacks are NULL, and `unchanged` names their columns (but see
        `headrace.capture.toast`).

        Args:
            changes: in `CHANGES_SCHEMA`.

        Returns:
            A batch with `schema`.

        Raises:
            HeadraceError: VALUE where a text is not valid for its column's type; SCHEMA_CHANGED where only a
                partition was truncated.
        """
        check_truncated(changes, lambda table: None if table == self.table else self.table)
        may_lack = (Op.UPDATE,) if self.inserts_are_whole else (Op.UPDATE, Op.INSERT)
        sides = _Sides(changes, tuple(self.columns), self.key, may_lack)
        change, code, is_old = self._plan_rows(changes, sides)
        texts = {name: sides.texts(name, change, code, is_old) for name in self.columns}
        values, rescued_column = self._convert(
            texts, self._unplanned(changes, change, is_old) if self.rescues else {}
        )
        # One take for all rows; no Python object for a row.
        types = pa.array(CHANGE_TYPES, pa.string()).take(pa.array(code))
        kept = changes.select(["_commit_lsn", "_commit_seq", "_commit_timestamp", "_xid"])
        taken = kept.take(pa.array(change)).columns
        is_read, attempt = (column.take(pa.array(change)) for column in attempts(changes))
        unchanged = sides.unchanged().take(pa.array(change, mask=is_old))
        metadata = [types, *taken, is_read, attempt, unchanged, *rescued_column]
        return pa.RecordBatch.from_arrays([*values, *metadata], schema=self.schema)

    def _convert(
        self, texts: Mapping[str, pa.StringArray], unplanned: Mapping[int, Mapping[str, str | None]]
    ) -> tuple[list[pa.Array], list[pa.Array]]:
        """Return the typed columns, and with `rescues` the column of values that do not fit."""
        if not self.rescues:
            kinds = self.columns.items()
            return [convert_all(kind, texts[name], f"{self.table}.{name}") for name, kind in kinds], []
        converted = {
            name: (texts[name], convert_fitting(kind, texts[name], f"{self.table}.{name}"))
            for name, kind in self.columns.items()
        }
        rows = len(next(iter(texts.values())))
        return [column.values for _, column in converted.values()], [rescued(converted, rows, unplanned)]

    def _unplanned(
        self, changes: pa.RecordBatch, change: _Numbers, is_old: _Mask
    ) -> dict[int, dict[str, str | None]]:
        """Return the texts of columns that are new since the plan, by the number of the resulting row."""
        known = pa.array([*self.columns, *self.left_out], pa.string())
        sides = [_others(changes.column(side), known) for side in ("after", "before")]
        if not any(sides):
            return {}
        places = enumerate(zip(change.tolist(), is_old.tolist(), strict=True))
        unplanned = ((row, sides[old].get(place)) for row, (place, old) in places)
        return {row: texts for row, texts in unplanned if texts is not None}

    def check_columns(self, changes: pa.RecordBatch) -> None:
        """Raise an error if the changes have a column that the table did not have when it was planned.

        Raises:
            HeadraceError: SCHEMA_CHANGED.
        """
        known = {*self.columns, *self.left_out}
        new = [name for name in pc.unique(changes.column("after").keys).to_pylist() if name not in known]
        if new:
            raise HeadraceError(
                Kind.SCHEMA_CHANGED,
                f"the table {self.table} was altered: it has a new column {new[0]}",
                "Load the changes again, and start the query: it takes the columns that the table has then.",
            )

    def snapshot(self, values: pa.RecordBatch, place: SnapshotPlace) -> pa.RecordBatch:
        """Return an initial snapshot's rows as inserts.

        Args:
            values: the table's columns, in order.
            place: the position of the rows.
        """
        known = {
            "change_type": CHANGE_TYPES[_INSERT],
            "commit_lsn": place.lsn,
            "commit_seq": place.sequence,
            "snapshot": True,
            "snapshot_attempt": place.attempt,
        }
        metadata = _repeat(known, self.metadata, values.num_rows)
        return pa.RecordBatch.from_arrays([*values.columns, *metadata], schema=self.schema)

    def _plan_rows(self, changes: pa.RecordBatch, sides: _Sides) -> tuple[_Numbers, _Numbers, _Mask]:
        """Return for each resulting row: its change's index, its type, and whether it shows the old side."""
        op = changes.column("op")
        is_update = sides.is_update
        moved = is_update & sides.differ(self.key) if is_update.any() else is_update
        # Two rows of one change have the same position: the old one comes first.
        doubled = is_update if self.pre_images else moved
        change = np.repeat(np.arange(len(op)), 1 + doubled)
        is_first = np.ones(len(change), np.bool_)
        is_first[1:] = change[1:] != change[:-1]
        is_old = is_first & doubled[change]
        code = np.full(len(change), _POSTIMAGE, np.int64)
        for kind, change_type in _ALWAYS.items():
            code[np.asarray(pc.equal(op, kind.value))[change]] = change_type
        code[is_old] = np.where(moved[change[is_old]], _DELETE, _PREIMAGE)
        code[moved[change] & ~is_old] = _INSERT
        return change, code, is_old | (code == _DELETE)


class _Sides:
    """The old and new values of changes, column by column; old values are extracted only when needed."""

    def __init__(
        self, changes: pa.RecordBatch, names: tuple[str, ...], key: tuple[str, ...], may_lack: Sequence[Op]
    ) -> None:
        self._changes = changes
        self._names = names
        # A key that is left out of the rows still tells which update moved a row.
        self._read = tuple(dict.fromkeys([*names, *key]))
        self._may_lack = pa.array([op.value for op in may_lack])

    @cached_property
    def is_update(self) -> _Mask:
        """Which changes are updates."""
        return np.asarray(pc.equal(self._changes.column("op"), Op.UPDATE.value))

    @cached_property
    def _before(self) -> Mapping[str, ColumnTexts]:
        return column_texts(self._changes.column("before"), self._read)

    @cached_property
    def _after(self) -> Mapping[str, ColumnTexts]:
        return column_texts(self._changes.column("after"), self._read)

    def unchanged(self) -> pa.ListArray:
        """Return for each change the columns whose new values are not known; NULL where there are none."""
        gaps: dict[str, _Mask] = {}
        # An update by which a row comes to satisfy a publication's row filter is logged as an insert.
        is_partial = np.asarray(pc.is_in(self._changes.column("op"), value_set=self._may_lack))
        if is_partial.any():
            unknown = {name: is_partial & ~np.asarray(self._after[name].known) for name in self._names}
            gaps = {name: gap for name, gap in unknown.items() if gap.any()}
        if not gaps:
            return pa.nulls(len(self._changes), _NAMES)
        incomplete = np.flatnonzero(np.logical_or.reduce(list(gaps.values())))
        names = {int(row): [name for name, gap in gaps.items() if gap[row]] for row in incomplete}
        return pa.array([names.get(row) for row in range(len(self._changes))], _NAMES)

    def differ(self, names: tuple[str, ...]) -> _Mask:
        """Return whether any of the columns `names` is known on both sides and differs."""
        differs = np.zeros(len(self._changes), np.bool_)
        for name in names:
            before, after = self._before[name], self._after[name]
            # Where the log has no old value of a key column, the update did not change it.
            known = pc.and_(before.known, after.known)
            same = pc.equal(before.texts, after.texts).fill_null(False)  # noqa: FBT003
            differs |= np.asarray(pc.and_not(known, same))
        return differs

    def texts(self, name: str, change: _Numbers, code: _Numbers, is_old: _Mask) -> pa.StringArray:
        """Return one column of the resulting rows."""
        if not is_old.any():
            after = self._after[name].texts
            return after if len(change) == len(after) else after.take(pa.array(change))
        both = pa.concat_arrays([self._after[name].texts, self._before[name].texts])
        return both.take(pa.array(change + len(self._changes) * is_old, mask=code == _TRUNCATE))


def _others(rows: pa.MapArray, known: pa.StringArray) -> dict[int, dict[str, str | None]]:
    """Return the values of columns that are not `known`, by row."""
    ends = rows.offsets.to_numpy()
    # A sliced map shares its keys with the whole batch: offsets need not begin at 0.
    keys = rows.keys.slice(ends[0], ends[-1] - ends[0])
    unknown = np.flatnonzero(np.asarray(pc.invert(pc.is_in(keys, value_set=known))))
    if not len(unknown):
        return {}
    row = np.repeat(np.arange(len(rows)), np.diff(ends))[unknown]
    items = rows.items.slice(ends[0], ends[-1] - ends[0]).take(pa.array(unknown))
    others: dict[int, dict[str, str | None]] = {}
    for place, key, item in zip(row.tolist(), keys.take(pa.array(unknown)), items, strict=True):
        others.setdefault(place, {})[key.as_py()] = item.as_py()
    return others


def snapshot_changes(table: TableName, texts: pa.RecordBatch, place: SnapshotPlace) -> pa.RecordBatch:
    """Return an initial snapshot's rows in `CHANGES_SCHEMA`.

    Args:
        table: the table.
        texts: its columns as PostgreSQL prints them.
        place: the position of the rows.
    """
    known = {
        "schema": table.schema,
        "table": table.name,
        "op": Op.READ.value,
        "_commit_lsn": place.lsn,
        "_commit_seq": place.sequence,
    }
    columns = _repeat(known, CHANGES_SCHEMA, len(texts))
    named = zip(texts.schema.names, texts.columns, strict=True)
    after = as_maps({name: column.cast(pa.string()) for name, column in named})
    columns[CHANGES_SCHEMA.get_field_index("after")] = after
    return pa.RecordBatch.from_arrays(columns, schema=CHANGES_SCHEMA)


def _repeat(known: Mapping[str, object], fields: Iterable[pa.Field], rows: int) -> list[pa.Array]:
    """Return the columns of `rows` equal rows; NULL where no value is known."""
    return [pa.repeat(pa.scalar(known.get(field.name), field.type), rows) for field in fields]


def emptied(tables: Sequence[TableName], place: SnapshotPlace) -> pa.RecordBatch:
    """Return a `truncate` of each table, which comes before an attempt's rows and voids earlier ones."""
    known = {"op": Op.TRUNCATE.value, "_commit_lsn": place.lsn, "_commit_seq": place.emptied}
    rows = [{"schema": table.schema, "table": table.name, **known} for table in tables]
    return pa.RecordBatch.from_pylist(rows, schema=CHANGES_SCHEMA)
