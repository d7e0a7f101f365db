"""Claim a deployment for this process: its turn, the lock of its slot, the leases of its indexes."""

from __future__ import annotations

import contextlib
import dataclasses

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.fitting import inspect_fitting
from headrace.pipeline.inspection import inspect
from headrace.pipeline.project import Project
from headrace.pipeline.reloads import Load
from headrace.pipeline.standby import Standby
from headrace.pipeline.stopping import Stopping
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.postgres.locks import SlotLock
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.endpoint import connection_warnings
from headrace.state import StateStore
from headrace.state.lease import Lease, read_slot_lease
from headrace.status.board import StatusBoard

_SINK_SECONDS = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Claimed:
    """What a process holds that runs a deployment.

    Attributes:
        project: the files that it begins with.
        lock: of the slot.
        lease: of the slot and the indexes, in the cluster that keeps the state.
    """

    project: Project
    lock: SlotLock
    lease: Lease


class Claim:
    """Claims one deployment; used from the run's thread.

    Args:
        project: the deployment.
        endpoints: of the deployment.
        client: of the cluster that keeps the state.
        board: shows that the run stands by, and accepted risks.
        stopping: ends the wait.
        load: reads the files anew before a takeover; None: they stay.
        address: the public address, for who asks the cluster for the run; empty for none.
    """

    def __init__(
        self,
        project: Project,
        endpoints: Endpoints,
        client: Client,
        board: StatusBoard,
        stopping: Stopping,
        *,
        load: Load | None,
        address: str,
    ) -> None:
        self._project = project
        self._endpoints = endpoints
        self._client = client
        self._board = board
        self._stopping = stopping
        self._load = load
        self._lease = Lease(client, project.key, [*project.specs], address=address)
        self._standby = Standby(endpoints.database, project.slot, self._lease, board, stopping)

    def wait(self) -> bool:
        """Stand by until no other process runs the deployment; return False where a stop came first.

        Raises:
            HeadraceError: an error that does not pass.
        """
        if not self._standby.wait():
            return False
        self._read_again()
        self._lease.choose(self._project.specs)
        return True

    def is_led(self, error: HeadraceError) -> bool:
        """Whether a claim failed because another process runs the deployment after all."""
        return error.kind is Kind.SLOT_IN_USE and self._standby.is_led()

    def take(self, held: contextlib.ExitStack) -> Claimed:
        """Take the lock, check the files, and take the leases; `held` gives them up.

        The files are checked with the lock held: the half-saved state of a run that is just ending must not
        look like a broken one.

        Raises:
            HeadraceError: SLOT_IN_USE; ErrorGroup: the files do not fit the database; an error of a server.
        """
        with self._stopping.interrupting(), contextlib.ExitStack() as taken:
            lock = self._lock_slot(taken)
            with connect(self._endpoints.database, application_name="headrace run") as connection:
                self._check_files(connection)
            # A cluster that starts knows no index and no lease yet.
            self._client.wait_until_ready(_SINK_SECONDS)
            taken.enter_context(self._lease)
            # All or nothing: an error before gives up what was taken.
            held.push(taken.pop_all())
        return Claimed(self._project, lock, self._lease)

    def _read_again(self) -> None:
        """Go on with the files as they are now: the run before may have taken up changed ones."""
        if self._load is None:
            return
        # Files that are wrong now keep nobody from taking over: the run before has ignored them, too.
        with contextlib.suppress(HeadraceError):
            project, errors = self._load()
            if project is not None and not errors:
                self._project = project

    def _check_files(self, connection: Connection) -> None:
        """Refuse files that do not fit the database, as far as readers have never seen their indexes.

        A served index whose file does not fit any more waits.
        """
        project = self._project
        inspection = inspect_fitting(project, self._endpoints, connection)
        inspection.raise_errors(reseeds=project.reseeds)
        fitting, waiting = inspection.project.specs, inspection.project.waiting
        if waiting and (not fitting or not waiting.keys() <= self._served_indexes()):
            inspect(project, self._endpoints, connection).raise_errors()
        sinks = [self._endpoints.sink, *(target.sink for target in self._endpoints.secondary.values())]
        warnings = (*inspection.setup.warnings, *connection_warnings(sinks))
        for warning in warnings:
            self._board.report.warning(warning)
        self._board.set_warnings(warnings)

    def _served_indexes(self) -> frozenset[str]:
        state = StateStore(self._client, self._project.key).load()
        generations = () if state is None else state.in_sink("").generations
        return frozenset(generation.index for generation in generations if generation.published)

    def _lock_slot(self, taken: contextlib.ExitStack) -> SlotLock:
        """Take the lock of the slot in the database; where it is taken, name the holder."""
        try:
            return taken.enter_context(SlotLock(self._endpoints.database, self._project.slot))
        except HeadraceError as error:
            holder = None
            if error.kind is Kind.SLOT_IN_USE:
                with contextlib.suppress(HeadraceError):
                    holder = read_slot_lease(self._client, self._project.key).holder
            if holder is None:
                raise
            raise HeadraceError(error.kind, f"{error.cause}: {holder}", error.remedy) from error
