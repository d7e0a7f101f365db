"""How long a reader of the log goes on trying while the server refuses it."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.errors import HeadraceError, Kind, Patience
from headrace.postgres.server_errors import RemovedLogError

_REMOVED_TRIES = 5


class ReadingPatience:
    """Decides from the errors of a reader's tries when it ends.

    A piece of the log that is missing once can be there later, as in a failover. One that is missing again
    and again was removed, whatever the server shows of the slot. An outage ends such a row of tries: the
    server that comes back may be another one.

    Args:
        removed_seconds: see `StreamSettings`.
        clock: monotonic seconds.
    """

    def __init__(self, removed_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._removed_seconds = removed_seconds
        self._clock = clock
        self._patience = Patience(clock)
        self._removed: list[float] = []

    def forget(self) -> None:
        """Begin to count again: the reader has made progress."""
        self._patience.forget()
        self._removed.clear()

    def judge(self, error: HeadraceError) -> HeadraceError:
        """Return the error of a try, or where such errors have lasted too long, one that ends the tries."""
        if not isinstance(error, RemovedLogError):
            if error.kind is Kind.CONNECTION:
                self._removed.clear()
            return self._patience.judge(error)
        now = self._clock()
        self._removed.append(now)
        has_lasted = now - self._removed[0] >= self._removed_seconds
        return error.lost if has_lasted and len(self._removed) >= _REMOVED_TRIES else error
