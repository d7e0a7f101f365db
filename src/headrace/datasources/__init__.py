"""The two data sources for Spark users: `postgres_cdc` and `postgres_snapshot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark.environment import check_version, check_workers
from headrace.spark.process import leave_out_pandas_while_planning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

leave_out_pandas_while_planning()  # before a module of this package makes the first value of PyArrow


def register(spark: SparkSession) -> None:
    """Register both sources with `spark`; harmless if they are registered already.

    Needed only where Spark does not find the top-level modules `pyspark_postgres_…` by itself.

    Raises:
        HeadraceError: DEPENDENCY, where this PySpark is too old, or where a local session starts workers that
            cannot import Headrace.
    """
    check_version("postgres_cdc")
    check_workers(spark)
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - PySpark is loaded only when asked for

    from headrace.datasources.postgres_cdc import PostgresCdc  # noqa: PLC0415 - as above
    from headrace.datasources.postgres_snapshot import PostgresSnapshot  # noqa: PLC0415 - as above

    for source in (PostgresCdc, PostgresSnapshot):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # PySpark 4.0 takes no source by the name of one that it has found by itself.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
