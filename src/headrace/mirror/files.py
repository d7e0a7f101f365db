"""Write rows to the Parquet files of a lake's table; a commit makes them visible afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

TARGET_BYTES = 128 << 20
"""The size of a file, about."""
_GROUP_BYTES = 32 << 20
_LONGEST_TEXT = 32


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that no commit names yet.

    Attributes:
        name: its path, from the table's folder.
        size: its size (bytes).
        statistics: what a Delta table's log says of its columns, in JSON.
        partition: of a partitioned table the texts of the columns that decide; the file lacks these columns.
    """

    name: str
    size: int
    statistics: str
    partition: Mapping[str, str | None] = field(default_factory=dict)


def write_files(
    folder: FileSystem,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    target_bytes: int = TARGET_BYTES,
    *,
    below: str = "",
    partition: Mapping[str, str | None] = MappingProxyType({}),
    options: Mapping[str, Any] = MappingProxyType({}),
) -> list[DataFile]:
    """Write rows to files of about `target_bytes` with new names in a table's folder; no rows make no file.

    Args:
        folder: the table's.
        schema: the files' columns.
        batches: the rows.
        target_bytes: the size of a file, about.
        below: the folder of a partition in `folder`, which is there, with a `/` at its end.
        partition: the partition's values.
        options: of PyArrow's writer.

    Raises:
        OSError: the folder cannot be written.
    """
    # A file is opened when there is a row for it: no rows make no file.
    groups = grouped(batches, schema, _GROUP_BYTES)
    files: list[DataFile] = []
    with removing_of_failed(folder) as names:
        group = next(groups, None)
        while group is not None:
            names.append(f"{below}part-{uuid.uuid4().hex}.parquet")
            metadata: list[pq.FileMetaData] = []
            with folder.open_output_stream(names[-1]) as out, _telling_why():
                with pq.ParquetWriter(out, schema, metadata_collector=metadata, **options) as writer:
                    # The size is known once a row group is written: a file may be one group larger.
                    while group is not None and out.tell() < target_bytes:
                        writer.write_table(group)
                        group = next(groups, None)
                size = out.tell()
            files.append(_describe(names[-1], size, metadata[0], partition))
    return files


@contextlib.contextmanager
def removing_of_failed(folder: FileSystem) -> Iterator[list[str]]:
    """Yield a list for the names of files in a folder, which are removed where the block fails."""
    names: list[str] = []
    try:
        yield names
    except BaseException:
        delete_files(folder, names)
        raise


def delete_files(folder: FileSystem, names: Iterable[str]) -> None:
    """Remove files of a folder that no commit names; where one cannot be, the upkeep finds the others."""
    # It ends with the first one: a store that does not answer takes minutes for each.
    with contextlib.suppress(Exception):
        for name in names:
            folder.delete_file(name)


def flush(folder: str) -> None:
    """Have everything that was written to the file system of a folder on its disk.

    Raises:
        OSError: the disk refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        system = ctypes.CDLL(None, use_errno=True)
        if not hasattr(system, "syncfs"):  # Linux alone has it
            os.sync()
        # It writes this file system alone, where sync waits for every disk of the machine.
        elif system.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _telling_why() -> Iterator[None]:
    """Raise the error that kept a file from being written; PyArrow hides it behind that of closing it."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def grouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema, size: int) -> Iterator[pa.Table]:
    """Yield rows in tables of about `size` bytes."""
    waiting: list[pa.RecordBatch] = []
    found = 0
    for batch in filter(len, batches):
        waiting.append(batch)
        found += batch.nbytes
        if found >= size:
            yield pa.Table.from_batches(waiting, schema)
            waiting, found = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _describe(
    name: str, size: int, metadata: pq.FileMetaData, partition: Mapping[str, str | None]
) -> DataFile:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        chunks = [group.column(number).statistics for group in groups]
        is_known = all(chunk is not None and chunk.has_null_count for chunk in chunks)
        # Parts of a nested value have columns of their own, which no reader's statistics name.
        if column.path != column.name or column.max_repetition_level or not is_known:
            continue
        nulls[column.name] = sum(chunk.null_count for chunk in chunks)
        bounds = _exact_bounds([chunk for chunk in chunks if chunk.num_values])
        if bounds is not None:
            least[column.name], greatest[column.name] = bounds
    statistics = {
        "numRecords": metadata.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }
    return DataFile(name, size, json.dumps(statistics, default=str), dict(partition))


def _exact_bounds(chunks: Sequence[pq.Statistics]) -> tuple[Any, Any] | None:
    """Return the least and greatest value in parts of a column; None: they are not known, or not exact."""
    try:
        known = [(chunk.min, chunk.max) for chunk in chunks if chunk.has_min_max]
    except (OverflowError, NotImplementedError):
        # An infinite date or timestamp: Python has no such days. PyArrow before 23 tells none of decimals.
        return None
    # A bound that is not exact would let readers skip files with the rows that they look for.
    if not known or len(known) < len(chunks) or not all(_is_exact(*values) for values in known):
        return None
    return min(least for least, _ in known), max(greatest for _, greatest in known)


def _is_exact(*values: object) -> bool:
    """Return whether values compare in every reader as they do here."""
    return all(
        (isinstance(value, int) and not isinstance(value, bool))
        or (isinstance(value, dt.date) and not isinstance(value, dt.datetime))
        or (isinstance(value, str) and value.isascii() and len(value) <= _LONGEST_TEXT)
        for value in values
    )
