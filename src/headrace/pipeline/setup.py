"""Plan what must be altered in the database before its changes can be followed, and apply the plan."""

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
    """Planned publication and replica identities; the first run creates the slot, with its snapshot."""

    plan: SetupPlan
    _database: str = field(repr=False)
    _reporter: Reporter = field(repr=False)

    @property
    def steps(self) -> Sequence[Step]:
        """The planned steps: one statement or more each, with its lock, its cost and its undo."""
        return self.plan.steps

    @property
    def warnings(self) -> Sequence[str]:
        """What the operator should know before."""
        return self.plan.warnings

    @property
    def sql(self) -> str:
        """The whole plan as SQL that another role can run; empty where nothing is to be done."""
        return render(self.plan.steps) if self.plan.steps else ""

    def apply(self) -> None:
        """Execute the steps in order; a step that is done already is not repeated.

        Raises:
            HeadraceError: an error of the server.
        """
        with connect(self._database, application_name="headrace setup") as connection:
            execute_plan(self.plan, connection, lambda step: self._reporter.info(step.why))


def plan_setup(project: Project, reporter: Reporter) -> PlannedSetup:
    """Plan what the documents need in the database and is missing; nothing is altered.

    Raises:
        HeadraceError: an error that makes the set-up impossible.
    """
    endpoints = project.resolve()
    with connect(endpoints.database, application_name="headrace setup") as connection:
        inspection = inspect(project, endpoints, connection, policy="auto", reading=False)
    inspection.raise_errors()
    return PlannedSetup(inspection.setup, endpoints.database, reporter)
