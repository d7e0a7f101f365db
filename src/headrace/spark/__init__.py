"""How does the work reach Spark? The only room that imports PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the formats known to `spark`; harmless when they already are.

    Needed only where Spark does not find the top-level module `pyspark_postgres_cdc` by itself.
    """
    from headrace.spark.source import PostgresCdc  # noqa: PLC0415 - PySpark loads only when asked for

    spark.dataSource.register(PostgresCdc)
