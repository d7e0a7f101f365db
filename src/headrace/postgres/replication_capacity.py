"""Would the server take one more reader? Found by trying: elsewhere a role's attributes say nothing."""

from __future__ import annotations

from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from headrace.postgres.replication import replication_connection
from headrace.postgres.server import ServerFacts
from headrace.postgres.sqlstate_errors import no_room


def reader_problems(url: str, server: ServerFacts, *, new_slot: bool) -> tuple[HeadraceError, ...]:
    """Why this role could not read changes now: no right to replicate, no walsender, no slot.

    Args:
        url: the database; a replication connection to it is opened and closed again.
        server: its facts, of a moment ago.
        new_slot: whether a slot is still to be made.

    Raises:
        HeadraceError: CONNECTION.
    """
    try:
        with replication_connection(url, "headrace look"):
            pass
    except HeadraceError as error:
        if error.kind is Kind.CONNECTION:
            raise
        return (with_limits(error, url),)
    if new_slot and server.used_slots >= server.max_slots:
        return (with_limits(no_room("all slots are taken"), url),)
    return ()


def with_limits(error: HeadraceError, url: str) -> HeadraceError:
    """The same error; where there is no room, with the server's limits and the slots that exist."""
    if error.kind is not Kind.NO_FREE_SLOT:
        return error
    sql = """
        SELECT current_setting('max_replication_slots'), current_setting('max_wal_senders'),
               (SELECT string_agg(slot_name || CASE WHEN active THEN ' (active)' ELSE ' (idle)' END, ', '
                                  ORDER BY active, slot_name) FROM pg_replication_slots)
    """
    with connect(url, application_name="headrace look") as connection:
        [(slots, senders, names)] = execute(connection, sql)
    return no_room(
        f"max_replication_slots is {slots}, max_wal_senders is {senders}; slots: {names or 'none'}"
    )
