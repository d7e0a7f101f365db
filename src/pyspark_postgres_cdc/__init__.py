"""Found by Spark under its own name: makes `format("postgres_cdc")` work without a call."""

import pyspark

from headrace.spark.version import is_served

if is_served(pyspark.__version__):
    from headrace.spark.source import PostgresCdc as DefaultSource
else:
    from headrace.spark.refused import RefusedCdc as DefaultSource  # type: ignore[assignment]

__all__ = ["DefaultSource"]
