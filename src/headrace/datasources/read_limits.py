"""What Spark tells a streaming source about the size of a batch; PySpark 4.0 and 4.1 have no words for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:
        from dataclasses import dataclass

        class ReadLimit:
            """How much a batch may hold."""

        class ReadAllAvailable(ReadLimit):
            """As much as there is."""

        @dataclass(frozen=True)
        class ReadMaxRows(ReadLimit):
            """Up to so many rows."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """Marks a source that knows where `availableNow` ends; these versions do not ask for it."""


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
