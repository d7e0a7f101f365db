"""Resume after a data loss: the slot cannot give what follows the checkpoint.

It is an error, or the query goes on with a warning, as the options say. Another server, a restored database,
or a promoted standby that lacks what was read is an error in any case: its positions cannot be compared with
those that were handed out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import check_continuity, read_positions, temporary_gone
from headrace.datasources.cdc_options import CdcOptions
from headrace.errors import Kind
from headrace.model import Lsn, format_lsn
from headrace.postgres.address import for_slot
from headrace.postgres.connection import connect
from headrace.postgres.replication import replication_connection
from headrace.postgres.slot import drop_slot, read_slot

LOSSES = frozenset({Kind.CONTINUITY, Kind.SLOT_UNKNOWN, Kind.SLOT_LOST})
"""The kinds of errors that end a reader of the log where changes are lost."""
_LOG = logging.getLogger(__name__)


def resume_offset(
    options: CdcOptions,
    begin: Offset,
    origin: LogOrigin | None,
    *,
    known: Lsn,
    make: Callable[[], Lsn],
) -> Offset:
    """Return the offset from which the log can be read on: `begin`, or a later one where changes are lost.

    Args:
        options: of the query.
        begin: what was read.
        origin: whose log that is a position of, if it is known.
        known: how far that log is known to have been (bytes).
        make: creates the slot and returns where it begins.

    Raises:
        HeadraceError: CONTINUITY, SLOT_UNKNOWN or SLOT_LOST where the options do not allow a loss, or it
            cannot be recognised; any error of `make`.
    """
    slot, allows_loss = options.slot_name, not options.fail_on_data_loss
    url = for_slot(options.connection, slot)
    with replication_connection(url, "headrace look") as connection:
        now = read_positions(connection, slot, options.publication_name)
    expected = replace(now, confirmed=begin.lsn) if allows_loss else now
    if options.temporary_slot and not allows_loss:
        raise temporary_gone(slot, begin.lsn)
    check_continuity(expected, slot, begin.lsn, origin, known=known)
    if not allows_loss:
        return begin
    why = "was a temporary one, and is made anew" if options.temporary_slot else _lost(options, url)
    confirmed = now.confirmed if why is None else None
    if confirmed is not None and confirmed <= begin.lsn:
        return begin
    if confirmed is not None:
        why = "was made anew, or moved by somebody else"
    place = make() if confirmed is None else confirmed
    _LOG.warning(
        "the slot %r %s: the changes from %s to %s are missing, and the query goes on without them, as "
        "failOnDataLoss=false says",
        slot,
        why or "was gone, and is made anew",
        format_lsn(begin.lsn),
        format_lsn(place),
    )
    return Offset(place)


def later_offset(offset: Offset, moved: Offset | None) -> Offset:
    """Return `offset`, or where the log begins now if that is later."""
    if moved is None or offset.order >= moved.order:
        return offset if moved is None else offset.not_before(moved.lsn)
    return moved


def _lost(options: CdcOptions, url: str) -> str | None:
    """Explain why the slot is lost, and drop it if it may be created again; None if it is not lost."""
    with connect(url) as connection:
        facts = read_slot(connection, options.slot_name)
        if facts is None or facts.temporary or not facts.lost:
            return None
        if options.create_slot:
            drop_slot(connection, options.slot_name)
    return f"was lost ({facts.why_lost}), and is made anew"
