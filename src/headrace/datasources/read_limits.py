"""What Spark tells a streaming source about the size of a batch; PySpark 4.0 and 4.1 have no words for it."""

from __future__ import annotations

from collections import namedtuple

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # these versions ask for none of them, so any object will do
    ReadLimit = ReadAllAvailable = SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]
    ReadMaxRows = namedtuple("ReadMaxRows", "max_rows")  # type: ignore[no-redef] # noqa: PYI024

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
