"""What has to be altered in the database before its changes can be followed: shown first, then done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.pipeline.inspection import inspect
from headrace.pipeline.project import Project
from headrace.postgres.connection import connect
from headrace.postgres.ddl_plan import SetupPlan, Step, execute_plan, render
from headrace.reporter import Reporter


@dataclass(frozen=True, slots=True)
class PlannedSetup:
    """A publication and replica identities, as SQL; the slot is made by the first run, with its snapshot."""

    plan: SetupPlan
    _database: str = field(repr=False)
    _reporter: Reporter = field(repr=False)

    @property
    def steps(self) -> Sequence[Step]:
        """What is to be done, one statement or more each, with its lock, its cost and its undo."""
        return self.plan.steps

    @property
    def warnings(self) -> Sequence[str]:
        """What should be known before."""
        return self.plan.warnings

    @property
    def sql(self) -> str:
        """All of it, as it can be run by somebody else; empty where nothing is to be done."""
        return render(self.plan.steps) if self.plan.steps else ""

    def apply(self) -> None:
        """Do it, a step after the other; what is done already is not done again.

        Raises:
            HeadraceError: what the server refuses.
        """
        with connect(self._database, application_name="headrace setup") as connection:
            execute_plan(self.plan, connection, lambda step: self._reporter.info(step.why))


def plan_setup(project: Project, reporter: Reporter) -> PlannedSetup:
    """What the documents need of the database and is not there; nothing is altered.

    Raises:
        HeadraceError: what keeps it from being done.
    """
    endpoints = project.resolve()
    with connect(endpoints.database, application_name="headrace setup") as connection:
        inspection = inspect(project, endpoints, connection, policy="auto", reading=False)
    inspection.raise_errors()
    return PlannedSetup(inspection.setup, endpoints.database, reporter)
