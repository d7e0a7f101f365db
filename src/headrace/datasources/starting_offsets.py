"""Find where a query begins in the log: with a new checkpoint, an old one, after pg_upgrade, or a data loss.

Where the slot cannot give what follows the checkpoint, the query ends with an error or goes on with a
warning, as the options say. Another server, a restored database, or a promoted standby that lacks what was
read is an error in any case: its positions cannot be compared with those that were handed out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import LogPositions, check_continuity, read_positions, temporary_gone
from headrace.capture.upgrade import check_upgraded
from headrace.datasources.followed_tables import FollowedTables, since_fields, since_of
from headrace.datasources.initial_snapshot import SnapshotProgress
from headrace.datasources.source_options import CdcOptions
from headrace.errors import NEW_CHECKPOINT, HeadraceError, Kind, as_clause
from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.postgres.connection import connect
from headrace.postgres.provision import PreparedSlot
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.slot import drop_slot, read_slot
from headrace.postgres.wal_position import end_of_log

_LOG = logging.getLogger(__name__)
_BEGAN = "began"


def first_offset(options: CdcOptions, confirmed: Lsn) -> dict[str, Any]:
    """Return the offset of a new checkpoint.

    Args:
        options: of the query.
        confirmed: the slot's position (bytes).

    Raises:
        HeadraceError: CONTINUITY, where the slot cannot give what is asked for; CONNECTION, DATABASE.
    """
    starts = options.starting_offsets
    if options.reads_first:
        return Offset(confirmed).to_json() | SnapshotProgress().to_json()
    if starts in {"earliest", "snapshot"}:
        return Offset(confirmed).to_json()
    with connect(options.slot_url) as connection:
        flushed = end_of_log(connection)
    wanted = max(flushed, confirmed) if starts == "latest" else parse_lsn(starts)
    # Before the confirmed position the server sends nothing, and says nothing.
    if not confirmed <= wanted <= flushed:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"startingOffsets={starts} is not between {format_lsn(confirmed)} and {format_lsn(flushed)}, "
            f"where the slot {options.slot!r} can start",
            "Choose a position between them, or earliest, latest or snapshot.",
        )
    if wanted > confirmed:
        _LOG.warning(
            "the slot %r stands at %s: %d bytes of log up to %s are skipped, as startingOffsets=%s says",
            options.slot,
            format_lsn(confirmed),
            wanted - confirmed,
            format_lsn(wanted),
            starts,
        )
    return Offset(wanted).to_json()


def keep_batch_start(start: Mapping[str, Any], initial: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the field for a batch's end offset that keeps where a checkpoint's first batch began.

    Spark stores no offset before the first batch's end. To repeat that batch it asks for the initial offset
    again, and by then `latest` is another position.
    """
    return {_BEGAN: start["lsn"]} if initial is not None and start == initial else {}


