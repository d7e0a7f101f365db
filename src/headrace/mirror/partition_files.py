"""Write rows in any order to the files of their partitions, however many there are.

A file for each partition of each batch would be too many files, and a writer for each partition too much
memory. So rows are sorted in runs, the runs are kept in a temporary file, and then each partition is written
at once from its parts in all runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.fs import FileSystem

from headrace.errors import HeadraceError, Kind
from headrace.mirror.files import DataFile, grouped, removing_of_failed, write_files
from headrace.mirror.keys import row_codes
from headrace.mirror.partitions import partition_folder
from headrace.model.names import TableName

RUN_BYTES = 64 << 20
"""The size of a run: about twice as much memory is needed while it is sorted."""
MOST_PARTITIONS = 50_000
"""A load that meets more ends with an error: each is a folder, and a file at least."""

Values = tuple[str | None, ...]
"""The texts of the columns that decide, of one partition."""


def _create_folder(folder: FileSystem, partition: Mapping[str, str | None]) -> str:
    """Create the folder of a partition; return its path below the table's."""
    below = "".join(f"{partition_folder(*level)}/" for level in partition.items())
    folder.create_dir(below)
    return below


def write_partitions(
    table: TableName,
    folder: FileSystem,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    partition_by: Sequence[str],
    target_bytes: int,
    run_bytes: int = RUN_BYTES,
    in_folders: bool = True,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> list[DataFile]:
    """Write rows to files of about `target_bytes`, each of one partition where there are any.

    Args:
        table: the table, for messages.
        folder: its folder.
        schema: the rows' columns.
        batches: the rows.
        partition_by: the columns that decide, which the files lack.
        target_bytes: the size of a file, about.
        run_bytes: the size of a run.
        in_folders: whether each partition has a folder of its name.
        options: of PyArrow's writer.

    Raises:
        HeadraceError: CONFIG: there are too many partitions; DISK: no room for the temporary file.
        OSError: the folder cannot be written.
    """
    if not partition_by:
        return write_files(folder, schema, batches, target_bytes, options=options)
    own = pa.schema([field for field in schema if field.name not in partition_by])
    # Where each partition has its rows in the temporary file.
    parts: dict[Values, list[int]] = {}
    files: list[DataFile] = []
    with removing_of_failed(folder) as names, tempfile.TemporaryFile(prefix="headrace-") as kept:
        lz4 = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(kept, own, options=lz4) as writer:
            number = 0
            for run in grouped(batches, schema, run_bytes):
                for values, part in _sorted(run, own, partition_by):
                    _keep(writer, part, table)
                    parts.setdefault(values, []).append(number)
                    number += 1
                if len(parts) > MOST_PARTITIONS:
                    raise HeadraceError(
                        Kind.CONFIG,
                        f"the table {table} would have more than {MOST_PARTITIONS:,} partitions",
                        "Choose a coarser partition_by, as month(…) for day(…).",
                    )
        with pa.ipc.open_file(kept) as reader:
            # Each partition is written at once, so that it has as few files as it can have.
            for values in sorted(
                parts, key=lambda values: [(text is not None, text or "") for text in values]
            ):
                partition = dict(zip(partition_by, values, strict=True))
                below = _create_folder(folder, partition) if in_folders else ""
                rows = map(reader.get_batch, parts[values])
                files += write_files(
                    folder, own, rows, target_bytes, below=below, partition=partition, options=options
                )
                names += [file.name for file in files[len(names) :]]
    return files


def _sorted(
    rows: pa.Table, own: pa.Schema, partition_by: Sequence[str]
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yield the rows of each partition, in the order in which they were read."""
    deciding = rows.select(partition_by)
    codes = row_codes(deciding)
    order = np.argsort(codes, kind="stable")
    rows = rows.select(own.names).take(pa.array(order)).combine_chunks()
    # No code is -1, so that the first row begins a partition too.
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    firsts = deciding.take(pa.array(order[starts]))
    texts = zip(*(column.cast(pa.string()).to_pylist() for column in firsts.columns), strict=True)
    for values, start, end in zip(texts, starts, [*starts[1:], len(rows)], strict=True):
        [part] = rows.slice(start, end - start).to_batches()
        yield values, part


def _keep(writer: pa.ipc.RecordBatchFileWriter, part: pa.RecordBatch, table: TableName) -> None:
    try:
        writer.write_batch(part)
    except OSError as error:
        raise HeadraceError(
            Kind.DISK,
            f"rows of {table} cannot be sorted by partition in {tempfile.gettempdir()}: {error}",
            "Make room there, or let the environment variable TMPDIR name another folder.",
        ) from error
