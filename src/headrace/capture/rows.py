"""How do the changes of one table become rows of its own columns, typed, as Spark's users know them?

Pure: the `changes` envelope in, one batch of the table's columns and of what is known of each change out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.envelope import attempts
from headrace.capture.unchanged import Look
from headrace.errors import HeadraceError, Kind
from headrace.model import CHANGES_SCHEMA, Lsn, Op, TableName
from headrace.model.types import spark_type
from headrace.model.value_type import ValueType
from headrace.model.values import ColumnTexts, column_texts, convert_all, convert_fitting, rescued

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]

Absence = tuple[Lsn, frozenset[str]]
"""The columns that the log lacks in transactions that commit at a position (bytes) or later."""

CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete", "truncate")
"""The values of `_change_type`, in the words of Delta's change data feed; `truncate` is ours."""
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
"""What stands behind a table's columns, their names behind the prefix."""
RESCUED = pa.field("rescued_data", pa.string())
"""Stands behind these where it is asked for: JSON of what the table's columns, as planned, cannot hold."""


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """The position of rows that were read, not followed: right before the first change behind them.

    Whoever keeps the row with the greatest (`_commit_lsn`, `_commit_seq`) of each key has the truth, also
    where the reading had to begin again: a `truncate` takes away what an earlier attempt showed, the rows
    come behind it, and the stream behind them.

    Attributes:
        start: the first place in the log (bytes) whose commits the rows do not show.
        attempt: from 1; greater where the reading began again.
    """

    start: Lsn
    attempt: int

    @property
    def lsn(self) -> Lsn:
        """As `_commit_lsn`: less than that of any change behind the rows."""
        return self.start - 1

    @property
    def sequence(self) -> int:
        """As `_commit_seq` of the rows."""
        return 2 * self.attempt

    @property
    def emptied(self) -> int:
        """As `_commit_seq` of the `truncate` before the rows."""
        return self.sequence - 1


