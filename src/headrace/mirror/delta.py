"""Write Delta tables in this process, without a JVM.

A table's schema has the columns of the database in the mirror's other files, with metadata that say how it is
partitioned. The Delta table also has the columns that transforms of partitions need.

Every commit of a table holds the position up to which it has the database's changes, so a change that is
repeated is recognised, whatever became of checkpoints. A commit that finds another writer's fails.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema, TableFeatures
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from headrace.config.mirror import is_url
from headrace.errors import HeadraceError, Kind
from headrace.mirror.columns import has_part
from headrace.mirror.delta_commits import committing, find_other_commit, read_position
from headrace.mirror.delta_engine import DeltaEngine, LocalEngine
from headrace.mirror.files import TARGET_BYTES, DataFile, delete_files
from headrace.mirror.keys import KeyIndex
from headrace.mirror.lake import LakeTable, check_unwritten, folder_name
from headrace.mirror.merging import merge_of
from headrace.mirror.net_changes import REMOVAL, Ending, Position
from headrace.mirror.partition_files import write_partitions
from headrace.mirror.partitions import derived_fields, derived_from, partitions_of, with_derived
from headrace.model.names import TableName

_READING = {"batch_size": 1 << 12, "batch_readahead": 1}
"""The library's own numbers are for narrow rows: large values of millions of rows would be read ahead."""


