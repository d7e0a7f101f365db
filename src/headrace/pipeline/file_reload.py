"""Take up changed files in a run: read and check them beside the query, then let it go on with them.

Where the running query cannot, the run sets up again with the same Spark session, as after an altered table.
An index whose schema file does not fit the database any more waits: it is inspected again now and then.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from headrace.errors import ErrorGroup, HeadraceError, Kind, Retry
from headrace.model.failpoints import reach
from headrace.pipeline.fitting import inspect_fitting
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Project
from headrace.pipeline.reloading import (
    ReloadRequests,
    ReloadResult,
    Reloads,
    Replan,
    check_code,
    load_checked,
    raise_all,
)
from headrace.pipeline.start import Start
from headrace.pipeline.stopping import Stopping
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.state.lease import Lease
from headrace.state.reload_request import ReloadRequest
from headrace.status.board import IndexPhase, StatusBoard

_LOOK_SECONDS = 5.0
_REFUSED_SECONDS = 300.0
_FROM_FILES = frozenset(
    {Kind.SINK_REJECTED, Kind.SCHEMA, Kind.BINDING, Kind.CONFIG, Kind.TRANSFORM, Kind.PRIVILEGE}
)
"""Errors that changed files may have brought, and that the former files do not."""


class FileReload:
    """Takes up changed files; used from the run's thread.

    Args:
        project: the project that the run begins with.
        starter: sets up what changed files need.
        lease: holds the leases of the indexes.
        requests: the requests of this process; None: the files stay as they are.
        document: the request that comes through the cluster.
        on_complete: called with the project once it is taken up.

    Attributes:
        project: what the run follows: the files that were taken up last, without the indexes that wait.
        is_refused: whether a server has refused what the checked files need, so that the former ones stay.
    """

    _checked: Inspection

    def __init__(
        self,
        project: Project,
        endpoints: Endpoints,
        board: StatusBoard,
        stopping: Stopping,
        starter: Start,
        *,
        lease: Lease,
        requests: ReloadRequests | None,
        document: ReloadRequest,
        on_complete: Callable[[Project], None],
    ) -> None:
        self.project = project
        self.is_refused = False
        self._files = self._checked_files = self._former = project
        self._refused: Project | None = None
        self._endpoints = endpoints
        self._board = board
        self._stopping = stopping
        self._starter = starter
        self._lease = lease
        self._requests = requests or ReloadRequests(lambda: (project, ()))
        self._reloads = Reloads(self._requests, document, board)
        self._on_complete = on_complete
        self._result = ReloadResult()
        self._next_look = 0.0
        self._shown_misfit = ""

    def read_again(self) -> None:
        """Go on with the files as they are now, before a run that stood by takes over.

        Where they have mistakes, go on with what was read at the start.
        """
        project, errors = load_checked(self._requests.load, self.project)
        if project is None or errors:
            self._reloads.refuse(ErrorGroup(tuple(errors)))
            return
        self._files = self._checked_files = project
        self._follow(project)

    def check(self, generation_log: GenerationLog) -> bool:
        """Check the files where somebody has asked for that, or where they may fit the database now.

        What they need in the database is set up. Returns whether they are to be taken up now. Where not, who
        asked has the answer, and nothing has changed.
        """
        is_requested = self._reloads.is_requested()
        if not is_requested and not self._is_due():
            return False
        try:
            with (
                self._stopping.interrupting(),
                connect(self._endpoints.database, application_name="headrace run") as connection,
            ):
                found = self._inspect(connection) if is_requested else self._inspect_waiting(connection)
        except HeadraceError as error:
            if is_requested:
                self._reloads.refuse(error)
            elif error.retry is not Retry.BACK_OFF:
                raise
            return False
        if found is None:
            return False
        self._checked, self._former, self.is_refused = found, self._files, False
        reach("checked")
        project, hashes = found.project, found.hashes(found.project.primary)
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
        self._files = self._checked_files
        self._refused = None
        self._follow(self._checked.project)
        return self.project

    def refuse(self, error: HeadraceError) -> bool:
        """Go on with the former files where the error may come from the checked ones; tell who asked.

        Returns False where the error has another reason.

        Raises:
            HeadraceError: SLOT_IN_USE: another process has taken an index of them.
        """
        if error.kind not in _FROM_FILES:
            return False
        self._files, self.is_refused = self._former, True
        self._next_look = time.monotonic() + _REFUSED_SECONDS
        self._lease.hold(self._former.specs)
        self._reloads.refuse(error)
        return True

    def complete(self) -> None:
        """Tell who asked that the files are taken up."""
        reach("joined")
        self._reloads.complete(self._result)

    def inspect_first(self, connection: Connection) -> Inspection:
        """Inspect the database at a start; a served index whose schema file does not fit any more waits.

        Raises:
            ErrorGroup: no index fits, or one does not that readers have never seen; a problem of the server.
        """
        inspection = self._starter.inspect_again(connection, self._files)
        if waiting := inspection.project.waiting:
            if not waiting.keys() <= self._starter.served_indexes():
                inspect(self._files, self._endpoints, connection).raise_errors()
            self._follow(inspection.project)
        return inspection

    def inspect_again(self, connection: Connection) -> Inspection:
        """Inspect the database after it was altered, for the indexes that can be followed now.

        Files that were refused are taken up where they fit now. Else indexes that do not fit wait.

        Raises:
            HeadraceError: no index can be followed; an error of the server.
        """
        if self._refused is not None:
            with contextlib.suppress(ErrorGroup):
                inspection = self._starter.inspect_again(connection, self._refused)
                if not inspection.project.waiting:
                    self._files, self._refused = self._refused, None
                    self._follow(inspection.project)
                    return inspection
        inspection = self._starter.inspect_again(connection, self._files)
        self._shown_misfit = ""
        self._follow(inspection.project)
        return inspection

    def show_misfit(self, error: HeadraceError) -> None:
        """Show that no index can be followed, and why."""
        if (text := str(error)) == self._shown_misfit:
            return
        self._shown_misfit = text
        self._board.record_error(error)
        self._board.report.warning(f"no schema file fits the database; waiting until one does: {text}")
        for index in self._files.specs:
            self._board.index(index, phase=IndexPhase.BACKFILLING, error=text)

    def _follow(self, project: Project) -> None:
        self.project = project
        self._lease.release_others((*project.specs, *project.waiting))
        self._starter.change_project(project)
        self._board.set_indexes((*project.specs, *project.waiting))
        self._on_complete(project)

    def _is_due(self) -> bool:
        """Whether to look if files that did not fit the database fit it now."""
        if self._refused is None and not self.project.waiting:
            return False
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _LOOK_SECONDS
        return True

    def _inspect(self, connection: Connection) -> Inspection:
        """Read the files and inspect the database for them; publication and replica identities are extended.

        Raises:
            ErrorGroup: every mistake.
        """
        self._refused, self._next_look = None, 0.0  # an earlier refusal by the cluster delays nothing
        project, errors = load_checked(self._requests.load, self.project)
        if project is None:
            raise ErrorGroup(tuple(errors))
        errors += check_code(project)
        inspection = inspect(project, self._endpoints, connection)
        if not errors and inspection.errors():
            self._refused = project  # it may fit the database later
        raise_all([*errors, *inspection.errors()])
        return self._prepare(connection, project, inspection)

    def _inspect_waiting(self, connection: Connection) -> Inspection | None:
        """Inspect the database for files that did not fit it; None where that is still so."""
        if self._refused is not None:
            inspection = inspect(self._refused, self._endpoints, connection)
            return None if inspection.errors() else self._prepare(connection, self._refused, inspection)
        inspection = inspect_fitting(self._files, self._endpoints, connection)
        if inspection.errors() or inspection.project.waiting.keys() == self.project.waiting.keys():
            return None
        return self._prepare(connection, self._files, inspection)

    def _prepare(self, connection: Connection, files: Project, inspection: Inspection) -> Inspection:
        """Take the leases of added indexes, and set up what they need in the database."""
        self._checked_files = files
        self._lease.hold(inspection.project.specs)
        if not inspection.setup.steps:
            return inspection
        self._starter.execute_setup(connection, inspection)
        inspection = inspect(inspection.project, self._endpoints, connection)
        inspection.raise_errors()
        return inspection