@dataclass(frozen=True)
class RowShape:
    """What a table's rows look like.

    Attributes:
        table: whose rows.
        columns: their names and types, in order.
        key: the columns that tell rows apart; empty where nothing does.
        prefix: what the names of the other columns begin with.
        pre_images: whether an update is also shown as it was before.
        rescues: whether values that have no place in `columns` are kept, as text, in a column of their own.
        left_out: the columns that are left out on purpose; their values are not kept.
    """

    table: TableName
    columns: Mapping[str, ValueType]
    key: tuple[str, ...]
    prefix: str = "_"
    pre_images: bool = False
    rescues: bool = False
    left_out: frozenset[str] = frozenset()

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, then the metadata."""
        own = [pa.field(name, kind.arrow) for name, kind in self.columns.items()]
        return pa.schema([*own, *(field.with_name(self.prefix + field.name) for field in self.metadata)])

    @property
    def metadata(self) -> tuple[pa.Field, ...]:
        """What stands behind the table's columns."""
        return (*METADATA, RESCUED) if self.rescues else METADATA

    @property
    def ddl(self) -> str:
        """The same in Spark's words."""
        return ", ".join(f"{_quoted(field.name)} {spark_type(field.type)}" for field in self.schema)

    def rows(
        self, changes: pa.RecordBatch, look: Look | None = None, absences: Sequence[Absence] = ()
    ) -> pa.RecordBatch:
        """Each change as the rows that it is; all `changes` must be of the table.

        An update that changes the key is a `delete` of the old one and an `insert`, so that whoever keeps
        rows by their key forgets the old one. A deleted row holds what the log says of it: its key, or with
        REPLICA IDENTITY FULL all of it. A `truncate` holds nothing. Values that the log left out because they
        did not change are looked up; those that are not found are NULL, and `unchanged` names their columns.

        Args:
            changes: in `CHANGES_SCHEMA`.
            look: finds what the log left out; None: nothing is looked up.
            absences: which columns the table did not have; they are NULL, and not looked up.

        Returns:
            A batch with `schema`.

        Raises:
            HeadraceError: VALUE, where a text is no value of its column's type or does not fit into it;
                SCHEMA_CHANGED, where a partition alone was truncated; what `look` raises.
        """
        self._check_truncated(changes)
        sides = _Sides(changes, tuple(self.columns), _absent(changes, absences))
        if look is not None and self.key:
            sides.complete(self.key, look)
        change, code, is_old = self._listed(changes, sides)
        texts = {name: sides.texts(name, change, code, is_old) for name in self.columns}
        values, kept_apart = self._converted(texts, lambda: self._without_place(changes, change, is_old))
        types = pa.array(CHANGE_TYPES, pa.string()).take(pa.array(code))
        kept = changes.select(["_commit_lsn", "_commit_seq", "_commit_timestamp", "_xid"])
        taken = kept.take(pa.array(change)).columns
        is_read, attempt = (column.take(pa.array(change)) for column in attempts(changes))
        unchanged = sides.unchanged().take(pa.array(change, mask=is_old))
        metadata = [types, *taken, is_read, attempt, unchanged, *kept_apart]
        return pa.RecordBatch.from_arrays([*values, *metadata], schema=self.schema)

    def _converted(
        self,
        texts: Mapping[str, pa.StringArray],
        besides: Callable[[], Mapping[int, Mapping[str, str | None]]],
    ) -> tuple[list[pa.Array], list[pa.Array]]:
        """The typed columns; and, where asked for, the one of what does not fit and what is `besides`."""
        if not self.rescues:
            kinds = self.columns.items()
            return [convert_all(kind, texts[name], f"{self.table}.{name}") for name, kind in kinds], []
        found = {
            name: (texts[name], convert_fitting(kind, texts[name], f"{self.table}.{name}"))
            for name, kind in self.columns.items()
        }
        rows = len(next(iter(texts.values())))
        return [one.values for _, one in found.values()], [rescued(found, rows, besides())]

    def _without_place(
        self, changes: pa.RecordBatch, change: _Numbers, is_old: _Mask
    ) -> dict[int, dict[str, str | None]]:
        """Of each row that comes out, the texts of columns that are new since `columns` was planned."""
        known = pa.array([*self.columns, *self.left_out], pa.string())
        sides = [_others(changes.column(side), known) for side in ("after", "before")]
        if not any(sides):
            return {}
        places = enumerate(zip(change.tolist(), is_old.tolist(), strict=True))
        found = ((row, sides[old].get(place)) for row, (place, old) in places)
        return {row: texts for row, texts in found if texts is not None}

    def check_columns(self, changes: pa.RecordBatch) -> None:
        """Refuse changes of a table that has more columns than it had when it was looked at.

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

    def _check_truncated(self, changes: pa.RecordBatch) -> None:
        """A TRUNCATE has the name of the partition that it emptied."""
        truncated = changes.filter(pc.equal(changes.column("op"), Op.TRUNCATE.value))
        for schema, table in zip(truncated.column("schema"), truncated.column("table"), strict=True):
            emptied = TableName(schema.as_py(), table.as_py())
            if emptied != self.table:
                raise HeadraceError(
                    Kind.SCHEMA_CHANGED,
                    f"the partition {emptied} of {self.table} was truncated: rows cannot say which are gone",
                    "Start with a new checkpoint and slot, or follow the table with envelope=changes.",
                )

    def snapshot(self, values: pa.RecordBatch, place: SnapshotPlace) -> pa.RecordBatch:
        """Rows that the table held when the slot began, as inserts.

        Args:
            values: the table's columns, in order.
            place: which position the rows have.
        """
        known = {
            "change_type": CHANGE_TYPES[_INSERT],
            "commit_lsn": place.lsn,
            "commit_seq": place.sequence,
            "snapshot": True,
            "snapshot_attempt": place.attempt,
        }
        metadata = [
            pa.repeat(pa.scalar(known.get(field.name), field.type), values.num_rows)
            for field in self.metadata
        ]
        return pa.RecordBatch.from_arrays([*values.columns, *metadata], schema=self.schema)

    def snapshot_of_texts(self, texts: pa.RecordBatch, place: SnapshotPlace) -> pa.RecordBatch:
        """As `snapshot`, of columns as PostgreSQL prints them; what does not fit is kept apart.

        Args:
            texts: the table's columns, in order.
            place: which position the rows have.
        """
        columns = {name: one.cast(pa.string()) for name, one in zip(self.columns, texts.columns, strict=True)}
        values, kept_apart = self._converted(columns, dict)
        own = pa.RecordBatch.from_arrays(values, names=list(self.columns))
        rows = self.snapshot(own, place)
        last = rows.num_columns - len(kept_apart)
        return pa.RecordBatch.from_arrays([*rows.columns[:last], *kept_apart], schema=self.schema)

    def _listed(self, changes: pa.RecordBatch, sides: _Sides) -> tuple[_Numbers, _Numbers, _Mask]:
        """For each row that comes out: its change, its type, and whether it is the old side of it."""
        op = changes.column("op")
        is_update = sides.is_update
        moved = is_update & sides.differ(self.key) if is_update.any() else is_update
        doubled = is_update if self.pre_images else moved
        change = np.repeat(np.arange(len(op)), 1 + doubled)
        is_first = np.ones(len(change), np.bool_)
        is_first[1:] = change[1:] != change[:-1]
        is_old = is_first & doubled[change]
        code = np.full(len(change), _POSTIMAGE, np.int64)
        for kind, always in _ALWAYS.items():
            code[np.asarray(pc.equal(op, kind.value))[change]] = always
        code[is_old] = np.where(moved[change[is_old]], _DELETE, _PREIMAGE)
        code[moved[change] & ~is_old] = _INSERT
        return change, code, is_old | (code == _DELETE)


class _Sides:
    """Both sides of changes, column by column; the old one is looked at only where it is needed."""

    def __init__(self, changes: pa.RecordBatch, names: tuple[str, ...], absent: Mapping[str, _Mask]) -> None:
        self._changes = changes
        self._names = names
        self._absent = absent

    @cached_property
    def is_update(self) -> _Mask:
        """Which changes are updates."""
        return np.asarray(pc.equal(self._changes.column("op"), Op.UPDATE.value))

    @cached_property
    def _before(self) -> Mapping[str, ColumnTexts]:
        return column_texts(self._changes.column("before"), self._names)

    @cached_property
    def _after(self) -> dict[str, ColumnTexts]:
        found = dict(column_texts(self._changes.column("after"), self._names))
        for name, rows in self._absent.items():
            texts, known = found[name].texts, np.asarray(found[name].known)
            found[name] = ColumnTexts(texts, pa.array(known | rows))
        return found

    def _gaps(self) -> dict[str, _Mask]:
        """Of each column with any, the updates whose new value the log does not hold."""
        if not self.is_update.any():
            return {}
        gaps = {name: self.is_update & ~np.asarray(self._after[name].known) for name in self._names}
        return {name: gap for name, gap in gaps.items() if gap.any()}

    def complete(self, key: Sequence[str], look: Look) -> None:
        """Fill the gaps with what `look` finds for the rows' keys."""
        gaps = self._gaps()
        if not gaps:
            return
        places = np.flatnonzero(np.logical_or.reduce(list(gaps.values())))
        texts = [self._after[name].texts.take(pa.array(places)).to_pylist() for name in key]
        found = look(list(zip(*texts, strict=True)), tuple(gaps))
        at = np.array(sorted(found), np.int64)
        for number, (name, gap) in enumerate(gaps.items()):
            mine = at[gap[places[at]]]
            values = [found[place][number] for place in mine.tolist()]
            self._after[name] = _filled(self._after[name], places[mine], values)

    def unchanged(self) -> pa.ListArray:
        """For each change, the columns whose new values are not known; NULL where there is none."""
        gaps = self._gaps()
        if not gaps:
            return pa.nulls(len(self._changes), _NAMES)
        some = np.flatnonzero(np.logical_or.reduce(list(gaps.values())))
        names = {int(row): [name for name, gap in gaps.items() if gap[row]] for row in some}
        return pa.array([names.get(row) for row in range(len(self._changes))], _NAMES)

    def differ(self, names: tuple[str, ...]) -> _Mask:
        """Whether any of the columns `names` is known on both sides and is not the same."""
        found = np.zeros(len(self._changes), np.bool_)
        for name in names:
            before, after = self._before[name], self._after[name]
            known = pc.and_(before.known, after.known)
            same = pc.equal(before.texts, after.texts).fill_null(False)  # noqa: FBT003
            found |= np.asarray(pc.and_not(known, same))
        return found

    def texts(self, name: str, change: _Numbers, code: _Numbers, is_old: _Mask) -> pa.StringArray:
        """One column of the rows that come out."""
        if not is_old.any():
            after = self._after[name].texts
            return after if len(change) == len(after) else after.take(pa.array(change))
        both = pa.concat_arrays([self._after[name].texts, self._before[name].texts])
        return both.take(pa.array(change + len(self._changes) * is_old, mask=code == _TRUNCATE))


