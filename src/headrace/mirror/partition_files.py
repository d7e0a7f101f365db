"""Write rows in any order to the files of their partitions, however many there are.

A file for each partition of each batch would be too many files, and a writer for each partition too much
memory. So rows are sorted in runs, the runs are kept in a temporary file, and then each partition is written
at once from its parts in all runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.fs import FileSystem

from headrace.errors import HeadraceError, Kind
from headrace.mirror.files import DataFile, write_files
from headrace.mirror.partitions import partition_folder
from headrace.model.names import TableName

RUN_BYTES = 64 << 20
"""The size of a run: about twice as much memory is needed while it is sorted."""
MOST_PARTITIONS = 50_000
"""A load that meets more ends with an error: each is a folder, and a file at least."""
_CODEC = "lz4"
_Numbers = npt.NDArray[np.int64]

Values = tuple[str | None, ...]
"""The texts of the columns that decide, of one partition."""


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
    """Write rows to files of about `target_bytes`, each of one partition.

    Args:
        table: the table, for messages.
        folder: its folder.
        schema: the rows' columns.
        batches: the rows.
        partition_by: the columns that decide, which the files lack.
        target_bytes: the size of a file, about.
        run_bytes: the size of a run; more rows are kept in a temporary file.
        in_folders: whether each partition has a folder of its name.
        options: of PyArrow's writer.

    Raises:
        HeadraceError: CONFIG: there are too many partitions; DISK: no room for the temporary file.
        OSError: the folder cannot be written.
    """
    own = pa.schema([field for field in schema if field.name not in partition_by])
    with _Runs(table, own, partition_by) as runs:
        runs.add_all(batches, schema, run_bytes)
        files: list[DataFile] = []
        # Each partition is written at once, so that it has as few files as it can have.
        for values in runs.partitions:
            below = ""
            if in_folders:
                levels = zip(partition_by, values, strict=True)
                below = "".join(f"{partition_folder(name, value)}/" for name, value in levels)
                folder.create_dir(below)
            partition = dict(zip(partition_by, values, strict=True))
            rows = runs.read(values)
            files += write_files(
                folder, own, rows, target_bytes, below=below, partition=partition, options=options
            )
        return files


@dataclass(frozen=True, slots=True)
class _Kept:
    """Rows in the temporary file: where, how many bytes, and how many once they are decompressed."""

    offset: int
    size: int
    raw: int


class _Runs:
    """Rows by partition: those of the last run in memory, the others in a temporary file."""

    def __init__(self, table: TableName, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self._table = table
        self._schema = schema
        self._partition_by = partition_by
        self._parts: dict[Values, list[_Kept | pa.RecordBatch]] = {}
        self._last: list[Values] = []
        self._codec = pa.Codec(_CODEC)
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def partitions(self) -> list[Values]:
        """The partitions, in order."""
        return sorted(self._parts, key=lambda values: [(text is not None, text or "") for text in values])

    def add_all(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, run_bytes: int) -> None:
        """Sort rows in runs of `run_bytes`; the last one stays in memory."""
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in filter(len, batches):
            waiting.append(batch)
            size += batch.nbytes
            if size >= run_bytes:
                self.add(pa.Table.from_batches(waiting, schema))
                self.keep()
                waiting, size = [], 0
        if waiting:
            self.add(pa.Table.from_batches(waiting, schema))

    def add(self, rows: pa.Table) -> None:
        """Sort a run."""
        codes, columns = _coded(rows, self._partition_by)
        # Stable: rows of one partition keep the order in which they were read.
        order = np.argsort(codes, kind="stable")
        own = rows.select(self._schema.names).take(pa.array(order)).combine_chunks()
        # No code is -1, so that the first row begins a partition too.
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
            first = order[start]
            values = tuple(texts[int(indices[first])].as_py() for texts, indices in columns)
            parts = self._parts.setdefault(values, [])
            parts += own.slice(start, end - start).to_batches()
            self._last.append(values)
        if len(self._parts) > MOST_PARTITIONS:
            raise HeadraceError(
                Kind.CONFIG,
                f"the table {self._table} would have more than {MOST_PARTITIONS:,} partitions",
                "Choose a coarser partition_by, as month(…) for day(…).",
            )

    def keep(self) -> None:
        """Move the last run to the temporary file."""
        for values in self._last:
            parts = self._parts[values]
            parts[:] = [self._store(part) if isinstance(part, pa.RecordBatch) else part for part in parts]
        self._last.clear()

    def read(self, values: Values) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, which are forgotten then."""
        for part in self._parts.pop(values):
            yield self._load(part) if isinstance(part, _Kept) else part

    def _store(self, part: pa.RecordBatch) -> _Kept:
        raw = part.serialize()
        stored = self._codec.compress(raw)
        try:
            if self._file is None:
                self._file = self._stack.enter_context(tempfile.TemporaryFile(prefix="headrace-"))  # noqa: SIM115
            self._file.seek(self._end)
            self._file.write(stored)
        except OSError as error:
            raise HeadraceError(
                Kind.DISK,
                f"rows cannot be sorted by partition in {tempfile.gettempdir()}: {error}",
                "Make room there, or let the environment variable TMPDIR name another folder.",
            ) from error
        kept = _Kept(self._end, stored.size, raw.size)
        self._end += stored.size
        return kept

    def _load(self, part: _Kept) -> pa.RecordBatch:
        assert self._file is not None
        self._file.seek(part.offset)
        raw = self._codec.decompress(self._file.read(part.size), part.raw)
        return pa.ipc.read_record_batch(raw, self._schema)


def _coded(rows: pa.Table, names: Sequence[str]) -> tuple[_Numbers, list[tuple[pa.Array, _Numbers]]]:
    """Return a number for each row, the same within a partition; of each column texts, and each row's."""
    codes = np.zeros(len(rows), np.int64)
    columns = []
    for name in names:
        encoded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        indices = encoded.indices.to_numpy().astype(np.int64)
        # Numbered anew at each column: the product over all columns could exceed 64 bits.
        _, codes = np.unique(codes * len(encoded.dictionary) + indices, return_inverse=True)
        columns.append((encoded.dictionary.cast(pa.string()), indices))
    return codes, columns
