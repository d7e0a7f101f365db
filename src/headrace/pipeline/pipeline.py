"""Describe a deployment as an object: the API of Python programs and of the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, Unpack

from headrace.config.keys import IndexKeys, OpenSearchKeys, PipelineKeys, SourceKeys
from headrace.config.load import deployment_of
from headrace.errors import ErrorGroup
from headrace.pipeline.project import Project, open_loadable, project_of
from headrace.pipeline.reloads import Load
from headrace.pipeline.run_options import RunOptions
from headrace.pipeline.running import RunningPipeline
from headrace.reporter import Reporter, SilentReporter
from headrace.spark.session import SparkSession
from headrace.tools.check import CheckReport, check
from headrace.tools.index_cost import IndexCost, measure_cost
from headrace.tools.setup import PlannedSetup, plan_setup, plan_teardown

Values = Mapping[str, Any]


class Pipeline:
    """A deployment that keeps search documents in step with PostgreSQL tables, from a file or from values.

    Args:
        source: the keys of `[source]` in a deployment file.
        sinks: the keys of `[sinks.NAME]`, by name.
        indexes: by name, the schema file of an index, or the keys of `[[index]]`.
        reporter: receives progress and warnings; None: they are dropped.
        environ: values of the variables that the settings name; None: the environment of the process.
        settings: the other keys of a deployment file, like `prefix` and `on_error`.

    Raises:
        HeadraceError: CONFIG, SCHEMA; every mistake at once.
    """

    def __init__(
        self,
        *,
        source: SourceKeys | Values,
        sinks: Mapping[str, OpenSearchKeys | Values],
        indexes: Mapping[str, str | Path | IndexKeys | Values],
        reporter: Reporter | None = None,
        environ: Mapping[str, str] | None = None,
        **settings: Unpack[PipelineKeys],
    ) -> None:
        entries = [
            {"name": name, **(index if isinstance(index, Mapping) else {"schema": str(index)})}
            for name, index in indexes.items()
        ]
        values = {
            **settings,
            "source": {"type": "postgres", **source},
            "sinks": dict(sinks),
            "index": entries,
        }
        variables = os.environ if environ is None else environ
        self._initialize(lambda: project_of(deployment_of(values, variables)), reporter)

    @classmethod
    def from_file(
        cls,
        config: str | Path = "headrace.toml",
        *,
        slot: str | None = None,
        publication: str | None = None,
        reporter: Reporter | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Load the pipeline that a deployment file describes.

        Args:
            config: the path of the deployment file.
            slot: overrides the file's slot.
            publication: overrides the file's publication.
            reporter: receives progress and warnings; None: they are dropped.
            environ: values of the variables that the file names; None: the environment of the process.

        Raises:
            HeadraceError: CONFIG, SCHEMA, USAGE; every mistake at once.
        """
        pipeline = cls.__new__(cls)
        variables = os.environ if environ is None else environ
        pipeline._initialize(  # noqa: SLF001 - a second constructor
            lambda: open_loadable(Path(config), variables, slot=slot, publication=publication), reporter
        )
        return pipeline

    def _initialize(self, load: Load, reporter: Reporter | None) -> None:
        project, errors = load()
        if project is None or errors:
            raise ErrorGroup(errors)
        self.project: Project = project
        self._load = load
        self._reporter = SilentReporter() if reporter is None else reporter

    def check(self) -> CheckReport:
        """Check database and sinks against the files; nothing that exists is altered.

        Raises:
            HeadraceError: CONFIG, where a variable is not set. Everything else stands in the report.
        """
        report = CheckReport(indexes=[*self.project.specs])
        check(self.project, report)
        return report

    def measure_cost(self, index: str) -> IndexCost:
        """Measure what an index pays for each field, on a sample of documents; reads the database alone.

        Raises:
            HeadraceError: USAGE for an unknown index; an error of the database, or of the index's transform.
        """
        return measure_cost(self.project, index)

    def plan_setup(self) -> PlannedSetup:
        """Plan what is missing in the database; nothing is altered before `apply`.

        Raises:
            HeadraceError: an error that makes the set-up impossible.
        """
        return plan_setup(self.project, self._reporter)

    def start(
        self,
        *,
        spark: SparkSession | None = None,
        master: str = "local[*]",
        conf: Mapping[str, str] | None = None,
        address: str | None = None,
        private_address: str | None = None,
        standby: bool = False,
    ) -> RunningPipeline:
        """Return a run that lasts while its context is entered; indexes that are not complete are backfilled.

        Args:
            spark: your own Spark session, which you stop; None: a session is created and ends with the run.
            master: the master of the session that is created.
            conf: Spark settings of the session that is created.
            address: `HOST:PORT` that serves /status and the other endpoints; None serves nothing.
            private_address: `HOST:PORT` that takes orders from holders of the deployment's tokens; None:
                nothing does.
            standby: while another process runs this deployment, wait to take over.

        Raises:
            HeadraceError: CONFIG: a variable is not set. Entering the context raises the error of a port that
                is taken. The methods that wait, or leaving the context, raise the error that ended the run.
        """
        options = RunOptions(master=master, conf=dict(conf or {}), session=spark, standby=standby)
        return RunningPipeline(
            self.project,
            self._reporter,
            options,
            load=self._load,
            address=address,
            private_address=private_address,
        )

    def teardown(self, *, indexes: bool = False) -> None:
        """Drop slot and publication, and restore replica identities; with `indexes` also delete the indexes.

        Raises:
            HeadraceError: SLOT_IN_USE while a run is alive; an error of the server or the cluster.
        """
        with plan_teardown(self.project, self._reporter, indexes=indexes, moved=False) as planned:
            planned.apply()
