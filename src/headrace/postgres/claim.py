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


def advance_claimed(connection: ReplicationConnection, slot: str, lsn: str) -> None:
    """Confirm everything before `lsn` on a slot that `connection` has claimed and does not stream.

    Raises:
        HeadraceError: SLOT_IN_USE, SLOT_LOST, SLOT_UNKNOWN, CONNECTION, DATABASE.
    """
    connection.execute(
        f"SELECT pg_replication_slot_advance({literal(slot)}, {literal(lsn)}::pg_lsn)", slot=slot
    )
