"""Hold the options of one run that the deployment file does not hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.config.deployment import OnGap
from headrace.logs import LogFormat, LogLevel
from headrace.pipeline.project import Project
from headrace.spark.session import SparkSession, master_of
from headrace.spark.settings import is_local


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run that the deployment file does not hold.

    Attributes:
        conf: Spark settings of the user.
        on_gap: overrides `source.on_gap` of the deployment file.
        session: a Spark session that the caller created and stops. None: the run creates its own.
        standby: while another process runs this deployment, wait to take over instead of refusing to start.
    """

    master: str = "local[*]"
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.TEXT
    conf: Mapping[str, str] = field(default_factory=dict)
    on_gap: OnGap | None = None
    session: SparkSession | None = None
    standby: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the run's tasks run on this machine, in the session that it is given or creates."""
        return is_local(self.master if self.session is None else master_of(self.session))

    def apply_to(self, project: Project) -> Project:
        """Return the project with the policy that the run was given."""
        if self.on_gap is None:
            return project
        source = project.deployment.source.model_copy(update={"on_gap": self.on_gap})
        deployment = project.deployment.model_copy(update={"source": source})
        return dataclasses.replace(project, deployment=deployment)
