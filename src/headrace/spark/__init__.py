"""How does the work reach Spark? The only room that imports PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.snapshot import exported_snapshot
from headrace.spark.environment import check_workers
from headrace.spark.version import check_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.frames import for_each_table, latest_per_key, table

__all__ = ["exported_snapshot", "for_each_table", "latest_per_key", "register", "table"]


def __getattr__(name: str) -> object:
    """What needs PySpark is loaded when it is asked for."""
    if name in {"for_each_table", "latest_per_key", "table"}:
        from headrace.spark import frames  # noqa: PLC0415

        return getattr(frames, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: SparkSession) -> None:
    """Make the formats known to `spark`; harmless when they already are.

    Needed only where Spark does not find the top-level modules `pyspark_postgres_…` by itself.

    Raises:
        HeadraceError: DEPENDENCY, where this PySpark is too old, or where a local session starts workers that
            do not import Headrace.
    """
    import pyspark  # noqa: PLC0415

    check_version(pyspark.__version__, "postgres_cdc")
    check_workers(spark)
    from headrace.spark.snapshot_source import PostgresSnapshot  # noqa: PLC0415 - PySpark loads only
    from headrace.spark.source import PostgresCdc  # noqa: PLC0415 - when asked for

    spark.dataSource.register(PostgresCdc)
    spark.dataSource.register(PostgresSnapshot)
