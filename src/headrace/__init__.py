"""Headrace leads PostgreSQL's write-ahead log to Spark and to search documents that are always right.

Importing this package loads neither PySpark nor a database driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.datasources.typed_options import PostgresSource
    from headrace.mirror.mirror import Mirror
    from headrace.pipeline.pipeline import Pipeline
    from headrace.reporter import LoggingReporter, Reporter

__all__ = [
    "HeadraceError",
    "LoggingReporter",
    "Mirror",
    "Pipeline",
    "PostgresSource",
    "Reporter",
    "__version__",
]


def __getattr__(name: str) -> object:
    """What needs more than the standard library is loaded when it is asked for."""
    if name == "PostgresSource":
        from headrace.datasources.typed_options import PostgresSource  # noqa: PLC0415

        return PostgresSource
    if name == "Mirror":
        from headrace.mirror.mirror import Mirror  # noqa: PLC0415

        return Mirror
    if name == "Pipeline":
        from headrace.pipeline.pipeline import Pipeline  # noqa: PLC0415

        return Pipeline
    if name in {"LoggingReporter", "Reporter"}:
        from headrace import reporter  # noqa: PLC0415

        return getattr(reporter, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
