"""Check that the publication has sent every followed table all the time, which the log does not show.

An offset stores the server's id of each membership, and the transaction that altered the publication last. So
a change that was made and undone while no query ran is recognised too, and a publication that was dropped and
made again: PostgreSQL 18 leaves out of a backlog, in silence, what was changed without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.capture import LogOrigin
from headrace.model.names import TableName
from headrace.model.table_pattern import format_table, one_table
from headrace.postgres.connection import Connection, query
from headrace.postgres.identity import read_identities
from headrace.postgres.publication import read_last_alteration, read_memberships
from headrace.postgres.server import read_identifier

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

    def of(self, table: TableName) -> tuple[int | None, int] | None:
        """Return what says that a table has been published all the time as long as it stays the same."""
        member = self.members.get(format_table(table))
        return None if member is None else (self.altered, member)

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


def read_all_published(connection: Connection, publication: str, before: Published | None) -> Published:
    """Read how all tables of a publication are published now, and those that it had `before`.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    had = () if before is None else map(one_table, before.members)
    tables = {*had, *read_memberships(connection, publication, of_all_tables=False)}
    return read_published(connection, publication, tables)


def read_published(connection: Connection, publication: str, tables: Collection[TableName]) -> Published:
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
