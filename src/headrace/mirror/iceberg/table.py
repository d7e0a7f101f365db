"""Read and write one Iceberg table.

Every commit holds the position up to which the table has the database's changes, so a change that is
repeated is recognised, whatever became of checkpoints. Rows are changed by writing the files that have them
again: no reader needs to know of delete files.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.fs import FileSystem
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import ancestors_of

from headrace.errors import HeadraceError, Kind
from headrace.mirror.columns import fitted
from headrace.mirror.files import DataFile
from headrace.mirror.iceberg import commits
from headrace.mirror.iceberg.errors import telling_errors
from headrace.mirror.iceberg.parquet import describe, file_system, may_have, read_rows
from headrace.mirror.iceberg.partitions import partition_names, with_values
from headrace.mirror.iceberg.removal import remove_files
from headrace.mirror.iceberg.schemas import OWN, levels, table_of, written_columns
from headrace.mirror.keys import KeyIndex, Places, whole
from headrace.mirror.lake import known_position, other_writer
from headrace.mirror.merging import merge_of
from headrace.mirror.net_changes import DELETED, REMOVAL, Ending, Position
from headrace.mirror.partition_files import write_partitions
from headrace.model.names import TableName

if TYPE_CHECKING:
    from headrace.mirror.iceberg.spark import IcebergSparkEngine

_THREADS = 2
# Iceberg has decimals of up to 18 digits as integers in Parquet files.
_WRITTEN = {"store_decimal_as_integer": True}


@dataclass(frozen=True)
class IcebergTable:
    """One Iceberg table, as it was when it was opened.

    Attributes:
        name: the database's table.
        table: the library's table.
        file_bytes: the size of data files, about.
        engine: merges; None: this process does it.
    """

    name: TableName
    table: Table
    file_bytes: int
    engine: IcebergSparkEngine | None = None

    @property
    def uri(self) -> str:
        """Where it is."""
        return self.table.location()

    @property
    def version(self) -> int:
        """The id of the table's present snapshot."""
        return commits.snapshot_id(self.table)

    @property
    def position(self) -> Position | None:
        """The last change that the table has; None where Headrace did not write it.

        A snapshot of another program says nothing of it: the one before does, or the table's property.
        """
        for snapshot in ancestors_of(self.table.current_snapshot(), self.table.metadata):
            noted = commits.noted_position(snapshot)
            if noted is not None:
                return noted
        text = self.table.properties.get(OWN)
        return None if text is None else commits.read_position(text)

    def find_other_commit(self, since: int) -> str | None:
        """Return what another program did to the rows or columns after a snapshot; None: nothing."""
        return commits.find_other_commit(self.table, since)

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The table's columns, with the metadata that they were written with."""
        written = {field.name: field for field in written_columns(self.table.metadata) or ()}
        present = schema_to_pyarrow(self.table.schema(), include_field_ids=False)
        return pa.schema([written.get(field.name, field) for field in present])

    def rows(self) -> Iterable[pa.RecordBatch]:
        """Yield all rows."""
        for file in self._files():
            yield from self._read(file)

    @telling_errors()
    def _files(self) -> list[IcebergFile]:
        """Return the table's data files.

        Raises:
            HeadraceError: CONTINUITY: some of their rows are deleted by other files.
        """
        tasks = list(self.table.scan().plan_files())
        # Rows that delete files hide would come back with the next file that is written again.
        if any(task.delete_files for task in tasks):
            raise HeadraceError(
                Kind.CONTINUITY,
                f"another program has deleted rows of {self.uri} by delete files",
                "Let it rewrite the table's files, or remove the table and start the mirror with --reload.",
            )
        return [task.file for task in tasks]

    def _read(self, file: IcebergFile, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return read_rows(self.table.io, file.file_path, self.schema, self.table.schema(), names)

    def rows_near(self, index: KeyIndex, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files that have some keys, with some columns."""
        for file in self._files_with(index):
            yield from self._read(file, columns)

    def merge(self, rows: pa.Table, key: Sequence[str], position: Position, ending: Ending = REMOVAL) -> None:
        """Write rows and end others by key, in one commit.

        A row that is replaced stays in the file that had it, so that files keep the ranges of keys that they
        have.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster.
        """
        ends = np.asarray(rows.column(DELETED).to_numpy(), np.bool_)
        batch = _one_batch(rows.drop_columns([DELETED]))
        if self.engine is not None and self.engine.can_merge(self.table):
            # Partitions are no columns here; a value that cannot be a partition's is refused all the same.
            by = levels(self.table.spec(), self.table.schema())
            with_values(batch.filter(pa.array(~ends)), by, self.name)
            merge = merge_of(rows, key, ending, (), self.name)
            self.engine.merge(self.name, self.table, merge, position)
            return
        sought, is_end, only = batch, ends, None
        if ending.span is not None and ending.live is not None:
            # What is written comes beside what is there: only rows that end are looked for.
            sought, is_end, only = batch.filter(pa.array(ends)), ends[ends], ending.live[0]
        written = np.array(ends)  # which of the rows are in a file by now, or need not be
        # Several files are changed at once, and each new row must be written once.
        lock = threading.Lock()

        def update(old: pa.RecordBatch, places: Places) -> Iterator[pa.RecordBatch]:
            is_ended = (places >= 0) & is_end[places]
            is_replaced = (places >= 0) & ~is_end[places]
            is_ended &= _flags(ending.is_live(old))
            if ending.columns:
                ends_by = sought.take(pa.array(places[is_ended]))
                values = {name: ends_by.column(name) for name in ending.columns}
                yield ending.ended(old.filter(pa.array(is_ended)), values)
            yield old.filter(pa.array(~is_ended & ~is_replaced))
            with lock:
                new = np.unique(places[is_replaced])
                new = new[~written[new]]
                written[new] = True
            yield batch.take(pa.array(new))

        index = KeyIndex(pa.Table.from_batches([sought]), key)

        def rewrite(file: IcebergFile) -> list[DataFile]:
            # A row may leave the partition, and the file be older than the last partition_by.
            return self._write(part for old in self._read(file) for part in update(old, index.find(old)))

        removed = self._files_with(index, only) if len(sought) else []
        with ThreadPoolExecutor(_THREADS, "headrace merge") as threads:
            files = [file for made in threads.map(rewrite, removed) for file in made]
        # What is new has files of its own: old ones keep their ranges of keys.
        files += self._write([batch.filter(pa.array(~written))])
        self._commit(position, files, removed)

    def _files_with(self, index: KeyIndex, only: str | None = None) -> list[IcebergFile]:
        """Return the files that have rows with some keys."""

        def has(file: IcebergFile) -> bool:
            if not may_have(file, self.table.schema(), index):
                return False
            for batch in self._read(file, [*index.key, *([] if only is None else [only])]):
                places = index.find(batch)
                if only is not None:
                    places = places[_flags(batch.column(only))]
                if (places >= 0).any():
                    return True
            return False

        files = self._files()
        with ThreadPoolExecutor(_THREADS, "headrace look") as threads:
            return [file for file, found in zip(files, threads.map(has, files), strict=True) if found]

    def _write(self, batches: Iterable[pa.RecordBatch], file_bytes: int | None = None) -> list[DataFile]:
        return write_data(self.name, self.table.transaction(), batches, file_bytes or self.file_bytes)

    @telling_errors()
    def _commit(self, position: Position, added: Sequence[DataFile], removed: Sequence[IcebergFile]) -> None:
        change = self.table.transaction()
        files = described(self.name, change, added)
        commits.commit(self.name, change, position, added=files, removed=removed)

    def count_files(self, smaller_than: int) -> int:
        """Return how many files are smaller than some bytes, in the partition that has most of them."""
        return max(map(len, self._smaller(smaller_than)), default=0)

    def _smaller(self, size: int) -> list[list[IcebergFile]]:
        """Return the files that are smaller than some bytes, those of a partition together."""
        found: dict[tuple[int, str], list[IcebergFile]] = {}
        # Files of another specification are joined among themselves: their partitions mean something else.
        for file in self._files():
            if file.file_size_in_bytes < size:
                found.setdefault((file.spec_id, repr(file.partition)), []).append(file)
        return list(found.values())

    def join_files(self, target_bytes: int) -> tuple[int, int]:
        """Join small files to such of about `target_bytes`, in one commit; return how many became how many.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster.
        """
        is_whole = self.table.spec().is_unpartitioned()
        small = [files for files in self._smaller(target_bytes // 2) if is_whole or len(files) > 1]
        joined: list[DataFile] = []
        for files in small:
            rows = (batch for file in files for batch in self._read(file))
            joined += self._write(rows, target_bytes)
        removed = [file for files in small for file in files]
        self._commit(known_position(self), joined, removed)
        return len(removed), len(joined)

    @telling_errors()
    def remove_files(self, retention_seconds: float, noted: int | None = None) -> int:
        """Remove files that no version since `noted`, or of the last `retention_seconds`, has.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster.
        """
        try:
            return remove_files(self.table, retention_seconds, noted)
        except CommitFailedException as error:
            raise other_writer(self.name, error) from error


def data_folder(table: Table) -> FileSystem:
    """Return the folder of a table's data files."""
    return file_system(table.io, f"{table.location()}/data")


def write_data(
    name: TableName, change: Transaction, batches: Iterable[pa.RecordBatch], file_bytes: int
) -> list[DataFile]:
    """Write rows to new data files of a table, each of one partition; no commit names them yet.

    Args:
        name: the database's table.
        change: gives the table the columns and partitions that the files have.
        batches: the rows.
        file_bytes: the size of a file, about.

    Raises:
        HeadraceError: VALUE: a value cannot be a partition's; CONFIG: there are too many partitions.
    """
    metadata = change.table_metadata
    columns = schema_to_pyarrow(metadata.schema())
    by = levels(metadata.spec(), metadata.schema())
    names = partition_names(by)
    return write_partitions(
        name,
        data_folder(table_of(change)),
        with_values(pa.RecordBatch.from_pylist([], schema=columns), by, name).schema,
        (with_values(fitted(batch, columns), by, name) for batch in batches),
        partition_by=names,
        target_bytes=file_bytes,
        in_folders=False,
        options=_WRITTEN,
    )


def described(name: TableName, change: Transaction, files: Sequence[DataFile]) -> list[IcebergFile]:
    """Return what a commit says of files that `write_data` wrote.

    Raises:
        HeadraceError: CONTINUITY: the table's columns were altered since.
    """
    table, metadata = table_of(change), change.table_metadata
    columns, spec, place = metadata.schema(), metadata.spec(), f"{table.location()}/data"
    try:
        return [describe(table.io, f"{place}/{file.name}", file, columns, spec) for file in files]
    except ValueError as error:
        raise other_writer(name, error) from error


def _flags(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([whole(column) for column in rows.columns], schema=rows.schema)
