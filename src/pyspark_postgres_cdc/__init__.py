"""Found by Spark under its own name: makes `format("postgres_cdc")` work without a call."""

import pyspark

from headrace.spark.environment import is_supported

if is_supported(pyspark.__version__):
    from headrace.datasources.postgres_cdc import PostgresCdc as DefaultSource
else:
    from headrace.datasources.unsupported_version import RefusedCdc as DefaultSource  # type: ignore[assignment]

__all__ = ["DefaultSource"]