def _absent(changes: pa.RecordBatch, absences: Sequence[Absence]) -> dict[str, _Mask]:
    """Of each column that some of the changes lack because their table did, which of them."""
    if not absences:
        return {}
    steps = np.array([lsn for lsn, _ in absences], np.int64)
    step = np.searchsorted(steps, changes.column("_commit_lsn").to_numpy(), side="right") - 1
    found: dict[str, _Mask] = {}
    for number, (_, missing) in enumerate(absences):
        for name in missing:
            found[name] = found.get(name, np.zeros(len(changes), np.bool_)) | (step == number)
    return found


def _others(rows: pa.MapArray, known: pa.StringArray) -> dict[int, dict[str, str | None]]:
    """What the maps hold of columns that are not `known`, by row."""
    ends = rows.offsets.to_numpy()
    keys = rows.keys.slice(ends[0], ends[-1] - ends[0])
    unknown = np.flatnonzero(np.asarray(pc.invert(pc.is_in(keys, value_set=known))))
    if not len(unknown):
        return {}
    row = np.repeat(np.arange(len(rows)), np.diff(ends))[unknown]
    items = rows.items.slice(ends[0], ends[-1] - ends[0]).take(pa.array(unknown))
    found: dict[int, dict[str, str | None]] = {}
    for place, key, item in zip(row.tolist(), keys.take(pa.array(unknown)), items, strict=True):
        found.setdefault(place, {})[key.as_py()] = item.as_py()
    return found


