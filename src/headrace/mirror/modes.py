"""What the lake holds of a table: its rows as they are, every version of each row, or every change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from headrace.capture.rows import METADATA, SnapshotPlace
from headrace.mirror import versions
from headrace.mirror.columns import PREFIX, extended, fitted, replaced
from headrace.mirror.contents import content_changes, without
from headrace.mirror.digests import key_hashes
from headrace.mirror.lake import Lake, LakeTable, look
from headrace.mirror.net_changes import REMOVAL, Ending, Position, Reduced, completed, net_changes
from headrace.model.lsn import Lsn

if TYPE_CHECKING:
    import datetime as dt


_UNCHANGED = "_unchanged"
Rows = Iterable[pa.RecordBatch]
_Batch = TypeVar("_Batch", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True)
class LoadMoment:
    """When rows were read.

    Attributes:
        start: the first position in the log (bytes) whose commits they do not show.
        time: a moment right before.
    """

    start: Lsn
    time: dt.datetime


class Mode(ABC):
    """What the lake holds of a table.

    Attributes:
        fields: the columns that the mirror adds to the table's.
        keeps: whether columns that the database no longer has stay in the lake.
    """

    fields: tuple[pa.Field, ...]
    keeps: bool

    @property
    def names(self) -> frozenset[str]:
        """The names of `fields`."""
        return frozenset(field.name for field in self.fields)

    @abstractmethod
    def loaded(self, batch: _Batch, moment: LoadMoment) -> _Batch:
        """Return rows that were read from the database with `fields`."""

    def kept(self, old: Rows, moment: LoadMoment, key: Sequence[str], loaded: Rows) -> Rows:  # noqa: ARG002
        """Return what stays of the lake's rows where a table was loaded again.

        Args:
            old: the lake's rows.
            moment: of the load.
            key: the key's columns; none where other columns were the key before.
            loaded: the keys that were loaded.
        """
        return ()

    def renamed(self, batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:  # noqa: ARG002
        """Return the lake's rows with what they say of columns under the columns' new names."""
        return batch

    @abstractmethod
    def present(self, batch: pa.RecordBatch) -> pa.Array:
        """Tell of each of the lake's rows whether the database has it now."""

    @abstractmethod
    def apply(
        self, lake: Lake, table: LakeTable, key: Sequence[str], rows: pa.Table, position: Position
    ) -> int:
        """Bring changes into the lake, in one commit; return the size (bytes) of what was read for them.

        That is what an update left out because it did not change, and the lake's row has.

        Args:
            lake: the lake.
            table: its table, whose columns are those of `rows`, and dropped ones.
            key: the key's columns.
            rows: the changes, in the schema of a `RowShape` with the prefix `PREFIX`, by ascending position.
            position: the last change that the table has then.
        """


class KeyedMode(Mode):
    """Rows that are found by their key.

    Attributes:
        ending: what becomes of a row that is deleted, or replaced.
    """

    ending: Ending

    def present(self, batch: pa.RecordBatch) -> pa.Array:
        """Tell which rows have not ended."""
        return self.ending.is_live(batch)

    @abstractmethod
    def reduced(self, rows: pa.Table, key: Sequence[str]) -> Reduced:
        """Reduce changes to what they leave.

        Args:
            rows: the changes, at least one, and complete.
            key: the key's columns.
        """

    def apply(
        self, lake: Lake, table: LakeTable, key: Sequence[str], rows: pa.Table, position: Position
    ) -> int:
        """Merge what the changes leave; where the table was emptied, rewrite it."""
        # What an update left out is in the lake's row, or in an earlier change of this batch.
        whole = completed(rows, key, lambda keys, columns: look(table, key, keys, columns, self.ending))
        found = self.reduced(whole, key)
        if found.emptied is None:
            # In one merge: what ends and what begins must not be seen one without the other.
            table.merge(found.rows, key, position, self.ending)
        else:
            # A TRUNCATE ends every row, so that each file is written again anyway.
            old = found.remaining(table.rows(), key, self.ending)
            write_rows(lake, table, found.written.to_batches(), position, old)
        return int(whole.nbytes - rows.nbytes)


class CurrentMode(KeyedMode):
    """The rows as they are."""

    fields: tuple[pa.Field, ...] = ()
    keeps = False
    ending = REMOVAL

    def loaded(self, batch: _Batch, _: LoadMoment) -> _Batch:
        """Return the rows."""
        return batch

    def reduced(self, rows: pa.Table, key: Sequence[str]) -> Reduced:
        """Reduce the changes to the newest of each key."""
        return net_changes(rows, key)


class ContentMode(CurrentMode):
    """The rows as they are, of a table without a key."""

    def apply(
        self, lake: Lake, table: LakeTable, _: Sequence[str], rows: pa.Table, position: Position
    ) -> int:
        """Append what came; where rows went, write the table without them."""
        found = content_changes(rows)
        # Where nothing went, the files that are there stay as they are.
        adds = not found.emptied and not len(found.removed)
        old = () if adds or found.emptied else without(table.name, table.rows(), found.removed)
        write_rows(lake, table, found.added.to_batches(), position, old, adds=adds)
        return 0


