"""How does a run begin again within its process, behind a gap or where tables were altered?"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.errors import HeadraceError, Retry
from headrace.pipeline.project import Endpoints, Problems
from headrace.pipeline.stopping import Stopping
from headrace.postgres.connection import Connection, connect
from headrace.postgres.locks import SlotLock
from headrace.status.board import StatusBoard

_PAUSES = (1.0, 2.0, 5.0, 10.0)
_LONGEST_PAUSE = 30.0
_Taken = TypeVar("_Taken")


@dataclass(frozen=True, slots=True)
class Restart(Generic[_Taken]):
    """What a new start does, in this process and with its Spark.

    Attributes:
        take_up: takes up what is there; it can be repeated.
        lock: of the slot.
    """

    take_up: Callable[[Connection], _Taken]
    lock: SlotLock
    board: StatusBoard
    stopping: Stopping

    def behind(self, failure: HeadraceError, endpoints: Endpoints) -> _Taken:
        """Do it, for as long as it takes where waiting helps; no query runs.

        Args:
            failure: what ended the query.

        Raises:
            HeadraceError: SLOT_IN_USE, where another Headrace has the slot; `failure`, where the files do not
                fit the database any more; what else does not pass.
        """
        self.board.report.warning(f"[{failure.code}] {failure.cause}; beginning again from what is there")
        for pause in itertools.chain(_PAUSES, itertools.repeat(_LONGEST_PAUSE)):
            with self.stopping.interrupting():
                found = self._attempt(endpoints)
                if not isinstance(found, HeadraceError):
                    return found
                if isinstance(found, Problems) and found.retry is Retry.NEVER:
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
