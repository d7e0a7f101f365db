"""A sink that says of each row when it is there: a datagram with its id, to whoever measures."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType


class Arrivals(DataSource):
    """`writeStream.format("bench_arrivals")`, with the option `port`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "bench_arrivals"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        """The writer of one query."""
        return ArrivalsWriter(int(self.options["port"]))


class ArrivalsWriter(DataSourceStreamArrowWriter):
    """Pickled to the workers."""

    def __init__(self, port: int) -> None:
        self._port = port

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Tell the ids of one partition's rows."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for batch in iterator:
                for number in batch.column("id").to_pylist():
                    sender.sendto(str(number).encode(), ("127.0.0.1", self._port))
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to undo."""
