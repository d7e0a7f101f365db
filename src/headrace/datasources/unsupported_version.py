"""What stands for our sources in a PySpark that is too old for them?

Spark imports every module whose name begins with `pyspark_` when it looks for any source written in Python:
an import that fails there would take everybody else's sources away too. So the names are there, and loading
says why not.
"""

from __future__ import annotations

import pyspark
from pyspark.sql.datasource import DataSource

from headrace.spark.version import check_version


class _Refused(DataSource):
    def __init__(self, options: dict[str, str]) -> None:
        check_version(pyspark.__version__, self.name())
        super().__init__(options)


class RefusedCdc(_Refused):
    """`postgres_cdc`; loading it raises HeadraceError, DEPENDENCY."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "postgres_cdc"


class RefusedSnapshot(_Refused):
    """`postgres_snapshot`; loading it raises HeadraceError, DEPENDENCY."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "postgres_snapshot"
