"""Does the publication still send every table that a query follows? The log does not say when it stops."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from headrace.errors import HeadraceError, Kind, Retry
from headrace.model import TableName
from headrace.postgres.connection import Connection, connect
from headrace.postgres.identity import read_identities
from headrace.postgres.publication import read_memberships

_LOG = logging.getLogger(__name__)
_SECONDS = 10.0


class MembershipWatch:
    """Looks now and then, over a connection of its own; used from one thread.

    Args:
        url: the database.
        publication: its name.
        tables: those that are followed by their names.
        losing: go on without what is lost, with a warning.
        seconds: between two looks.
    """

    def __init__(
        self,
        url: str,
        publication: str,
        tables: Sequence[TableName],
        *,
        losing: bool,
        seconds: float = _SECONDS,
    ) -> None:
        self._url = url
        self._publication = publication
        self._tables = tables
        self._losing = losing
        self._seconds = seconds
        self._known: Mapping[TableName, int] | None = None
        self._connection: Connection | None = None
        self._next = 0.0

    def look(self) -> None:
        """Compare the memberships with what they were at the first look; not too often.

        Raises:
            HeadraceError: PUBLICATION, where a table that is there has left the publication since, also if
                it has come back. A server that is away is waited for by the stream.
        """
        if not self._tables or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._seconds
        try:
            left = self._left()
        except HeadraceError as error:
            if error.retry is Retry.NEVER:
                raise
            self.close()
            return
        if not left:
            return
        cause = (
            f"the table {left[0]} has left the publication {self._publication!r} while it was followed: "
            "what was changed there since is not in the log"
        )
        if not self._losing:
            raise HeadraceError(
                Kind.PUBLICATION, cause, "Start with a new checkpoint and slot, or without the table."
            )
        _LOG.warning("%s", cause)

    def close(self) -> None:
        """Close the connection; a later look opens one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _left(self) -> list[TableName]:
        if self._connection is None:
            self._connection = connect(self._url, application_name="headrace watch")
        found = read_memberships(self._connection, self._publication)
        known, self._known = self._known, found
        if known is None:
            return []
        left = [table for table in self._tables if table in known and found.get(table) != known[table]]
        if not left:
            return []
        present = {facts.root for facts in read_identities(self._connection, left)}
        return [table for table in left if table in present]
