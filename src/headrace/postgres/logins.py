"""Tell a login that a server refuses for some minutes from one that is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.errors import HeadraceError, Kind, Refusals
from headrace.postgres.server_errors import UNVERIFIED

_REFUSED_SECONDS = 300.0
"""How long a login that was taken may be refused; refusals further apart are not of one series."""


class Logins:
    """The logins that servers take from this process or from the run that it works for.

    A cloud under load, a directory that is away, or a password that is being changed refuses a right one too.
    A server's certificate that was renewed is not known before the file of its authority has followed.
    A login is the connection string, and libpq's `replication`, since clouds give that right apart.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Of each login that was taken.
        self._refusals: dict[tuple[str, str], Refusals] = {}

    def expect(self, url: str, replication: str = "") -> None:
        """Note that the run has logged in so before this process was started."""
        self._refusals.setdefault((url, replication), Refusals(self._clock))

    def note_success(self, url: str, replication: str) -> None:
        """Note that the server took a login."""
        self._refusals[url, replication] = Refusals(self._clock)

    def judge(self, url: str, replication: str, error: HeadraceError) -> HeadraceError:
        """Return the error of a failed login; for some minutes one that passes, where it was taken before."""
        known = self._refusals.get((url, replication))
        may_pass = error.kind is Kind.AUTHENTICATION or UNVERIFIED in error.cause
        if not may_pass or known is None or known.note(_REFUSED_SECONDS) > _REFUSED_SECONDS:
            return error
        return HeadraceError(
            Kind.CONNECTION,
            f"{error.cause}; it took this login before",
            f"Wait some minutes. If it goes on: {error.remedy}",
        )


LOGINS = Logins()
"""The logins of this process."""
