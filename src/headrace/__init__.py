"""Headrace leads PostgreSQL's write-ahead log to Spark and to search documents that are always right.

Importing this package loads neither PySpark nor a database driver.
"""

__all__ = ["HeadraceError", "__version__"]

from headrace.errors import HeadraceError

__version__ = "0.1.0"