class SoftDeleteMode(CurrentMode):
    """The rows as they are, and those that were deleted as they last were."""

    fields = versions.DELETION_FIELDS
    ending = versions.DELETION

    def loaded(self, batch: _Batch, _: LoadMoment) -> _Batch:
        """Return the rows, which live."""
        return with_fields(batch, self.fields, {versions.IS_DELETED: False})

    def kept(self, old: Rows, moment: LoadMoment, key: Sequence[str], loaded: Rows) -> Rows:
        """Yield the lake's rows whose key was not loaded, deleted by now; none where the key is another.

        Keys are compared by hashes of 64 bits, which are exact for one integer.
        """
        if not key:
            return
        # Hashes in place of keys: all keys of a large table would not fit into memory as Python's values.
        keys = (key_hashes(batch, key) for batch in loaded)
        live = np.sort(np.concatenate([np.empty(0, np.uint64), *keys]))
        time = pa.scalar(moment.time, versions.DELETION_FIELDS[1].type)
        for batch in old:
            wanted = key_hashes(batch, key)
            is_live = np.searchsorted(live, wanted, "right") > np.searchsorted(live, wanted)
            yield versions.DELETION.ended(batch.filter(pa.array(~is_live)), versions.end_at(time))

    def reduced(self, rows: pa.Table, key: Sequence[str]) -> Reduced:
        """Reduce the changes to the last state of each key that a commit showed."""
        return versions.row_deletions(rows, key)


class HistoryMode(KeyedMode):
    """Every version of each row: from when to when it was in the database."""

    fields = versions.FIELDS
    keeps = True
    ending = versions.ENDING

    def loaded(self, batch: _Batch, moment: LoadMoment) -> _Batch:
        """Return the rows as versions that begin now."""
        # Right before the first commit that the rows do not show.
        values = {versions.VALID_FROM: moment.time, versions.FROM_LSN: moment.start - 1}
        return with_fields(batch, self.fields, values | {versions.IS_CURRENT: True})

    def kept(self, old: Rows, moment: LoadMoment, *_: object) -> Rows:
        """Return all versions, ended by now."""
        end = versions.end_of(pa.scalar(moment.time, versions.FIELDS[0].type), moment.start - 1)
        return (self.ending.ended(batch, end) for batch in old)

    def reduced(self, rows: pa.Table, key: Sequence[str]) -> Reduced:
        """End the versions that were current, and begin new ones."""
        return versions.row_versions(rows, key).reduced


class ChangesMode(Mode):
    """Every change, as a row that says what happened."""

    fields = tuple(
        field.with_name(f"_{field.name}") for field in METADATA if field.name != "snapshot_attempt"
    )
    keeps = True

    def loaded(self, batch: _Batch, moment: LoadMoment) -> _Batch:
        """Return the rows as inserts, right before the first change after them."""
        return self._read(batch, moment, "insert", SnapshotPlace(moment.start, 1).sequence)

    def kept(self, old: Rows, moment: LoadMoment, *_: object) -> Rows:
        """Yield all changes, then a `truncate`: the rows that were read follow it."""
        schema = None
        for batch in old:
            schema = batch.schema
            yield batch
        # An empty table needs no `truncate`: nobody has read rows of it.
        if schema is not None:
            nothing = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
            emptied = self._read(nothing, moment, "truncate", SnapshotPlace(moment.start, 1).emptied)
            yield fitted(emptied, schema)

    def renamed(self, batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
        """Return changes whose `_unchanged` has the columns' new names."""
        unchanged = batch.column(_UNCHANGED)
        if not names or unchanged.null_count == len(batch):
            return batch
        lists = [
            None if absent is None else [names.get(name, name) for name in absent]
            for absent in unchanged.to_pylist()
        ]
        return replaced(batch, {_UNCHANGED: pa.array(lists, unchanged.type)})

    def present(self, batch: pa.RecordBatch) -> pa.Array:
        """Tell that changes are past."""
        return pa.repeat(pa.scalar(value=False), len(batch))

    def apply(
        self, lake: Lake, table: LakeTable, _: Sequence[str], rows: pa.Table, position: Position
    ) -> int:
        """Append the changes."""
        renamed = rows.rename_columns([_public(name) for name in rows.column_names])
        write_rows(lake, table, renamed.to_batches(), position, adds=True)
        return 0

    def _read(self, batch: _Batch, moment: LoadMoment, kind: str, sequence: int) -> _Batch:
        values = {
            "_change_type": kind,
            "_commit_lsn": moment.start - 1,
            "_commit_seq": sequence,
            "_commit_timestamp": moment.time,
            "_snapshot": True,
        }
        return with_fields(batch, self.fields, values)


MODES: Mapping[str, Mode] = {
    "current": CurrentMode(),
    "content": ContentMode(),
    "soft_delete": SoftDeleteMode(),
    "history": HistoryMode(),
    "changes": ChangesMode(),
}


def _public(name: str) -> str:
    return f"_{name.removeprefix(PREFIX)}" if name.startswith(PREFIX) else name


def with_fields(rows: _Batch, fields: Sequence[pa.Field], values: Mapping[str, Any]) -> _Batch:
    """Return `rows` with `fields`, each with one value for all rows, NULL where none is given."""
    rows = rows.drop_columns([field.name for field in fields if field.name in rows.schema.names])
    return extended(rows, {field.name: pa.scalar(values.get(field.name), field.type) for field in fields})


def write_rows(
    lake: Lake, table: LakeTable, new: Rows, position: Position, old: Rows = (), *, adds: bool = False
) -> None:
    """Make `old` and `new` all that a table consists of, or add them to its rows, in one commit."""
    name, schema = table.name, table.schema
    files = lake.write(name, schema, old)
    files += lake.write(name, schema, (fitted(batch, schema) for batch in new))
    lake.commit(name, schema, files, position, table, adds=adds)
