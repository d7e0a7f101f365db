"""Claim a deployment for this process: its turn, the lock of its slot, the leases of its indexes.

The lock in the database is free as soon as the other run's session is gone. Where its machine has vanished,
or is suspended, the session outlives it. Then its leases tell: they are not renewed any more. A run that
comes back finds its leases taken and its sessions ended, and ends itself.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from headrace.errors import HeadraceError, Kind, Retry
from headrace.pipeline.fitting import inspect_fitting
from headrace.pipeline.inspection import inspect
from headrace.pipeline.project import Project
from headrace.pipeline.reloads import Load, check_code, check_fixed
from headrace.pipeline.stopping import Stopping
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.postgres.locks import SlotLock, end_holders, find_holder
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.endpoint import connection_warnings
from headrace.state import StateStore
from headrace.state.lease import Lease, LeaseHolder, read_slot_lease
from headrace.status.board import StatusBoard
from headrace.status.phases import Phase

_SINK_SECONDS = 30.0
_LOOK_SECONDS = 0.25


@dataclass(eq=False, slots=True)
class Claim:
    """Claims one deployment; used from the run's thread.

    Args:
        project: the deployment.
        endpoints: of the deployment.
        client: of the cluster that keeps the state.
        board: shows that the run stands by, and accepted risks.
        stopping: ends the wait.
        load: reads the files again before a takeover.
        lease: of the slot and the indexes, taken by `take`.
    """

    project: Project
    endpoints: Endpoints
    client: Client
    board: StatusBoard
    stopping: Stopping
    load: Load
    lease: Lease
    _connection: Connection | None = field(default=None, init=False)
    _holder: LeaseHolder | None = field(default=None, init=False)

    def wait(self) -> bool:
        """Stand by until no other process runs the deployment; return False where a stop came first.

        Raises:
            HeadraceError: an error that does not pass.
        """
        self.board.enter(Phase.STANDBY)
        try:
            while not self.stopping.wait(_LOOK_SECONDS):
                if self._may_start_now():
                    self.board.enter(Phase.STARTING)
                    self._read_again()
                    self.lease.choose(self.project.specs)
                    return True
            return False
        finally:
            self._disconnect()

    def is_led(self, error: HeadraceError) -> bool:
        """Whether a claim failed because another process runs the deployment after all, as far as is known.

        Another deployment that writes one of its indexes does not.
        """
        if error.kind is not Kind.SLOT_IN_USE:
            return False
        try:
            with self._connect() as connection:
                return (self.lease.slot_holder() or find_holder(connection, self.project.slot)) is not None
        except HeadraceError as failure:
            return failure.retry is Retry.BACK_OFF

    def take(self, held: contextlib.ExitStack) -> SlotLock:
        """Take the lock, check the files, and take the leases; `held` gives them up. Return the lock.

        The files are checked with the lock held: the half-saved state of a run that is just ending must not
        look like a broken one.

        Raises:
            HeadraceError: SLOT_IN_USE; ErrorGroup: the files do not fit the database; an error of a server.
        """
        with self.stopping.interrupting(), contextlib.ExitStack() as taken:
            lock = self._lock_slot(taken)
            with connect(self.endpoints.database, application_name="headrace run") as connection:
                self._check_files(connection)
            # A cluster that starts knows no index and no lease yet.
            self.client.wait_until_ready(_SINK_SECONDS)
            taken.enter_context(self.lease)
            # All or nothing: an error before gives up what was taken.
            held.push(taken.pop_all())
        return lock

    def _may_start_now(self) -> bool:
        try:
            may_start = self._may_start()
        except HeadraceError as error:
            if error.retry is not Retry.BACK_OFF:
                raise
            self.board.record_error(error)
            self._disconnect()
            return False
        self.board.recovered()
        return may_start

    def _may_start(self) -> bool:
        """Look once at the lock and at the leases.

        A lock that is free beside a lease that is renewed belongs to a run that has just lost its session; it
        takes the lock again.
        """
        if self._connection is None:
            self._connection = self._connect()
        holder = self.lease.slot_holder()
        if holder is not None:
            self._note(holder)
            return False
        if self._holder is None:  # none is seen, or one that is starting and has no lease yet
            return find_holder(self._connection, self.project.slot) is None
        self.board.report.info(f"taking over: the run on {self._holder} has ended, or does not answer")
        # The session of a machine that has vanished, and with it the lock, lasts until TCP gives up.
        end_holders(self._connection, self.project.slot)
        return True

    def _note(self, holder: LeaseHolder) -> None:
        if holder != self._holder:
            self._holder = holder
            self.board.stand_by(f"{holder}")
            self.board.report.info(f"standing by: the run on {holder} is active")

    def _connect(self) -> Connection:
        return connect(self.endpoints.database, application_name="headrace standby")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read_again(self) -> None:
        """Go on with the files as they are now: the run before may have taken up changed ones.

        Raises:
            HeadraceError: CONTINUITY: something has changed that a process takes up only when it starts.
        """
        now = self.project
        # Files that are wrong now keep nobody from taking over: the run before has ignored them, too.
        with contextlib.suppress(HeadraceError):
            project, errors = self.load()
            if project is not None and not errors:
                now = project
        # Endpoints, lease and orders are those of the former files, and this process has the former code.
        if changed := [*check_fixed(self.project, now), *check_code(now)]:
            # Not CONFIG: with its exit code no supervisor starts the run again, and the files are right.
            causes = "; ".join(error.cause for error in changed)
            cause = f"the run stood by, and cannot take over with what was changed meanwhile: {causes}"
            raise HeadraceError(Kind.CONTINUITY, cause, "Start `headrace run` again.")
        self.project = now

    def _check_files(self, connection: Connection) -> None:
        """Refuse files that do not fit the database, as far as readers have never seen their indexes.

        A served index whose file does not fit any more waits.
        """
        project = self.project
        inspection = inspect_fitting(project, self.endpoints, connection)
        inspection.raise_errors()
        fitting, waiting = inspection.project.specs, inspection.project.waiting
        # An index that readers see may wait; one that was never complete is a mistake to be told now.
        if waiting and (not fitting or not waiting.keys() <= self._served_indexes()):
            inspect(project, self.endpoints, connection).raise_errors()
        sinks = [self.endpoints.sink, *(target.sink for target in self.endpoints.secondary.values())]
        warnings = (*inspection.setup.warnings, *connection_warnings(sinks))
        for warning in warnings:
            self.board.report.warning(warning)
        self.board.set_warnings(warnings)

    def _served_indexes(self) -> frozenset[str]:
        state = StateStore(self.client, self.project.key).load()
        generations = () if state is None else state.in_sink("").generations
        return frozenset(generation.index for generation in generations if generation.published)

    def _lock_slot(self, taken: contextlib.ExitStack) -> SlotLock:
        """Take the lock of the slot in the database; where it is taken, name the holder."""
        try:
            return taken.enter_context(SlotLock(self.endpoints.database, self.project.slot))
        except HeadraceError as error:
            holder = None
            if error.kind is Kind.SLOT_IN_USE:
                with contextlib.suppress(HeadraceError):
                    holder = read_slot_lease(self.client, self.project.key).holder
            if holder is None:
                raise
            raise HeadraceError(error.kind, f"{error.cause}: {holder}", error.remedy) from error
