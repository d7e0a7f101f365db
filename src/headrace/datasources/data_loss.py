"""What if the slot cannot give what follows the checkpoint? An error, or on without it, never in silence.

Another server, a restored database or a promoted standby that lacks what was read is an error in any case:
its positions cannot be compared with those that were handed out.
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
"""What a reader of the log ends with where changes are lost."""
_LOG = logging.getLogger(__name__)


def gone_on(
    options: CdcOptions,
    begin: Offset,
    origin: LogOrigin | None,
    *,
    known: Lsn,
    make: Callable[[], Lsn],
) -> Offset:
    """Where the log can be read on from behind `begin`: there, or later where changes are lost.

    Args:
        options: of the query.
        begin: what was read.
        origin: whose log that is a position of, if it is known.
        known: how far that log is known to have been (bytes).
        make: makes the slot; where it begins.

    Raises:
        HeadraceError: CONTINUITY, SLOT_UNKNOWN or SLOT_LOST where the options do not allow a loss, or it
            cannot be told; what `make` raises.
    """
    slot, losing = options.slot_name, not options.fail_on_data_loss
    url = for_slot(options.connection, slot)
    with replication_connection(url, "headrace look") as connection:
        now = read_positions(connection, slot, options.publication_name)
    asked = replace(now, confirmed=begin.lsn) if losing else now
    if options.temporary_slot and not losing:
        raise temporary_gone(slot, begin.lsn)
    check_continuity(asked, slot, begin.lsn, origin, known=known)
    if not losing:
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


def later(one: Offset, moved: Offset | None) -> Offset:
    """`one`, or where the log begins now if that is behind it."""
    if moved is None or one.order >= moved.order:
        return one if moved is None else one.not_before(moved.lsn)
    return moved


def _lost(options: CdcOptions, url: str) -> str | None:
    """Why the slot can give nothing any more; it is dropped then, if it may be made again."""
    with connect(url) as connection:
        facts = read_slot(connection, options.slot_name)
        if facts is None or facts.temporary or not facts.lost:
            return None
        if options.create_slot:
            drop_slot(connection, options.slot_name)
    return f"was lost ({facts.why_lost}), and is made anew"
