"""The least that a streaming source in Python can do: rows that are numbers, as datagrams bring them.

What a row costs in Spark itself, on this machine and at this hour, whatever the source does.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

_LONG_POLL_SECONDS = 0.25


@dataclass
class Numbers(InputPartition):
    """One task's rows."""

    numbers: tuple[int, ...]


class Knocks(DataSource):
    """`readStream.format("bench_knocks")`, with the option `port`: where each number is sent to."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "bench_knocks"

    def schema(self) -> str:
        """One number."""
        return "id bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """The reader of one query."""
        return KnocksReader(int(self.options["port"]))


class KnocksReader(DataSourceStreamReader):
    """Waits as `postgres_cdc` does; keeps every number."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._receiver: socket.socket | None = None
        self._numbers: list[int] = []

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Nothing has come."""
        return {"count": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """All that has come, after a little while where nothing new has."""
        if self._receiver is None:
            self._receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._receiver.bind(("127.0.0.1", self._port))
        seconds = _LONG_POLL_SECONDS
        while True:
            self._receiver.settimeout(seconds)
            try:
                self._numbers.append(int(self._receiver.recv(64)))
            except (TimeoutError, BlockingIOError):
                return {"count": len(self._numbers)}
            seconds = 0.0

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task."""
        return [Numbers(tuple(self._numbers[start["count"] : end["count"]]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Its rows."""
        assert isinstance(partition, Numbers)
        yield pa.RecordBatch.from_arrays([pa.array(partition.numbers, pa.int64())], names=["id"])
