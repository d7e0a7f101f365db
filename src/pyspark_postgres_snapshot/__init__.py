"""Found by Spark under its own name: makes `format("postgres_snapshot")` work without a call."""

import pyspark

from headrace.spark.environment import is_supported

if is_supported(pyspark.__version__):
    from headrace.datasources.postgres_snapshot import PostgresSnapshot as DefaultSource
else:
    from headrace.datasources.unsupported_version import RefusedSnapshot as DefaultSource  # type: ignore[assignment]

__all__ = ["DefaultSource"]
