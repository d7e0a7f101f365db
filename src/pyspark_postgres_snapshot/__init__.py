"""Found by Spark under its own name: makes `format("postgres_snapshot")` work without a call."""

from headrace.spark.snapshot_source import PostgresSnapshot as DefaultSource

__all__ = ["DefaultSource"]
