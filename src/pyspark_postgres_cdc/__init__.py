"""Found by Spark under its own name: makes `format("postgres_cdc")` work without a call."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from headrace.spark.lazy_source import LazySource

__all__ = ["DefaultSource"]


class DefaultSource(LazySource):
    """Makes a `PostgresCdc`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "postgres_cdc"

    @classmethod
    def load(cls) -> type[DataSource]:
        """Import the source."""
        from headrace.datasources.postgres_cdc import PostgresCdc  # noqa: PLC0415 - see `LazySource`

        return PostgresCdc
