"""Read what the database says of mirrored tables: columns, key, defaults of added columns, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from headrace.capture.rows import RowShape
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.types import RowType
from headrace.config.mirror import MirroredTables
from headrace.errors import HeadraceError
from headrace.mirror.columns import COLUMN, KEY, MASK, NULLED, PREFIX, TYPE
from headrace.mirror.lake_types import explain_unfit, in_types
from headrace.mirror.masks import Masks
from headrace.mirror.modes import MODES, Mode
from headrace.mirror.partition_bounds import Leaves
from headrace.mirror.partitions import with_partitions
from headrace.model.names import TableName
from headrace.model.value_type import ValueType
from headrace.model.values import convert_all
from headrace.snapshot.reading import RowSelection

LOCK_SECONDS = 3.0
"""So long a mirror waits for somebody's lock on a table: then that table waits, and it is said for whom."""
SNAPSHOT_SECONDS = 30.0
"""So long a load waits for open transactions, also while other tables stand: then its tables wait."""
_NOTHING = Fingerprint()
_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """A table as the database has it now.

    Attributes:
        relation: its oid; a table that is dropped and created again has another.
        row_type: its columns, in the types that they are read in.
        key: the columns that identify its rows.
        sent: the columns that the log carries.
        columns: the mirrored columns: those of them that the file does not leave out.
        numbers: the database's number of each column, which no later column gets.
        defaults: for a column that was added with a default, the text of the value of older rows.
        part: what the file says of it.
        has_full_identity: whether the log has whole rows before their change (REPLICA IDENTITY FULL).
        catalog: what its rows' values depend on: all columns, partitions, labels of enums, rewrites.
        masks: what the lake has in the place of some columns' values.
        lake_types: the type in the lake of each column that has another one than that in which it is read.
        leaves: the partitions that hold its rows; none: it has no partitions.
        problem: what keeps its changes from being understood; None: nothing.
    """

    relation: int
    row_type: RowType
    key: tuple[str, ...]
    columns: tuple[str, ...]
    numbers: Mapping[str, int]
    defaults: Mapping[str, str]
    part: MirroredTables
    has_full_identity: bool = False
    catalog: Fingerprint = _NOTHING
    masks: Masks = field(default_factory=Masks)
    problem: HeadraceError | None = None
    sent: frozenset[str] = frozenset()
    lake_types: Mapping[str, ValueType] = field(default_factory=dict)
    leaves: Leaves = field(default_factory=dict)

    @property
    def columns_by_number(self) -> dict[int, tuple[str, ValueType]]:
        """The name and type of each column of its key that the lake has with the database's values."""
        return {
            self.numbers[name]: (name, self.row_type.columns[name])
            for name in self.key
            if name in self.columns and name not in self.masks.kinds and name not in self.lake_types
        }

    @property
    def keeps_past(self) -> bool:
        """Whether the lake has more than rows as they are: former versions, changes or deleted rows."""
        return self.part.mode != "current" or self.part.soft_delete

    @property
    def name(self) -> TableName:
        """The table's name."""
        return self.row_type.table

    @property
    def schema(self) -> pa.Schema:
        """Its mirrored columns, with the metadata that identifies them."""
        return pa.schema([self._field(name) for name in self.columns])

    @property
    def read_schema(self) -> pa.Schema:
        """Its mirrored columns in the types that they are read in."""
        return pa.schema([(name, kind.arrow) for name, kind in self._read_types.items()])

    @property
    def _read_types(self) -> dict[str, ValueType]:
        return {name: self.row_type.columns[name] for name in self.columns}

    def in_lake(self, rows: _Rows, tell: Callable[[str], object] = lambda _: None) -> _Rows:
        """Return rows with the values that the lake has, of rows as they were read.

        Args:
            rows: the rows.
            tell: is told which values did not fit, and are NULL.
        """
        return in_types(self.lake_types, self.masks.apply(rows), self.name, self.key, tell)

    @property
    def in_texts(self) -> MirroredTable:
        """The table with texts in all of its columns, which any value fits."""
        texts = {name: kind.as_text for name, kind in self.row_type.columns.items()}
        return replace(self, row_type=replace(self.row_type, columns=texts), lake_types={})

    def explain_unfit(self, texts: pa.RecordBatch) -> HeadraceError | None:
        """Return the error of the first rows of `in_texts` with a value that does not fit; None: all fit."""
        return explain_unfit(texts, self._read_types, self.name, self.key)

    def _field(self, name: str) -> pa.Field:
        kind = self.lake_types.get(name, self.row_type.columns[name])
        is_key = name in self.key and self.part.mode != "changes"
        values = {
            COLUMN: str(self.numbers[name]).encode(),
            TYPE: kind.name.encode(),
            KEY: str(self.key.index(name)).encode() if is_key else None,
            MASK: self.masks.described(name),
            NULLED: b"true" if self.part.on_value.get(name) == "null" else None,
        }
        known = {key: value for key, value in values.items() if value is not None}
        return pa.field(name, kind.arrow, metadata=known)

    @property
    def is_known_by_content(self) -> bool:
        """Whether its rows are told apart by all of their values, because it has no key."""
        return self.part.mode == "current" and not self.key

    @property
    def rules(self) -> Mode:
        """What the lake holds of it, as code."""
        if self.part.soft_delete:
            return MODES["soft_delete"]
        return MODES["content" if self.is_known_by_content else self.part.mode]

    @property
    def lake_schema(self) -> pa.Schema:
        """The lake table's columns: its own, then those of the mode; and how they partition it."""
        return with_partitions(pa.schema([*self.schema, *self.rules.fields]), self.part.partitions)

    def selection(self, *conditions: str) -> RowSelection:
        """Return what is read of it: the mirrored columns, of the mirrored rows that meet some conditions."""
        where = () if self.part.where is None else (self.part.where,)
        return RowSelection(self.row_type, self.columns, (*conditions, *where))

    @property
    def shape(self) -> RowShape:
        """How changes become rows."""
        left_out = self.row_type.columns.keys() - set(self.columns)
        return RowShape(
            self.name,
            self._read_types,
            self.key,
            PREFIX,
            pre_images=not self.key,  # only its former values tell which row was changed
            left_out=frozenset(left_out),
            inserts_are_whole=True,  # a table is read again where they are not
        )

    def default(self, column: str) -> pa.Scalar:
        """Return the value of `column` in the lake's rows that are older than it."""
        texts = pa.array([self.defaults.get(column)], pa.string())
        read = convert_all(self.row_type.columns[column], texts, f"{self.name}.{column}")
        return self.in_lake(pa.RecordBatch.from_arrays([read], [column])).column(0)[0]
