"""Make Spark ready for the documents query: run one of the same shape that reads nothing.

The first query of a session loads thousands of classes and starts Python processes, which takes longer than
everything else in a start. Spark ends Python workers that were idle for a minute, so the query goes on until
its context is left.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from headrace.pipeline.stream.documents_query import start_query
from headrace.pipeline.stream.documents_reader import one_row
from headrace.pipeline.stream.documents_source import NUMBERS, SCHEMA
from headrace.spark.query_folders import make_folder
from headrace.spark.session import LocalSpark

_PAUSE = "30 seconds"
_POLL_SECONDS = 0.1


@contextlib.contextmanager
def warmed_up(spark: LocalSpark) -> Iterator[None]:
    """Keep a session ready until the context is left; a failure is left to the documents query."""
    with contextlib.ExitStack() as running:
        with contextlib.suppress(PySparkException, Py4JError):
            spark.session.dataSource.register(WarmUpSource)
            rows = spark.session.readStream.format(WarmUpSource.name()).load()
            checkpoint = make_folder(spark.scratch) / "checkpoint"
            query = start_query(rows, "headrace warm-up", checkpoint, _PAUSE)
            running.callback(_stop, query)
            while query.isActive and query.lastProgress is None:
                time.sleep(_POLL_SECONDS)
        yield


def _stop(query: StreamingQuery) -> None:
    with contextlib.suppress(PySparkException, Py4JError):
        query.stop()


class WarmUpSource(DataSource):
    """The source `headrace_warm_up`: one row of zeros in each batch, in the columns of `DocumentsSource`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "headrace_warm_up"

    def schema(self) -> str:
        """Return the schema of `DocumentsSource`."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader."""
        return WarmUpReader()


class WarmUpReader(DataSourceStreamReader):
    """Plans one task for each batch."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the first offset."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Return the next offset, once for each trigger."""
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """Return one task."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield a row of zeros."""
        yield one_row([0] * len(NUMBERS), "", "")
