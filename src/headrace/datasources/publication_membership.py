"""Has the publication sent every table that a query follows, all the time? The log does not say when not.

An offset has what the server calls each membership, and who altered the publication last: so what was altered
and altered back while nothing ran is found too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.capture import LogOrigin
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model import TableName
from headrace.model.table_pattern import written
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.identity import read_identities
from headrace.postgres.publication import read_altered, read_memberships

_LOG = logging.getLogger(__name__)
_SECONDS = 10.0
_KEY = "published"
_PLACE = """
SELECT (SELECT system_identifier::text FROM pg_control_system()),
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database())
"""


@dataclass(frozen=True, slots=True)
class Published:
    """How tables are published at a moment.

    Attributes:
        altered: the transaction that altered the publication itself last; None where there is none.
        members: what the server calls each table's membership: another one if it ever left.
        place: the system's identifier and the database's oid; what another one says cannot be compared.
    """

    altered: int | None
    members: Mapping[str, int]
    place: tuple[str, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """What stands in an offset."""
        return {_KEY: {"altered": self.altered, "members": dict(self.members)}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Published | None:
        """What `to_json` wrote; None for an offset without it."""
        found = stored.get(_KEY)
        return None if found is None else cls(found["altered"], found["members"])

    def lost(self, now: Published) -> str | None:
        """What has become of it until `now`, if changes may be missing."""
        if now.altered != self.altered:
            return "was altered"
        left = (one for one, member in now.members.items() if self.members.get(one, member) != member)
        return next((f"has lost the table {one} for a while" for one in left), None)


def read_published(connection: Connection, publication: str, tables: Sequence[TableName]) -> Published:
    """How these tables are published now.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    found = read_memberships(connection, publication) if tables else {}
    members = {written(table): found[table] for table in sorted(tables) if table in found}
    [(system, database)] = execute(connection, _PLACE)
    return Published(read_altered(connection, publication), members, (str(system), int(database)))


def check_published(stored: Mapping[str, Any], now: Published, publication: str, *, losing: bool) -> None:
    """Nothing may be missing from the log since an offset was `stored`.

    Args:
        losing: go on without what is lost, with a warning.

    Raises:
        HeadraceError: PUBLICATION.
    """
    origin = LogOrigin.from_json(stored)
    if origin is not None and (origin.system, origin.database) != now.place:
        return  # who reads the log says so
    before = Published.from_json(stored)
    what = None if before is None else before.lost(now)
    if what is not None:
        _lose(f"the publication {publication!r} {what} since the checkpoint was written", losing=losing)


def _lose(what: str, *, losing: bool) -> None:
    cause = f"{what}: what was changed meanwhile may be missing from the log"
    if not losing:
        raise HeadraceError(
            Kind.PUBLICATION,
            cause,
            "Start with a new checkpoint and slot, and load the tables again; or set failOnDataLoss=false, "
            "which goes on without these changes.",
        )
    _LOG.warning("%s", cause)


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
        self._altered: int | None = None
        self._connection: Connection | None = None
        self._next = 0.0

    def look(self) -> None:
        """Compare the memberships with what they were at the first look; not too often.

        Raises:
            HeadraceError: PUBLICATION, where a table that is there has left the publication since, also if
                it has come back, or the publication itself was altered. A server that is away is waited for
                by the stream.
        """
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._seconds
        try:
            self._check_altered()
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

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._url, application_name="headrace watch")
        return self._connection

    def _check_altered(self) -> None:
        now = read_altered(self._connected(), self._publication)
        before, self._altered = self._altered, now
        if now is not None and before not in {None, now}:
            _lose(f"the publication {self._publication!r} was altered while it was read", losing=self._losing)

    def _left(self) -> list[TableName]:
        if not self._tables:
            return []
        found = read_memberships(self._connected(), self._publication)
        known, self._known = self._known, found
        if known is None:
            return []
        left = [table for table in self._tables if table in known and found.get(table) != known[table]]
        if not left:
            return []
        present = {facts.root for facts in read_identities(self._connected(), left)}
        return [table for table in left if table in present]
