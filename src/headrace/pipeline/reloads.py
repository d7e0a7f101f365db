"""Take up changed files in a run: read and check them as a whole, then go on with them.

Where anything is wrong nothing changes, and who ordered it is told every mistake. Files that only do not fit
the database are tried again now and then: the database may fit them later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headrace.errors import ErrorGroup, HeadraceError, in_one_line
from headrace.model.failpoints import reach
from headrace.pipeline.controller.desired import OpenOrder
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Project, error_list
from headrace.pipeline.reloading import Load, ReloadResult, check_code, load_checked
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.state import StateStore
from headrace.state.lease import Lease
from headrace.status.board import StatusBoard

_LOOK_SECONDS = 5.0


class Reloads:
    """Reads the files of one run again; used from the run's thread, see `FilesPort`.

    Args:
        load: reads the files; None: they stay as they are.
        definitions: goes on with them.
        endpoints: of the deployment.
        lease: holds the leases of the indexes.
        store: the state of the pipeline.
        board: shows why the files that lie there are not taken up.
        on_adopted: called once other files hold.

    Attributes:
        results: what changed by a reload, in words, by the order's id.
        refusals: why the files that a reload has read are refused, by the order's id.
    """

    def __init__(
        self,
        load: Load | None,
        definitions: Definitions,
        endpoints: Endpoints,
        *,
        lease: Lease,
        store: StateStore,
        board: StatusBoard,
        on_adopted: Callable[[Project], None],
    ) -> None:
        self.results: dict[str, str] = {}
        self.refusals: dict[str, str] = {}
        self._errors: dict[str, HeadraceError] = {}
        self._data: dict[str, ReloadResult] = {}
        self._load = load or (lambda: (definitions.project, ()))
        self._definitions = definitions
        self._endpoints = endpoints
        self._lease = lease
        self._store = store
        self._board = board
        self._on_adopted = on_adopted
        self._refused: Project | None = None
        self._next = 0.0

    def read(self, order: OpenOrder) -> None:
        """Read and check the files; `results` or `refusals` has the order then.

        Raises:
            HeadraceError: the database does not answer; it may be tried again.
        """
        self._refused = None
        project, errors = load_checked(self._load, self._definitions.project)
        inspection = None
        if project is not None:
            errors += check_code(project)
            with connect(self._endpoints.database, application_name="headrace run") as connection:
                inspection = inspect(project, self._endpoints, connection)
            if not errors and inspection.errors(reseeds=True):
                self._refused = project
            errors += inspection.errors(reseeds=True)
        if project is not None and inspection is not None and not errors:
            try:
                self.results[order.id] = str(self._adopt(project, inspection, order))
            except HeadraceError as error:  # another process has an index of theirs
                self._refuse(order, [error])
        else:
            self._refuse(order, errors)

    def error_of(self, id_: str) -> HeadraceError | None:
        """Return every mistake for which a reload was refused; None where it was not."""
        return self._errors.get(id_)

    def result_of(self, id_: str) -> ReloadResult | None:
        """Return what changed by a reload; None where it was refused."""
        return self._data.get(id_)

    def try_again(self, connection: Connection) -> None:
        """Take files up that were refused, where they fit the database by now."""
        if self._refused is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK_SECONDS
        inspection = inspect(self._refused, self._endpoints, connection)
        if not inspection.errors(reseeds=True):
            project, self._refused = self._refused, None
            self._adopt(project, inspection)

    def _adopt(
        self, project: Project, inspection: Inspection, order: OpenOrder | None = None
    ) -> ReloadResult:
        """Go on with files, with the leases of the indexes that they add.

        Raises:
            HeadraceError: SLOT_IN_USE: another process has taken an index of them.
        """
        before = {unit.index: hash_ for unit, hash_ in self._definitions.hashes.items() if not unit.sink}
        result = ReloadResult.between(before, inspection.hashes(inspection.project.primary))
        self._lease.hold(project.specs)
        reach("checked")
        state = self._store.current
        self._definitions.adopt(project, () if state is None else state.generations)
        self._board.record_refused_reload(None)
        self._board.report.done(f"the files are taken up: {result}")
        if order is not None:
            self._data[order.id] = result
        self._on_adopted(project)
        return result

    def _refuse(self, order: OpenOrder, errors: Sequence[HeadraceError]) -> None:
        error = ErrorGroup(tuple(errors))
        text = in_one_line(error_list(error))
        self.refusals[order.id], self._errors[order.id] = text, error
        self._board.record_refused_reload(text)
        self._board.report.warning(f"the files are not taken up, nothing has changed: {text}")
