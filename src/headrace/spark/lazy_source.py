"""Let Spark find a source by the name of its module, and import the source when a query uses it."""

from __future__ import annotations

import abc

from pyspark.sql.datasource import DataSource

from headrace.spark.environment import check_version


class LazySource(DataSource):
    """Makes another source in its place.

    Spark imports every module whose name begins with `pyspark_` when it looks for any source written in
    Python. So such a module loads little, and can be imported in a PySpark that is too old for the source.

    Raises:
        HeadraceError: DEPENDENCY: this PySpark is too old.
    """

    def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]  # noqa: D102
        check_version(cls.name())
        return cls.load()(options)

    @classmethod
    @abc.abstractmethod
    def load(cls) -> type[DataSource]:
        """Import the source."""
