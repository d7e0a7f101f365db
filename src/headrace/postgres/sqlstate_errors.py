"""Turn the server's refusal of a slot, a stream or a publication into an error with a remedy. Pure.

The SQLSTATE decides first. The message is looked at only where one state has several meanings, so that a
server with messages in another language is understood as far as its states go.
"""

from __future__ import annotations

from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind

GRANT_REPLICATION = (
    "Grant the right to replicate: plain PostgreSQL `ALTER ROLE {role} REPLICATION`; RDS and Aurora "
    "`GRANT rds_replication TO {role}`; Cloud SQL `ALTER USER {role} WITH REPLICATION`; "
    "Azure `ALTER ROLE {role} REPLICATION` as a member of azure_pg_admin"
)
"""The remedy for a role that may not replicate; `{role}` is the role's quoted name."""

_RETRYABLE = frozenset({"53100", "53200", "57014", "58030"})
"""Retryable: a full disk or memory, a cancelled command, an I/O error."""

_TOO_LARGE = (("54000", ""), ("XX000", "invalid memory alloc request size"))
"""SQLSTATE and text of the error for a row with more text than the server can send."""


def sqlstate_error(
    sqlstate: str | None,
    message: str,
    *,
    place: str,
    slot: str = "",
    role: str = "the role",
    streaming: bool = False,
) -> HeadraceError:
    """Return the error for a refused replication command or function on slots.

    Args:
        sqlstate: the server's code; None where the connection broke without one.
        message: the server's primary message.
        place: host, port and database, for people.
        slot: the slot that the command named.
        role: the role's quoted name, for the grant.
        streaming: whether the stream had begun (then a missing object is the publication).
    """
    text = " ".join(message.split()).rstrip(".")
    state = sqlstate or ""
    if state in _RETRYABLE:
        return HeadraceError(Kind.CONNECTION, f"the server at {place} could not go on: {text}")
    if state == "" or state.startswith(("08", "57P")):
        return HeadraceError(Kind.CONNECTION, f"the replication connection to {place} was lost: {text}")
    if state == "42501":
        return HeadraceError(
            Kind.PRIVILEGE, f"{place} refuses replication: {text}", GRANT_REPLICATION.format(role=role) + "."
        )
    if state in ("53400", "53300"):
        return no_free_slot(text)
    if any(state == known and words in text for known, words in _TOO_LARGE):
        return _row_too_large(text, slot)
    return _slot_error(state, text, slot, streaming=streaming)


def _row_too_large(text: str, slot: str) -> HeadraceError:
    """Return the error for a row that no server can send; it stays in the log of every reader."""
    return HeadraceError(
        Kind.DATABASE,
        f"the slot {slot!r} has come to a row of more than 1 GB, which PostgreSQL cannot send: {text}",
        "Waiting does not help. Keep such values smaller (a bytea takes twice its bytes, and REPLICA "
        "IDENTITY FULL sends the old row too), or leave the column out of the publication; then begin behind "
        "that row: `headrace teardown` and `headrace run`, or a new slot and a new checkpoint for a query "
        "of your own.",
    )


def _slot_error(state: str, text: str, slot: str, *, streaming: bool) -> HeadraceError:
    if state == "55006":
        return HeadraceError(
            Kind.SLOT_IN_USE,
            f"the replication slot {slot!r} is in use: {text}",
            "Stop the other reader, or give this deployment a slot of its own.",
        )
    if state == "42710":
        return HeadraceError(
            Kind.CONFIG,
            f"the replication slot {slot!r} cannot be made: {text}",
            "Name another slot, or drop this one if nobody reads it.",
        )
    if state == "42704":
        return _missing_object(text, slot, streaming=streaming)
    if state == "55000":
        return _unusable_slot(text, slot)
    return HeadraceError(Kind.DATABASE, f"the database says: {text} (SQLSTATE {state})")


def no_free_slot(text: str) -> HeadraceError:
    """Return the error for a server without a free slot or walsender."""
    return HeadraceError(
        Kind.NO_FREE_SLOT,
        f"the server has no room for another reader: {text}",
        "Drop a slot that nobody needs (SELECT pg_drop_replication_slot('NAME')), or raise "
        "max_replication_slots and max_wal_senders and restart the server.",
    )


def _missing_object(text: str, slot: str, *, streaming: bool) -> HeadraceError:
    if streaming or "publication" in text.lower():
        return HeadraceError(
            Kind.PUBLICATION,
            f"the slot {slot!r} was read with a publication that its history does not know: {text}",
            "A publication must be older than its slot: create the publication, then drop and create the "
            "slot (a deployment: `headrace teardown`, then `headrace run`), and backfill again.",
        )
    return HeadraceError(
        Kind.SLOT_UNKNOWN,
        f"there is no replication slot {slot!r}: {text}",
        f"Correct its name; if it was dropped, changes are lost with it. {BACKFILL_AGAIN}",
    )


def _unusable_slot(text: str, slot: str) -> HeadraceError:
    lowered = text.lower()
    if "wal_level" in lowered:
        return HeadraceError(
            Kind.WAL_LEVEL,
            text,
            "Set wal_level = logical and restart the server (`headrace check` says how).",
        )
    if "can no longer" in lowered or "invalidated" in lowered or "wal_removed" in lowered:
        return slot_lost(slot, text)
    return HeadraceError(Kind.DATABASE, f"the slot {slot!r} cannot be used: {text} (SQLSTATE 55000)")


def slot_lost(slot: str, why: str) -> HeadraceError:
    """Return the error for a slot whose log the server has removed."""
    return HeadraceError(
        Kind.SLOT_LOST,
        f"the replication slot {slot!r} is lost, changes are gone: {why}",
        f"{BACKFILL_AGAIN} Without a deployment drop the slot, and backfill again. Raise "
        "max_slot_wal_keep_size so that it survives longer stops.",
    )