def batch_start(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the batch up to `end` began: `start`, or the stored position for the first batch."""
    return {**start, "lsn": end[_BEGAN]} if _BEGAN in end else dict(start)


def check_order(begin: Offset, end: Offset) -> None:
    """Refuse a first batch that would begin after its end.

    A checkpoint of an earlier version does not store where its first batch began, so its repetition begins at
    the slot's position.

    Raises:
        HeadraceError: CONTINUITY.
    """
    if begin.order > end.order:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the checkpoint's first batch ends at {format_lsn(end.lsn)}, and the slot has been confirmed up "
            f"to {format_lsn(begin.lsn)} without it: its changes are lost",
            "Start with a new checkpoint, and backfill again what the query had read.",
        )


LOSSES = frozenset({Kind.CONTINUITY, Kind.SLOT_UNKNOWN, Kind.SLOT_LOST})
"""The kinds of errors that end a reader of the log where changes are lost."""


def resume_offset(
    options: CdcOptions,
    start: Mapping[str, Any],
    stored: Mapping[str, Any],
    make: Callable[[], PreparedSlot],
    *,
    is_read_in_vain: bool,
) -> Offset:
    """Return the offset from which the log can be read on: `begin`, or a later one where changes are lost.

    Args:
        options: of the query.
        start: what was read.
        stored: the last offset in the checkpoint: the log is known to have been as far.
        make: creates the slot.
        is_read_in_vain: whether reading has just shown that the slot is lost, which the server may not show.

    Raises:
        HeadraceError: CONTINUITY, SLOT_UNKNOWN or SLOT_LOST where the options do not allow a loss, or it
            cannot be recognised; any error of `make`.
    """
    slot, now = options.slot, _look(options)
    begin, origin, known = Offset.from_json(start), LogOrigin.from_json(start), Offset.from_json(stored).lsn
    if options.fail_on_data_loss:
        if options.temporary_slot:
            raise temporary_gone(slot, begin.lsn)
        check_continuity(now, slot, begin.lsn, origin, known=known)
        return begin
    # Another server or an older log is an error also where losses are allowed: only the slot may be gone.
    check_continuity(replace(now, confirmed=begin.lsn), slot, begin.lsn, origin, known=known)
    why = _lost(options, is_read_in_vain=is_read_in_vain)
    confirmed = now.confirmed if why is None else None
    # The slot gives all that follows.
    if confirmed is not None and confirmed <= begin.lsn:
        return begin
    if confirmed is not None:
        why = "was recreated, or moved by another program"
    place = make().confirmed if confirmed is None else confirmed
    _LOG.warning(
        "the slot %r %s: the changes from %s to %s are missing, and the query goes on without them, as "
        "failOnDataLoss=false says",
        slot,
        why or "was gone, and is recreated",
        format_lsn(begin.lsn),
        format_lsn(place),
    )
    return Offset(place)


def later_offset(offset: Offset, moved: Offset | None) -> Offset:
    """Return `offset`, or where the log begins now if that is later."""
    if moved is None or offset.order >= moved.order:
        return offset if moved is None else offset.not_before(moved.lsn)
    return moved


def _lost(options: CdcOptions, *, is_read_in_vain: bool) -> str | None:
    """Explain why the slot is lost, and drop it if it may be created again; None if it is not lost."""
    if options.temporary_slot:
        return "was temporary, and is recreated"
    with connect(options.slot_url) as connection:
        facts = read_slot(connection, options.slot)
        # A temporary slot of another session is not ours to drop.
        if facts is None or facts.temporary or not (facts.lost or (is_read_in_vain and options.create_slot)):
            return None
        if options.create_slot:
            drop_slot(connection, options.slot)
    why = facts.why_lost if facts.lost else "the server does not find its log"
    return f"was lost ({why}), and is recreated"


def _look(options: CdcOptions) -> LogPositions:
    """Read where the slot and the server's log are now."""
    with ReplicationConnection(options.slot_url, "headrace look") as connection:
        return read_positions(connection, options.slot)


def adopted_offset(
    options: CdcOptions, start: Mapping[str, Any], tables: FollowedTables
) -> dict[str, Any] | None:
    """Return the offset of the same place on the server that pg_upgrade has made; None where it made none.

    See decision 0194.

    Args:
        options: of the query; `upgradedFrom` names the system of the server before.
        start: the last offset in the checkpoint.
        tables: know the catalog of the new server afterwards.

    Raises:
        HeadraceError: CONTINUITY where the server is another one, or rows were being read; CONNECTION,
            DATABASE.
    """
    before = LogOrigin.from_json(start)
    if before is None or before.system != options.upgraded_from:
        return None
    now = _look(options)
    if now.origin.system == before.system:
        return None
    if SnapshotProgress.from_json(start) is not None:
        raise HeadraceError(
            Kind.CONTINUITY,
            "the rows of a table were being read when the server was upgraded, and their snapshot is gone",
            f"Lead the address to the server before and let the query go on; or {as_clause(NEW_CHECKPOINT)}",
        )
    with connect(options.slot_url) as connection:
        confirmed = check_upgraded(
            connection,
            now,
            options.slot,
            Offset.from_json(start),
            before,
            publication=options.publication,
            differences=partial(tables.take_up, start),
            start_over=as_clause(NEW_CHECKPOINT),
        )
    place = Offset(confirmed)
    return place.to_json() | since_fields(since_of(start), place.lsn) | now.origin.to_json() | tables.fields()


def is_adoption(start: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Tell whether a batch leads from one system to another: it has no changes."""
    before, after = LogOrigin.from_json(start), LogOrigin.from_json(end)
    return before is not None and after is not None and before.system != after.system
