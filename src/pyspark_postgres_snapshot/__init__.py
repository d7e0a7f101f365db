"""Found by Spark under its own name: makes `format("postgres_snapshot")` work without a call.

Spark imports this module whenever it looks for any source written in Python, so it loads little.
"""

from __future__ import annotations

import pyspark
from pyspark.sql.datasource import DataSource

from headrace.spark.environment import check_version

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Makes a `PostgresSnapshot`, which is imported when a query uses it.

    Raises:
        HeadraceError: DEPENDENCY: this PySpark is too old for it.
    """

    def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]  # noqa: D102
        check_version(pyspark.__version__, cls.name())
        from headrace.datasources.postgres_snapshot import PostgresSnapshot  # noqa: PLC0415

        return PostgresSnapshot(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "postgres_snapshot"
