"""What does a source need on the server before it can follow? The publication first, then the slot.

For programs that use the source by itself; a deployment of documents plans its set-up as data instead
(`headrace.postgres.setup`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, TableName
from headrace.postgres.connection import Connection, connect, execute, place
from headrace.postgres.publication import OWN_COMMENT, read_publication
from headrace.postgres.quoting import identifier, literal, table
from headrace.postgres.server import inspect_server, server_problems
from headrace.postgres.session import database_error
from headrace.postgres.slot import SlotFacts, create_slot, read_slot, slot_in_use, slot_problem

_READER_ENDS_WITHIN = 75.0
_POLL_SECONDS = 0.1


def ensure_slot(url: str, *, slot: str, publication: str, tables: Sequence[TableName], create: bool) -> Lsn:
    """The position up to which `slot` is confirmed; slot and publication are created where missing.

    Raises:
        HeadraceError: SLOT_UNKNOWN or PUBLICATION where something is missing and must not, or cannot, be
            created; SLOT_IN_USE; SLOT_LOST, PRIVILEGE, NO_FREE_SLOT, WAL_LEVEL, CONNECTION.
    """
    with connect(url) as connection:
        server = inspect_server(connection, url)
        for problem in server_problems(server):
            raise problem
        if read_publication(connection, publication) is None:
            _create_publication(connection, url, publication, tables, create=create)
        facts = _unread_slot(connection, slot)
    if facts is not None:
        unfit = slot_problem(facts, server.database)
        if unfit is not None:
            raise unfit
        return facts.confirmed_flush or 0
    if not create:
        raise HeadraceError(
            Kind.SLOT_UNKNOWN,
            f"there is no replication slot {slot!r} at {place(url)}",
            "Set createSlot to true, or create it with pg_create_logical_replication_slot.",
        )
    with create_slot(url, slot) as made:
        return made.consistent_point


def _unread_slot(connection: Connection, slot: str) -> SlotFacts | None:
    """The slot, once nobody reads it: the last word of a reader that is just ending may still move it.

    The server itself takes up to `wal_sender_timeout` (60 s) to notice that a reader's machine is gone.
    """
    deadline = time.monotonic() + _READER_ENDS_WITHIN
    while (facts := read_slot(connection, slot)) is not None and facts.active_pid is not None:
        if time.monotonic() > deadline:
            raise slot_in_use(facts) from None
        time.sleep(_POLL_SECONDS)
    return facts


def _create_publication(
    connection: Connection, url: str, name: str, tables: Sequence[TableName], *, create: bool
) -> None:
    if not create or not tables:
        raise HeadraceError(
            Kind.PUBLICATION,
            f"there is no publication {name!r} at {place(url)}",
            "Name the tables (option tables) so that it can be created, or create it.",
        )
    listed = ", ".join(table(one) for one in tables)
    named = identifier(name)
    try:
        execute(connection, f"CREATE PUBLICATION {named} FOR TABLE {listed}")
        execute(connection, f"COMMENT ON PUBLICATION {named} IS {literal(OWN_COMMENT)}")
    except psycopg.Error as error:
        raise database_error(error, url) from error
