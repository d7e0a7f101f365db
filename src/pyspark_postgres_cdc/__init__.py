"""Found by Spark under its own name: makes `format("postgres_cdc")` work without a call."""

from headrace.spark.source import PostgresCdc as DefaultSource

__all__ = ["DefaultSource"]
