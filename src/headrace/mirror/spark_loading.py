"""Read units of a load on a session's executors: rows go from the database into files without the driver."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headrace.config.mirror import is_url
from headrace.errors import HeadraceError, Kind, unexpected
from headrace.mirror.lake import Lake, check_answers
from headrace.mirror.load_units import LoadedUnit, LoadUnit, load_in_threads, load_unit
from headrace.mirror.waiting import UNEXPECTED
from headrace.spark.session import places_beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST = 8
"""So many units are read at once at most: each has a connection to the database."""


class ExecutorLoader:
    """Loads units of Delta tables by tasks of a session; a `UnitLoader`.

    Args:
        session: its executors reach the database and the lake, and have Headrace.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __call__(self, lake: Lake, units: Iterator[LoadUnit]) -> Iterator[LoadedUnit]:
        """Load units, some at once; yield each when it is done.

        Raises:
            HeadraceError: what a task's `load_unit` raised; SINK_UNREACHABLE, where a task ended otherwise.
            OSError: a table cannot be written, and its task reaches the lake.
            TypeError, ValueError, NotImplementedError, KeyError, ArrowException: of a table's values.
        """
        from headrace.mirror.delta import DeltaLake  # noqa: PLC0415 - Iceberg's mirrors do without deltalake

        location = lake.location if is_url(lake.location) else str(Path(lake.location).absolute())
        # The query that follows the log needs a place of its own.
        places = min(_MOST, places_beside(self._session))
        yield from load_in_threads(DeltaLake(location, lake.file_bytes), units, self._load, places)

    def _load(self, lake: Lake, unit: LoadUnit) -> LoadedUnit:
        task = self._session.sparkContext.parallelize([unit], 1).map(functools.partial(load_in_task, lake))
        try:
            [loaded] = task.collect()
        except (PySparkException, Py4JError) as error:
            # A task's own error is a line of Spark's text.
            raise HeadraceError.find(str(error)) or unexpected(
                f"rows of {unit.table.name} were not read by Spark's executors", error, Kind.SINK_UNREACHABLE
            ) from error
        if isinstance(loaded, LoadedUnit):
            return loaded
        raise loaded


def load_in_task(lake: Lake, unit: LoadUnit) -> LoadedUnit | Exception:
    """Do what `load_unit` does, in a task; return what is wrong with the table alone: raised, it is text."""
    try:
        return load_unit(lake, unit)
    except OSError as error:
        check_answers(lake, error)
        return error
    except UNEXPECTED as error:
        return error
