"""Describe a mirror as an object: the API of Python programs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from headrace.config.keys import MirroredTablesKeys, MirrorKeys, SourceKeys
from headrace.config.load import deployment_of, load_deployment
from headrace.mirror.run import open_mirror
from headrace.mirror.verify import TableComparison
from headrace.model.table_pattern import one_table
from headrace.reporter import Reporter, SilentReporter
from headrace.spark.session import given_spark, local_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.config.deployment import Deployment


class Mirror:
    """Tables of a lake that are as PostgreSQL's are, from a file or from values.

    Args:
        source: the keys of `[source]` in a deployment file.
        location: a folder, or a URL of an object store.
        tables: the keys of each `[[mirror.tables]]`, or the names of tables that are mirrored as they are.
        reporter: receives progress and warnings; None: they are dropped.
        environ: values of the variables that the settings name; None: the environment of the process.
        settings: the other keys of `[mirror]`, like `interval` and `slot`.

    Raises:
        HeadraceError: CONFIG; every mistake at once.
    """

    def __init__(
        self,
        *,
        source: SourceKeys | Mapping[str, Any],
        location: str | Path,
        tables: Sequence[str | MirroredTablesKeys | Mapping[str, Any]],
        reporter: Reporter | None = None,
        environ: Mapping[str, str] | None = None,
        **settings: Unpack[MirrorKeys],
    ) -> None:
        parts = [{"tables": [part]} if isinstance(part, str) else dict(part) for part in tables]
        values = {
            "source": {"type": "postgres", **source},
            "mirror": {**settings, "location": str(location), "tables": parts},
        }
        self._initialize(deployment_of(values, os.environ if environ is None else environ), reporter)

    @classmethod
    def from_file(
        cls,
        config: str | Path = "headrace.toml",
        *,
        reporter: Reporter | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Load the mirror that a deployment file describes.

        Args:
            config: the path of the deployment file.
            reporter: receives progress and warnings; None: they are dropped.
            environ: values of the variables that the file names; None: the environment of the process.

        Raises:
            HeadraceError: CONFIG; every mistake at once.
        """
        mirror = cls.__new__(cls)
        variables = os.environ if environ is None else environ
        mirror._initialize(load_deployment(Path(config), variables), reporter)  # noqa: SLF001 - a second constructor
        return mirror

    def _initialize(self, deployment: Deployment, reporter: Reporter | None) -> None:
        self._stopping = threading.Event()
        report = SilentReporter() if reporter is None else reporter
        self._tables = open_mirror(deployment, report, self._stopping)

    def sync(self, *, spark: SparkSession | None = None, reload: bool = False) -> None:
        """Load what is not loaded, and write all that was committed up to now.

        Args:
            spark: your own classic Spark session, which you stop; None: one is made for it.
            reload: read all tables again first.

        Raises:
            HeadraceError: what the database, the lake or Spark refuse; BEHIND: another thread called `stop`.
        """
        self._run(spark, once=True, reload=reload)

    def run(self, *, spark: SparkSession | None = None, reload: bool = False) -> None:
        """Load what is not loaded, then follow until another thread calls `stop`.

        Args:
            spark: as of `sync`.
            reload: as of `sync`.

        Raises:
            HeadraceError: what the database, the lake or Spark refuse, and waiting does not mend.
        """
        self._run(spark, once=False, reload=reload)

    def _run(self, spark: SparkSession | None, *, once: bool, reload: bool) -> None:
        try:
            if spark is None:
                opened = local_spark(given=self._tables.session_settings({}, os.environ))
            else:
                opened = given_spark(spark)
            with opened as session:
                self._tables.run(session, once=once, reload=reload)
        finally:
            self._stopping.clear()

    def stop(self) -> None:
        """Let `run` or `sync`, now or when it begins, finish its batch and end."""
        self._stopping.set()

    def verify(self, *tables: str, repair: bool = False) -> Iterator[TableComparison]:
        """Compare tables with the database, also while the mirror runs; yield what each comparison found.

        Args:
            tables: their names, as in `"public.orders"`; none: all.
            repair: read tables again that differ; the mirror must not run.

        Raises:
            HeadraceError: SLOT_IN_USE, to repair while it runs; BINDING, no such table is mirrored.
            ValueError: a table's name cannot be read.
        """
        names = [one_table(name) for name in tables]
        yield from self._tables.mirrored.comparer().compare(names, repair=repair)
