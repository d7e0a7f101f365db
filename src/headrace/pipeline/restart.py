"""Take up again within the running process, behind a gap or after tables were altered."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.errors import ErrorGroup, HeadraceError, Retry
from headrace.pipeline.stopping import Stopping
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.postgres.locks import SlotLock
from headrace.status.board import StatusBoard

_PAUSES = (1.0, 2.0, 5.0, 10.0)
_LONGEST_PAUSE = 30.0
_Taken = TypeVar("_Taken")


@dataclass(frozen=True, slots=True)
class Restart(Generic[_Taken]):
    """Repeats in this process, with its Spark session, what a new start does.

    Attributes:
        take_up: goes on from the saved state; can be repeated.
        lock: the lock of the slot.
        board: shows failures.
        stopping: ends the attempts.
    """

    take_up: Callable[[Connection], _Taken]
    lock: SlotLock
    board: StatusBoard
    stopping: Stopping

    def run(self, failure: HeadraceError, endpoints: Endpoints) -> _Taken:
        """Take up again; retry for as long as the errors are retryable. No query runs.

        Args:
            failure: the error that ended the query.
            endpoints: the endpoints of the deployment.

        Raises:
            HeadraceError: SLOT_IN_USE: another Headrace has the slot. `failure`: the files do not fit the
                database any more. Other errors that are not retryable.
        """
        self.board.report.warning(f"[{failure.code}] {failure.cause}; beginning again from what is there")
        for pause in itertools.chain(_PAUSES, itertools.repeat(_LONGEST_PAUSE)):
            with self.stopping.interrupting():
                found = self._attempt(endpoints)
                if not isinstance(found, HeadraceError):
                    return found
                if isinstance(found, ErrorGroup) and found.retry is Retry.NEVER:
                    self.board.report.warning(str(found))
                    raise failure from found
                if found.retry is Retry.NEVER:
                    raise found
                self.board.failed(found)
                self.board.report.warning(f"{found}; trying again")
                self.stopping.wait(pause)
        raise AssertionError("it is tried for as long as it takes")

    def _attempt(self, endpoints: Endpoints) -> _Taken | HeadraceError:
        taken = None
        try:
            taken = self.lock.lost_to()
            if taken is None:
                with connect(endpoints.database, application_name="headrace run") as connection:
                    return self.take_up(connection)
        except HeadraceError as error:
            return error
        raise taken
