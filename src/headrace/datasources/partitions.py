"""What goes to a task of `postgres_cdc`, and which rows does the task make of it?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.capture.reread import lookups
from headrace.capture.rows import Absence
from headrace.datasources.bootstrap import ProvidedPart
from headrace.datasources.cdc_options import CdcOptions
from headrace.datasources.envelopes import Described, formed
from headrace.datasources.initial_snapshot import RowsPart
from headrace.datasources.query_schema import RowsPlan
from headrace.errors import HeadraceError, Kind
from headrace.model import CHANGES_SCHEMA


@dataclass
class ChangePartition(InputPartition):
    """Some changes of a batch, as an Arrow IPC stream, and which columns their table did not have."""

    stream: bytes
    told: Described | None
    absences: tuple[Absence, ...]

    def __init__(
        self,
        batches: Sequence[pa.RecordBatch],
        told: Described | None = None,
        absences: tuple[Absence, ...] = (),
    ) -> None:
        self.told = told
        self.absences = absences
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, CHANGES_SCHEMA) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self.stream = sink.getvalue().to_pybytes()


def split(batches: list[pa.RecordBatch], rows: int) -> list[list[pa.RecordBatch]]:
    """`batches` in groups of about `rows` rows each; one empty group where there is nothing."""
    groups: list[list[pa.RecordBatch]] = [[]]
    room = rows
    for batch in batches:
        position = 0
        while position < batch.num_rows:
            if room == 0:
                groups.append([])
                room = rows
            taken = min(room, batch.num_rows - position)
            groups[-1].append(batch.slice(position, taken))
            position, room = position + taken, room - taken
    return groups


def read_part(
    options: CdcOptions, plan: RowsPlan | None, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in the form that the query has.

    Args:
        options: of the query.
        plan: for `envelope=rows`.
        partition: what the planning process made.

    Raises:
        HeadraceError: VALUE, CONTINUITY, CONNECTION, PRIVILEGE, DATABASE.
    """
    if isinstance(partition, RowsPart | ProvidedPart):
        shape = None if plan is None else plan.shape
        rows = partition.read(options.connection, shape)
        yield from rows if shape is not None else formed(options, rows, partition.told)
        return
    if not isinstance(partition, ChangePartition):
        raise HeadraceError(Kind.INTERNAL, f"not a partition of postgres_cdc: {partition!r}")
    with pa.ipc.open_stream(partition.stream) as reader:
        if plan is not None:
            yield from _typed(options, plan, reader, partition.absences)
        elif partition.told is not None:
            yield from formed(options, reader, partition.told)
        else:
            yield from reader


def _typed(
    options: CdcOptions, plan: RowsPlan, changes: Iterable[pa.RecordBatch], absences: Sequence[Absence]
) -> Iterator[pa.RecordBatch]:
    """The rows of one table."""
    with lookups(options.connection) as look_by:
        look = None if plan.reread is None else look_by(plan.reread)
        for batch in changes:
            yield plan.shape.rows(batch, look, absences)
