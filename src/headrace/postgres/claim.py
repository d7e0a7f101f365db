"""Who may read a slot, also in the moments in which the server itself shows no reader?

A slot that is streamed is taken; one whose backlog is read through a copy is not. Both readers claim it with
an advisory lock in the session that moves the slot.
"""

from __future__ import annotations

import zlib

from headrace.errors import HeadraceError, Kind
from headrace.postgres.quoting import literal
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.slot_lock import holder_sql

_READERS = 0x48_52_52_44  # "HRRD": the first key of the locks of readers

_READER = """
    SELECT 'pid ' || s.active_pid || coalesce(', ' || nullif(a.application_name, ''), '')
           || coalesce(' of ' || a.usename, '') || coalesce(', from ' || host(a.client_addr), '')
    FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
    WHERE s.slot_name = {slot} AND s.active_pid IS NOT NULL
"""


def claim_slot(connection: ReplicationConnection, slot: str) -> None:
    """Keep every other reader away from `slot` for as long as `connection` lives.

    Raises:
        HeadraceError: SLOT_IN_USE, CONNECTION, DATABASE.
    """
    first, second = _READERS, zlib.crc32(slot.encode()) - 2**31
    [(taken,)] = connection.execute(f"SELECT pg_try_advisory_lock({first}, {second})", slot=slot)
    if taken != "t":
        holders = connection.execute(holder_sql(first, second), slot=slot)
        raise HeadraceError(
            Kind.SLOT_IN_USE,
            f"another reader of Headrace has the slot {slot!r} "
            f"({holders[0][2] if holders else 'which has just ended'})",
            "Stop it first, or give this one a slot of its own.",
        )


def named_reader(connection: ReplicationConnection, slot: str, error: HeadraceError) -> HeadraceError:
    """The same error; of a slot in use, with the reader's pid, application and client.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    if error.kind is not Kind.SLOT_IN_USE:
        return error
    rows = connection.execute(_READER.format(slot=literal(slot)), slot=slot)
    who = rows[0][0] if rows else "who has just ended"
    return HeadraceError(
        Kind.SLOT_IN_USE,
        f"the replication slot {slot!r} is read by someone else ({who})",
        "Stop that reader, or name a slot of its own for each; it is waited for.",
    )


def advance_claimed(connection: ReplicationConnection, slot: str, lsn: str) -> None:
    """Confirm everything before `lsn` on a slot that `connection` has claimed and does not stream.

    Raises:
        HeadraceError: SLOT_IN_USE, SLOT_LOST, SLOT_UNKNOWN, CONNECTION, DATABASE.
    """
    connection.execute(
        f"SELECT pg_replication_slot_advance({literal(slot)}, {literal(lsn)}::pg_lsn)", slot=slot
    )
