"""How does the work reach Spark? The only room that imports PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.snapshot import exported_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["exported_snapshot", "register"]


def register(spark: SparkSession) -> None:
    """Make the formats known to `spark`; harmless when they already are.

    Needed only where Spark does not find the top-level modules `pyspark_postgres_…` by itself.
    """
    from headrace.spark.snapshot_source import PostgresSnapshot  # noqa: PLC0415 - PySpark loads only
    from headrace.spark.source import PostgresCdc  # noqa: PLC0415 - when asked for

    spark.dataSource.register(PostgresCdc)
    spark.dataSource.register(PostgresSnapshot)
