"""Found by Spark under its own name: makes `format("postgres_cdc")` work without a call."""

import pyspark

from headrace.spark.version import is_served

if is_served(pyspark.__version__):
    from headrace.datasources.postgres_cdc import PostgresCdc as DefaultSource
else:
    from headrace.datasources.unsupported_version import RefusedCdc as DefaultSource  # type: ignore[assignment]

__all__ = ["DefaultSource"]
