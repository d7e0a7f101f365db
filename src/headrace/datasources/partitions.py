"""The partitions of `postgres_cdc`, and how a task reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.capture.toast import completed, lookups
from headrace.datasources.bootstrap import ProvidedPart
from headrace.datasources.envelopes import TableDescriptions, to_envelope
from headrace.datasources.initial_snapshot import RowsPart
from headrace.datasources.query_schema import RowsPlan
from headrace.datasources.source_options import CdcOptions
from headrace.spark.garbage import freeze_imports


@dataclass
class ChangePartition(InputPartition):
    """Some changes of a batch.

    Attributes:
        stream: the changes in Arrow's own form: pickling record batches copies each buffer.
        descriptions: of their tables, where the envelope needs them.
    """

    stream: bytes
    descriptions: TableDescriptions | None = None


def split_rows(batches: list[pa.RecordBatch], rows: int) -> list[list[pa.RecordBatch]]:
    """Split `batches` into groups of about `rows` rows; one empty group where there are none."""
    groups: list[list[pa.RecordBatch]] = [[]]
    rows_left = rows
    for batch in batches:
        position = 0
        while position < batch.num_rows:
            if rows_left == 0:
                groups.append([])
                rows_left = rows
            count = min(rows_left, batch.num_rows - position)
            groups[-1].append(batch.slice(position, count))
            position, rows_left = position + count, rows_left - count
    return groups


def read_part(
    options: CdcOptions, plan: RowsPlan | None, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a partition in the query's envelope.

    Args:
        options: of the query.
        plan: for `envelope=rows`.
        partition: created by the planning process.

    Raises:
        HeadraceError: VALUE, CONTINUITY, CONNECTION, PRIVILEGE, DATABASE.
    """
    # Before the rows: garbage collection would go through all modules again and again.
    freeze_imports()
    if isinstance(partition, RowsPart | ProvidedPart):
        shape = None if plan is None else plan.shape
        rows = partition.read(options.connection, shape)
        yield from rows if shape is not None else to_envelope(options, rows, partition.descriptions)
        return
    assert isinstance(partition, ChangePartition)
    with pa.ipc.open_stream(partition.stream) as reader:
        if plan is not None:
            with lookups(options.connection) as look:
                for batch in reader:
                    yield plan.shape.rows(completed(batch, lambda _: plan.reread, look))
        elif partition.descriptions is not None:
            yield from to_envelope(options, reader, partition.descriptions)
        else:
            yield from reader
