"""The query that makes Spark ready yields what the documents query yields."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from headrace.pipeline.stream.documents_source import SCHEMA
from headrace.pipeline.stream.warm_up import WarmUpReader

_NAMES = {"int64": "bigint", "string": "string"}


def test_a_task_yields_one_row_of_the_documents_source() -> None:
    [batch] = WarmUpReader().read(InputPartition(0))
    columns = [f"{field.name} {_NAMES[str(field.type)]}" for field in batch.schema]
    assert ", ".join(columns) == SCHEMA
    assert batch.num_rows == 1