class DeltaLake:
    """Delta tables in a folder or an object store: each in SCHEMA/TABLE.

    Args:
        location: the folder, or a URL of an object store, whose credentials stand in the environment.
        file_bytes: the size of data files, about.
        engine: does the heavy work; None: this process.

    Raises:
        HeadraceError: CONFIG: no reader would find the folder.
    """

    errors: tuple[type[Exception], ...] = (DeltaError, OSError)

    def __init__(
        self, location: str, file_bytes: int = TARGET_BYTES, engine: DeltaEngine | None = None
    ) -> None:
        self.location = location.rstrip("/")
        if not is_url(location) and "%" in str(Path(location).absolute()):
            raise HeadraceError(
                Kind.CONFIG,
                f"location: {location} has a % in its path, which readers of Delta tables take for the "
                "beginning of an encoded character",
                "Choose a folder without one.",
            )
        self.file_bytes = file_bytes
        self._engine: DeltaEngine = LocalEngine() if engine is None else engine

    def path(self, table: TableName) -> str:
        """Return where `table` is."""
        parts = map(folder_name, (table.schema, table.name)) if table.schema else (table.name,)
        return "/".join([self.location, *parts])

    def folder(self, table: TableName) -> FileSystem:
        """Return the folder of `table`, for its files; it is made where it is missing."""
        path = self.path(table)
        if is_url(path):
            return PyFileSystem(DeltaStorageHandler(path))
        Path(path).mkdir(parents=True, exist_ok=True)
        return SubTreeFileSystem(path, LocalFileSystem())

    def write(self, table: TableName, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write rows to files in the folder of `table`; no commit names them yet.

        Raises:
            HeadraceError: VALUE: a value cannot be a partition's; CONFIG: there are too many partitions.
            OSError: the folder cannot be written.
        """
        partitions = partitions_of(schema)
        complete = _declared(schema)
        rows = (
            pa.RecordBatch.from_arrays(with_derived(batch, partitions, table).columns, schema=complete)
            for batch in batches
        )
        return write_partitions(
            table,
            self.folder(table),
            complete,
            rows,
            partition_by=[partition.name for partition in partitions],
            target_bytes=self.file_bytes,
        )

    def remove(self, table: TableName, files: Iterable[DataFile]) -> None:
        """Remove files that `write` wrote and no commit names, as far as that is possible."""
        delete_files(self.folder(table), [file.name for file in files])

    def open(self, table: TableName) -> DeltaLakeTable | None:
        """Open the lake's table; None where there is none."""
        path = self.path(table)
        if not DeltaTable.is_deltatable(path):
            return None
        return DeltaLakeTable(table, DeltaTable(path), self._engine)

    def commit(
        self,
        table: TableName,
        schema: pa.Schema,
        files: Sequence[DataFile],
        position: Position,
        after: LakeTable | None = None,
        *,
        adds: bool = False,
    ) -> None:
        """Make `files`, which lie in the table's folder, all that the table consists of, or add them to it.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster.
        """
        existing = self.open(table)
        # The rows were made from `after`: a commit that came since would be undone by this one.
        check_unwritten(table, existing if adds and after is None else after, existing)
        mode: Literal["append", "overwrite"] = "append" if adds else "overwrite"
        columns = Schema.from_arrow(_declared(schema))
        partition_by = [partition.name for partition in partitions_of(schema)]
        actions = list(map(_add, files))
        # Delta cannot partition a table otherwise in a commit of files; the table is made again then.
        is_kept = existing is not None and existing.delta.metadata().partition_columns == partition_by
        kept = existing if is_kept else None
        if kept is not None:
            kept.allow_types(schema)
        since = -1 if existing is None else existing.version
        with committing(table, position, since, lambda: DeltaTable(self.path(table))) as properties:
            if kept is not None:
                kept.delta.create_write_transaction(
                    [*actions], mode, columns, partition_by=partition_by, commit_properties=properties
                )
            else:
                create_table_with_add_actions(
                    self.path(table),
                    columns,
                    actions,
                    mode="error" if existing is None else "overwrite",
                    partition_by=partition_by,
                    commit_properties=properties,
                )


class DeltaLakeTable:
    """One Delta table, as it was when it was opened.

    Attributes:
        name: the database's table.
        delta: the library's table.
    """

    def __init__(self, name: TableName, delta: DeltaTable, engine: DeltaEngine) -> None:
        self.name = name
        self.delta = delta
        self._engine = engine

    @property
    def uri(self) -> str:
        """Where it is."""
        return self.delta.table_uri

    @property
    def version(self) -> int:
        """The number of the table's last commit."""
        return int(self.delta.version())

    @property
    def position(self) -> Position | None:
        """The last change that the table has; None where Headrace did not write it."""
        return read_position(self.delta)

    def find_other_commit(self, since: int) -> str | None:
        """Return what another program did to the rows after the commit `since`; None: nothing."""
        return find_other_commit(self.delta, since)

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, with the metadata that they were written with."""
        fields = self.delta.schema().fields
        arrow = pa.schema(self.delta.schema().to_arrow())
        declared = (
            arrow.field(field.name).with_metadata({str(k): str(v) for k, v in field.metadata.items()})
            for field in fields
        )
        return pa.schema([field for field in declared if derived_from(field) is None])

    def allow_types(self, schema: pa.Schema) -> None:
        """Declare to readers what columns of `schema` need, where the table does not yet."""
        has_local_times = any(has_part(kind, _is_local_time) for kind in schema.types)
        if has_local_times and "timestampNtz" not in (self.delta.protocol().reader_features or ()):
            self.delta.alter.add_feature(
                TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
            )

    def merge(self, rows: pa.Table, key: Sequence[str], position: Position, ending: Ending = REMOVAL) -> None:
        """Write rows and end others by key, in one commit.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster.
        """
        merge = merge_of(rows, key, ending, partitions_of(self.schema), self.name)
        self._engine.merge(self.name, self.delta, merge, position)

    def count_files(self, smaller_than: int) -> int:
        """Return how many files are smaller than some bytes, in the partition that has most of them."""
        files = pa.table(self.delta.get_add_actions(flatten=True))
        small = files.filter(pc.less(files.column("size_bytes"), smaller_than))
        names = [name for name in small.column_names if name.startswith("partition.")]
        if not names:
            return len(small)
        numbers = small.group_by(names).aggregate([([], "count_all")]).column("count_all")
        return int(pc.max(numbers).as_py() or 0)

    def join_files(self, target_bytes: int) -> tuple[int, int]:
        """Join small files to such of about `target_bytes`, in one commit; return how many became how many.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster.
        """
        return self._engine.join_files(self.name, self.delta, target_bytes)

    def remove_files(self, retention_seconds: float, _: int | None = None) -> int:
        """Remove files that no version of the last `retention_seconds` has; return how many."""
        # Whole hours are all that it takes: rounded up, so that no reader loses a file early.
        removed = self.delta.vacuum(
            retention_hours=math.ceil(retention_seconds / 3600),
            dry_run=False,
            # The library refuses less than a week, which is the operator's to decide.
            enforce_retention_duration=False,
            full=True,  # what a killed program wrote, and no commit names
        )
        return len(removed)

    def rows(self) -> Iterable[pa.RecordBatch]:
        """Yield all rows."""
        names = self.schema.names
        for batch in self.delta.to_pyarrow_dataset().to_batches(fragment_readahead=1, **_READING):
            yield batch.select(names)

    def rows_near(self, index: KeyIndex, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files that have some keys, with some columns."""
        dataset = self.delta.to_pyarrow_dataset()
        for file in dataset.get_fragments():
            # PyArrow cannot compare texts with the statistics of files that a merge wrote, so keys are read.
            keys = file.to_batches(schema=dataset.schema, columns=[*index.key])
            if any((index.find(batch) >= 0).any() for batch in keys):
                yield from file.to_batches(schema=dataset.schema, columns=columns, **_READING)


def _declared(schema: pa.Schema) -> pa.Schema:
    """Return the columns that a Delta table has."""
    return pa.schema([*schema, *derived_fields(schema)])


def _is_local_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is None


def _add(file: DataFile) -> AddAction:
    now = int(time.time() * 1000)
    return AddAction(file.name, file.size, {**file.partition}, now, data_change=True, stats=file.statistics)
