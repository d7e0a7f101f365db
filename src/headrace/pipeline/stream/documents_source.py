"""Name the internal source `headrace_documents` to Spark, and say what its rows hold.

Spark makes the source and its reader in processes that only plan a query, one after the other, and imports
this module in each. So what does the work is imported when it is used: `documents_reader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from headrace.pipeline.stream.documents_reader import DocumentsReader

# The option with the pickled `SourceSettings`.
SETTINGS_OPTION = "settings"
# The module that does the work, which workers import before they are forked.
READER = "headrace.pipeline.stream.documents_reader"

COUNTS = ("changes", "upserts", "deletes", "rejected")
# What the stages of a task have done, and their microseconds; the sums are those of a batch.
STAGES = ("resolved", "assembled", "resolve_micros", "assemble_micros", "write_micros")
# 1 where the documents were written before Spark planned the batch, else 0.
EARLY = "early"
# The microseconds from the oldest commit of a batch until a task was done; the batch's is the largest.
TOTAL = "total_micros"
# The changes of a batch by table, as JSON; of all tasks but one an empty text.
TABLES = "tables"
# The `TaskTrace` of a task, as JSON, else an empty text; that of a batch is its slowest task's.
TRACE = "trace"

# The numbers in the row of a task.
NUMBERS = (*COUNTS, *STAGES, EARLY, TOTAL)
TEXTS = (TABLES, TRACE)
# The columns, for Spark.
SCHEMA = ", ".join([*(f"{name} bigint" for name in NUMBERS), *(f"{name} string" for name in TEXTS)])


class DocumentsSource(DataSource):
    """The source `headrace_documents`, with the options of `Work` and `SETTINGS_OPTION`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "headrace_documents"

    def schema(self) -> str:
        """Return the schema: one row for each task."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader; nothing is opened yet."""
        return LazyDocumentsReader(dict(self.options))


class LazyDocumentsReader(DataSourceStreamReader):
    """A `DocumentsReader` that is made when it is used; until then it is pickled from process to process.

    Args:
        options: the source's.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    @cached_property
    def _reader(self) -> DocumentsReader:
        from headrace.pipeline.stream.documents_reader import DocumentsReader  # noqa: PLC0415 - see above

        return DocumentsReader(self._options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where the query begins."""
        return self._reader.initialOffset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends."""
        return self._reader.latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of a batch."""
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        return self._reader.read(partition)

    def stop(self) -> None:
        """Release the slot."""
        self._reader.stop()
