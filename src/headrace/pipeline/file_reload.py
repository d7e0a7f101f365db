"""Take up changed files in a run: read and check them beside the query, then let it go on with them.

Where the running query cannot, the run sets up again with the same Spark session, as after an altered table.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import ErrorGroup, HeadraceError
from headrace.model.failpoints import reach
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Project
from headrace.pipeline.reloading import (
    ReloadRequests,
    ReloadResult,
    Reloads,
    Replan,
    load_checked,
    raise_all,
)
from headrace.pipeline.start import Start
from headrace.pipeline.stopping import Stopping
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect
from headrace.sinks.opensearch.lease import Lease
from headrace.sinks.opensearch.reload_request import ReloadRequest
from headrace.status.board import StatusBoard


class FileReload:
    """Takes up changed files; used from the run's thread.

    Args:
        project: the project that the run begins with.
        starter: sets up what changed files need.
        document: the request that comes through the cluster.
        on_complete: called with the project once it is taken up.

    Attributes:
        project: the project that was taken up last.
        lease: the lease of the run, once there is one.
    """

    lease: Lease | None = None
    _checked: Inspection

    def __init__(
        self,
        project: Project,
        endpoints: Endpoints,
        board: StatusBoard,
        stopping: Stopping,
        starter: Start,
        *,
        requests: ReloadRequests | None,
        document: ReloadRequest,
        on_complete: Callable[[Project], None],
    ) -> None:
        self.project = project
        self._endpoints = endpoints
        self._board = board
        self._stopping = stopping
        self._starter = starter
        self._requests = requests or ReloadRequests(lambda: (project, ()))
        self._reloads = Reloads(self._requests, document, board)
        self._on_complete = on_complete
        self._result = ReloadResult()

    def check(self, generation_log: GenerationLog) -> bool:
        """Check the files where somebody has asked for that; set up what they need in the database.

        Returns whether they are to be taken up now. Where not, who asked has the answer, and nothing has
        changed.
        """
        if not self._reloads.is_requested():
            return False
        try:
            with self._stopping.interrupting():
                self._checked = self._inspect()
        except HeadraceError as error:
            self._reloads.refuse(error)
            return False
        reach("checked")
        project, hashes = self._checked.project, self._checked.hashes(self._checked.project.primary)
        self._result = ReloadResult.between(generation_log.manager.hashes, hashes)
        is_same = (project.deployment, project.targets) == (self.project.deployment, self.project.targets)
        if self._result == ReloadResult() and is_same and generation_log.has_all(hashes):
            self._reloads.complete(self._result)
            return False
        return True

    def plan(self, generation_log: GenerationLog) -> Replan | None:
        """Plan for the files that were checked; None where only a new query can take them up.

        Raises:
            HeadraceError: SCHEMA_CHANGED: a table was altered since the check. An error of either server.
        """
        return self._starter.replan(self._checked, generation_log.state)

    def adopt(self) -> Project:
        """Go on with the files that were checked; return their project."""
        self.project = self._checked.project
        self._starter.change_project(self.project)
        self._board.set_indexes(self.project.specs)
        return self.project

    def complete(self) -> None:
        """Tell who asked that the files are taken up."""
        self._on_complete(self.project)
        self._reloads.complete(self._result)

    def _inspect(self) -> Inspection:
        """Read the files and inspect the database for them; publication and replica identities are extended.

        Raises:
            ErrorGroup: every mistake.
        """
        project, errors = load_checked(self._requests.load, self.project)
        if project is None:
            raise ErrorGroup(tuple(errors))
        with connect(self._endpoints.database, application_name="headrace run") as connection:
            inspection = inspect(project, self._endpoints, connection)
            raise_all([*errors, *inspection.errors()])
            if self.lease is not None:
                self.lease.hold(project.specs)
            if inspection.setup.steps:
                self._starter.execute_setup(connection, inspection)
                inspection = inspect(project, self._endpoints, connection)
                inspection.raise_errors()
        return inspection
