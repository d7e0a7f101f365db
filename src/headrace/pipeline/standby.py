"""Stand by while another run works; take over when it has ended, or can no longer be alive.

The lock in the database is free as soon as the other run's session is gone. Where its machine has vanished,
or is suspended, the session outlives it. Then its leases tell: they are not renewed any more. A run that
comes back finds its leases taken and its sessions ended, and ends itself.
"""

from __future__ import annotations

from headrace.errors import HeadraceError, Retry
from headrace.pipeline.stopping import Stopping
from headrace.postgres.connection import Connection, connect
from headrace.postgres.locks import end_holders, is_free
from headrace.state.lease import Lease, LeaseHolder
from headrace.status.board import StatusBoard
from headrace.status.phases import Event

_LOOK_SECONDS = 0.25


class Standby:
    """Waits until no other process runs this deployment.

    Args:
        url: the database of the slot.
        slot: its name.
        lease: the leases that this run will take.
        board: shows that the run stands by, and behind whom.
        stopping: ends the wait.
    """

    def __init__(self, url: str, slot: str, lease: Lease, board: StatusBoard, stopping: Stopping) -> None:
        self._url = url
        self._slot = slot
        self._lease = lease
        self._board = board
        self._stopping = stopping
        self._connection: Connection | None = None
        self._holder: LeaseHolder | None = None

    def wait(self) -> bool:
        """Wait for this run's turn; return False where stopping was requested first.

        Raises:
            HeadraceError: an error that is not retryable.
        """
        self._board.apply_event(Event.STANDING_BY)
        try:
            while not self._stopping.wait(_LOOK_SECONDS):
                if self._may_start_now():
                    self._board.apply_event(Event.TAKING_OVER)
                    return True
            return False
        finally:
            self._disconnect()

    def is_led(self) -> bool:
        """Whether another process runs this deployment, as far as is known.

        Another deployment that writes one of its indexes does not.
        """
        try:
            with connect(self._url, application_name="headrace standby") as connection:
                return self._lease.slot_holder() is not None or not is_free(connection, self._slot)
        except HeadraceError as error:
            return error.retry is Retry.BACK_OFF

    def _may_start_now(self) -> bool:
        try:
            may_start = self._may_start()
        except HeadraceError as error:
            if error.retry is not Retry.BACK_OFF:
                raise
            self._board.record_error(error)
            self._disconnect()
            return False
        self._board.apply_event(Event.RECOVERED)
        return may_start

    def _may_start(self) -> bool:
        """Look once at the lock and at the leases.

        A lock that is free beside a lease that is renewed belongs to a run that has just lost its session; it
        takes the lock again.
        """
        if self._connection is None:
            self._connection = connect(self._url, application_name="headrace standby")
        holder = self._lease.slot_holder()
        if holder is not None:
            self._note(holder)
            return False
        if self._holder is None:  # none is seen, or one that is starting and has no lease yet
            return is_free(self._connection, self._slot)
        self._board.report.info(f"taking over: the run on {self._holder} has ended, or does not answer")
        # The session of a machine that has vanished, and with it the lock, lasts until TCP gives up.
        end_holders(self._connection, self._slot)
        return True

    def _note(self, holder: LeaseHolder) -> None:
        if holder != self._holder:
            self._holder = holder
            self._board.stand_by(f"{holder}")
            self._board.report.info(f"standing by: the run on {holder} works")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