def snapshot_changes(table: TableName, texts: pa.RecordBatch, place: SnapshotPlace) -> pa.RecordBatch:
    """Rows that a table held when the slot began, in `CHANGES_SCHEMA`.

    Args:
        table: whose.
        texts: its columns as PostgreSQL prints them.
        place: which position the rows have.
    """
    rows, width = texts.num_rows, texts.num_columns
    known = {
        "schema": table.schema,
        "table": table.name,
        "op": Op.READ.value,
        "_commit_lsn": place.lsn,
        "_commit_seq": place.sequence,
    }
    columns = [pa.repeat(pa.scalar(known.get(field.name), field.type), rows) for field in CHANGES_SCHEMA]
    behind = pa.concat_arrays([column.cast(pa.string()) for column in texts.columns])
    by_row = np.arange(rows * width).reshape(width, rows).T.ravel()
    names = pa.array(texts.schema.names, pa.string()).take(pa.array(np.tile(np.arange(width), rows)))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    after = pa.MapArray.from_arrays(offsets, names, behind.take(pa.array(by_row)))
    columns[CHANGES_SCHEMA.get_field_index("after")] = after
    return pa.RecordBatch.from_arrays(columns, schema=CHANGES_SCHEMA)


def emptied(tables: Sequence[TableName], place: SnapshotPlace) -> pa.RecordBatch:
    """What stands before the rows of an attempt: that earlier ones of `tables` count no more."""
    known = {"op": Op.TRUNCATE.value, "_commit_lsn": place.lsn, "_commit_seq": place.emptied}
    rows = [{"schema": table.schema, "table": table.name, **known} for table in tables]
    return pa.RecordBatch.from_pylist(rows, schema=CHANGES_SCHEMA)


def _filled(column: ColumnTexts, places: _Numbers, values: Sequence[str | None]) -> ColumnTexts:
    """`column` with `values` at `places`."""
    source, known = np.arange(len(column.texts)), np.array(column.known)
    source[places] = len(source) + np.arange(len(places))
    known[places] = True
    texts = pa.concat_arrays([column.texts, pa.array(values, pa.string())]).take(pa.array(source))
    return ColumnTexts(texts, pa.array(known))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
