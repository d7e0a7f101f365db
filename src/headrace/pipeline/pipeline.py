"""A deployment as an object: the API of Python programs, and of the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from headrace.config import deployment_of
from headrace.pipeline.project import Problems, Project, open_project, project_of
from headrace.pipeline.run import RunOptions
from headrace.pipeline.running import RunningPipeline
from headrace.pipeline.setup import PlannedSetup, plan_setup
from headrace.pipeline.teardown import plan_teardown
from headrace.reporter import Reporter, SilentReporter
from headrace.spark.session import SparkSession

Values = Mapping[str, Any]


class Pipeline:
    """PostgreSQL's tables as search documents: one deployment, as a file or as values describe it.

    Args:
        source: what `[source]` of a deployment file holds.
        sinks: what `[sinks.NAME]` holds, by name.
        indexes: of each index its schema file, or what `[[index]]` holds beside its name.
        reporter: is told what happens; None: nobody.
        environ: where variables that the values name are looked up; None: the process's.
        settings: the other keys of a deployment file, like `prefix` and `on_error`.

    Raises:
        HeadraceError: CONFIG, SCHEMA; every mistake at once.
    """

    def __init__(
        self,
        *,
        source: Values,
        sinks: Mapping[str, Values],
        indexes: Mapping[str, str | Path | Values],
        reporter: Reporter | None = None,
        environ: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        entries = [
            {"name": name, **(one if isinstance(one, Mapping) else {"schema": str(one)})}
            for name, one in indexes.items()
        ]
        values = {
            **settings,
            "source": {"type": "postgres", **source},
            "sinks": dict(sinks),
            "index": entries,
        }
        project, errors = project_of(deployment_of(values, os.environ if environ is None else environ))
        if project is None or errors:
            raise Problems(errors)
        self._become(project, reporter)

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
        """The pipeline that a deployment file describes.

        Args:
            slot, publication: instead of the file's.

        Raises:
            HeadraceError: CONFIG, SCHEMA, USAGE; every mistake at once.
        """
        made = cls.__new__(cls)
        variables = os.environ if environ is None else environ
        made._become(open_project(Path(config), variables, slot=slot, publication=publication), reporter)  # noqa: SLF001
        return made

    def _become(self, project: Project, reporter: Reporter | None) -> None:
        self.project = project
        self._reporter = SilentReporter() if reporter is None else reporter

    def plan_setup(self) -> PlannedSetup:
        """What the documents need of the database and is not there; nothing is altered before `apply`.

        Raises:
            HeadraceError: what keeps it from being done.
        """
        return plan_setup(self.project, self._reporter)

    def start(
        self,
        *,
        spark: SparkSession | None = None,
        master: str = "local[*]",
        conf: Mapping[str, str] | None = None,
        address: str | None = None,
    ) -> RunningPipeline:
        """Run until the context that this returns is left; what is not filled is filled first.

        Args:
            spark: a session of your own, which stays yours; None: one is made, and ended with the run.
            master, conf: of the session that is made.
            address: `HOST:PORT` that serves /status and its like; None serves nothing.

        Raises:
            HeadraceError: CONFIG, where a variable is not set. A port that is taken is told where the context
                is entered, what ends the run by the methods that wait, or where the context is left.
        """
        options = RunOptions(master=master, conf=dict(conf or {}), session=spark)
        return RunningPipeline(self.project, self._reporter, options, address=address)

    def teardown(self, *, indexes: bool = False) -> None:
        """Drop slot and publication, put replica identities back; with `indexes` delete the indexes too.

        Raises:
            HeadraceError: SLOT_IN_USE while a run is alive; what server or cluster refuse.
        """
        with plan_teardown(self.project, self._reporter, indexes=indexes, moved=False) as planned:
            planned.apply()
