"""Serve `postgres_cdc` to PySpark 4.0 and 4.1, which ask for a batch's end without the query's position.

They pass it in another way. A query that goes on from a checkpoint asks first for the partitions between
the last planned end and itself. And a batch's partitions are asked for when its end is in the checkpoint.
(Measured with PySpark 4.0.1 and 4.1.4, also with the trigger `availableNow`.) So the last end that
partitions were asked for is where the next batch begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from headrace.spark.environment import passes_position

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.datasources.postgres_cdc import CdcReader


def for_this_spark(reader: CdcReader, version: str) -> DataSourceStreamReader:
    """Return the reader as a PySpark of this version calls it."""
    return reader if passes_position(version) else RememberingReader(reader)


class RememberingReader(DataSourceStreamReader):
    """Passes on to a reader the position that Spark does not name; used as Spark uses a reader."""

    def __init__(self, reader: CdcReader) -> None:
        self._reader = reader
        self._position: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """See `CdcReader.initialOffset`."""
        return self._reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return where the batch behind the last planned one ends."""
        if self._position is None:  # the checkpoint is empty
            self._position = self._reader.initialOffset()
        return self._reader.latestOffset(self._position, self._reader.getDefaultReadLimit())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of a batch; none where Spark only names its position."""
        self._position = end
        return [] if start == end else self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `CdcReader.read`."""
        return self._reader.read(partition)

    def stop(self) -> None:
        """See `CdcReader.stop`."""
        self._reader.stop()
