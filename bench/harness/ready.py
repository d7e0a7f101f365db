"""A Spark source that yields ready-made record batches: what taking rows into Spark costs by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.model.types import spark_type


@dataclass
class ReadyPart(InputPartition):
    """One batch as an Arrow IPC stream, and how often it is given out."""

    stream: bytes
    times: int

    @classmethod
    def of(cls, batch: pa.RecordBatch, rows: int) -> ReadyPart:
        """At least `rows` rows."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return cls(sink.getvalue().to_pybytes(), -(-rows // batch.num_rows))


def ready_source(parts: Sequence[ReadyPart]) -> type[DataSource]:
    """The class of a source named `ready` that has these parts."""
    schema = pa.ipc.open_stream(parts[0].stream).schema
    ddl = ", ".join(f"{field.name} {spark_type(field.type)}" for field in schema)

    class Reader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return list(parts)

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            assert isinstance(partition, ReadyPart)
            [batch] = pa.ipc.open_stream(partition.stream)
            for _ in range(partition.times):
                yield batch

    class Ready(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready"

        def schema(self) -> str:
            return ddl

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return Reader()

    return Ready
