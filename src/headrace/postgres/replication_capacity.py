"""Check that the server would take one more reader, by opening a replication connection.

A role's attributes do not show it on managed servers.
"""

from __future__ import annotations

from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from headrace.postgres.replication import replication_connection
from headrace.postgres.server import ServerFacts
from headrace.postgres.server_errors import no_free_slot


def reader_problems(url: str, server: ServerFacts, *, new_slot: bool) -> tuple[HeadraceError, ...]:
    """Return why this role could not read changes now: no right to replicate, no walsender, no slot.

    Args:
        url: the database; a replication connection to it is opened and closed again.
        server: the server's current facts.
        new_slot: whether a slot is still to be created.

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
        return (with_limits(no_free_slot("all slots are taken"), url),)
    return ()


def with_limits(error: HeadraceError, url: str) -> HeadraceError:
    """Return the error; where no slot or walsender is free, with the server's limits and slots."""
    if error.kind is not Kind.NO_FREE_SLOT:
        return error
    sql = """
        SELECT current_setting('max_replication_slots'), current_setting('max_wal_senders'),
               (SELECT string_agg(slot_name || CASE WHEN active THEN ' (active)' ELSE ' (idle)' END, ', '
                                  ORDER BY active, slot_name) FROM pg_replication_slots)
    """
    with connect(url, application_name="headrace look") as connection:
        [(slots, senders, names)] = execute(connection, sql)
    return no_free_slot(
        f"max_replication_slots is {slots}, max_wal_senders is {senders}; slots: {names or 'none'}"
    )
