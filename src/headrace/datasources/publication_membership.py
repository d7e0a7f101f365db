"""Check that the publication has sent every followed table all the time, which the log does not show.

An offset stores the server's id of each membership, and the transaction that altered the publication last. So
a change that was made and undone while no query ran is recognised too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.capture import LogOrigin
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.names import TableName
from headrace.model.table_pattern import format_table
from headrace.postgres.connection import Connection, connect, query
from headrace.postgres.identity import read_identities
from headrace.postgres.publication import read_last_alteration, read_memberships
from headrace.postgres.server import read_identifier

_LOG = logging.getLogger(__name__)
_SECONDS = 10.0
_KEY = "published"
_DATABASE = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()"


@dataclass(frozen=True, slots=True)
class Published:
    """How tables are published at a moment.

    Attributes:
        altered: the last transaction that altered the publication itself; None where there is none.
        members: the server's id of each existing table's membership; another one if the table ever left, 0
            where it has none.
        place: the system identifier, None where the server does not give it, and the database's oid; values
            of another place cannot be compared.
    """

    altered: int | None
    members: Mapping[str, int]
    place: tuple[str | None, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the offset's fields."""
        members = {table: member for table, member in self.members.items() if member}
        return {_KEY: {"altered": self.altered, "members": members}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Published | None:
        """Read the fields of an offset; None for an offset without them."""
        found = stored.get(_KEY)
        return None if found is None else cls(found["altered"], found["members"])

    def is_elsewhere(self, origin: LogOrigin) -> bool:
        """Return whether this is of another server or database than a log is."""
        system, database = self.place or (None, origin.database)
        return database != origin.database or system not in {None, origin.system}

    def lost(self, now: Published) -> str | None:
        """Explain what changed until `now`, if changes may be missing; else None."""
        if now.altered != self.altered:
            return "was altered"
        for table, member in now.members.items():
            if (self.members.get(table) or member) != member:
                return f"has lost the table {table}" + (" for a while" if member else "")
        return None


def read_published(connection: Connection, publication: str, tables: Sequence[TableName]) -> Published:
    """Read how these tables are published now.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    found = read_memberships(connection, publication) if tables else {}
    absent = [table for table in tables if table not in found]
    # A table that was dropped has no changes to be missed.
    found |= dict.fromkeys((facts.root for facts in read_identities(connection, absent)) if absent else (), 0)
    members = {format_table(table): found[table] for table in sorted(tables) if table in found}
    system, [(database,)] = read_identifier(connection), query(connection, _DATABASE)
    place = (None if system is None else str(system), int(database))
    return Published(read_last_alteration(connection, publication), members, place)


def check_published(
    stored: Mapping[str, Any], now: Published, publication: str, *, allows_loss: bool
) -> None:
    """Check that nothing is missing from the log since an offset was `stored`.

    Args:
        stored: the offset.
        now: how the tables are published.
        publication: its name, for messages.
        allows_loss: continue without what is lost, with a warning.

    Raises:
        HeadraceError: PUBLICATION.
    """
    origin = LogOrigin.from_json(stored)
    if origin is not None and now.is_elsewhere(origin):
        return  # the log's reader raises the error
    before = Published.from_json(stored)
    what = None if before is None else before.lost(now)
    if what is not None:
        _report_loss(
            f"the publication {publication!r} {what} since the checkpoint was written",
            allows_loss=allows_loss,
        )


def _report_loss(what: str, *, allows_loss: bool) -> None:
    cause = f"{what}: what was changed meanwhile may be missing from the log"
    if not allows_loss:
        raise HeadraceError(
            Kind.PUBLICATION,
            cause,
            "Start with a new checkpoint and slot, and load the tables again; or set failOnDataLoss=false, "
            "which goes on without these changes.",
        )
    _LOG.warning("%s", cause)


class MembershipWatch:
    """Checks the publication from time to time, over a connection of its own; used from one thread.

    Args:
        url: the database.
        publication: its name.
        tables: the followed tables.
        allows_loss: continue without what is lost, with a warning.
        seconds: between two checks.
    """

    def __init__(
        self,
        url: str,
        publication: str,
        tables: Sequence[TableName],
        *,
        allows_loss: bool,
        seconds: float = _SECONDS,
    ) -> None:
        self._url = url
        self._publication = publication
        self._tables = tables
        self._allows_loss = allows_loss
        self._seconds = seconds
        self._known: Published | None = None
        self._connection: Connection | None = None
        self._next = 0.0

    def look(self) -> None:
        """Compare with the check before; does nothing if called again too soon.

        Raises:
            HeadraceError: PUBLICATION, where an existing table has left the publication since, even if it has
                come back, or the publication itself was altered. While the server is away, the stream
                retries.
        """
        if time.monotonic() < self._next:
            return
        # Before the look, so that one that fails is not repeated at every call.
        self._next = time.monotonic() + self._seconds
        try:
            if self._connection is None:
                self._connection = connect(self._url, application_name="headrace watch")
            now = read_published(self._connection, self._publication, self._tables)
        except HeadraceError as error:
            if error.retry is Retry.NEVER:
                raise
            # The stream itself meets a server that stays away; a later look connects anew.
            self.close()
            return
        before, self._known = self._known, now
        what = None if before is None else before.lost(now)
        if what is not None:
            _report_loss(
                f"the publication {self._publication!r} {what} while it was read",
                allows_loss=self._allows_loss,
            )

    def close(self) -> None:
        """Close the connection; a later check opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
