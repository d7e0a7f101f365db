"""Stand-ins for the sources in a PySpark that is too old for them.

Spark imports every module whose name begins with `pyspark_` when it looks for any source written in Python.
If such an import failed, no Python source could be loaded. So the modules exist, and loading one of these
sources explains why it does not work.
"""

from __future__ import annotations

import pyspark
from pyspark.sql.datasource import DataSource

from headrace.spark.environment import check_version


class _Refused(DataSource):
    def __init__(self, options: dict[str, str]) -> None:
        check_version(pyspark.__version__, self.name())
        super().__init__(options)


class RefusedCdc(_Refused):
    """Stands for `postgres_cdc`; loading it raises HeadraceError, DEPENDENCY."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "postgres_cdc"


class RefusedSnapshot(_Refused):
    """Stands for `postgres_snapshot`; loading it raises HeadraceError, DEPENDENCY."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "postgres_snapshot"
