"""Found by Spark under its own name: makes `format("postgres_snapshot")` work without a call."""

import pyspark

from headrace.spark.version import is_served

if is_served(pyspark.__version__):
    from headrace.spark.snapshot_source import PostgresSnapshot as DefaultSource
else:
    from headrace.spark.refused import RefusedSnapshot as DefaultSource  # type: ignore[assignment]

__all__ = ["DefaultSource"]
