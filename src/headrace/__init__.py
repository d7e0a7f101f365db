"""Headrace leads PostgreSQL's write-ahead log to Spark and to search documents that are always right.

Importing this package loads neither PySpark nor a database driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.datasources.typed_options import PostgresSource

__all__ = ["HeadraceError", "PostgresSource", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """What needs more than the standard library is loaded when it is asked for."""
    if name == "PostgresSource":
        from headrace.datasources.typed_options import PostgresSource  # noqa: PLC0415

        return PostgresSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
