"""Who may read a slot, also in the moments in which the server itself shows no reader?

A slot that is streamed is taken; one whose backlog is read through a copy is not. Both readers claim it with
an advisory lock in the session that moves the slot.
"""

from __future__ import annotations

import zlib

from headrace.errors import HeadraceError, Kind
from headrace.postgres.quoting import literal
from headrace.postgres.replication import ReplicationConnection

_READERS = 0x48_52_52_44  # "HRRD": the first key of the locks of readers
_HOLDER = """
    SELECT 'pid ' || l.pid || coalesce(', ' || nullif(a.application_name, ''), '')
           || coalesce(', from ' || a.client_addr, '')
    FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = {first} AND l.objid = {second}
"""


def claim_slot(connection: ReplicationConnection, slot: str) -> None:
    """Keep every other reader away from `slot` for as long as `connection` lives.

    Raises:
        HeadraceError: SLOT_IN_USE, CONNECTION, DATABASE.
    """
    key = zlib.crc32(slot.encode())
    keys = f"{_READERS}, {key - 2**31}"
    [(taken,)] = connection.execute(f"SELECT pg_try_advisory_lock({keys})", slot=slot)
    if taken != "t":
        holders = connection.execute(_HOLDER.format(first=_READERS, second=(key - 2**31) % 2**32), slot=slot)
        who = holders[0][0] if holders else "it has just ended"
        raise HeadraceError(
            Kind.SLOT_IN_USE,
            f"another reader of Headrace has the slot {slot!r} ({who})",
            "Stop it first, or give this one a slot of its own.",
        )


def advance_claimed(connection: ReplicationConnection, slot: str, lsn: str) -> None:
    """Confirm everything before `lsn` on a slot that `connection` has claimed and does not stream.

    Raises:
        HeadraceError: SLOT_IN_USE, SLOT_LOST, SLOT_UNKNOWN, CONNECTION, DATABASE.
    """
    connection.execute(
        f"SELECT pg_replication_slot_advance({literal(slot)}, {literal(lsn)}::pg_lsn)", slot=slot
    )
