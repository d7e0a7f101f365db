"""Find where a new checkpoint begins in the log, and check whether an old one can continue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from headrace.capture import Offset
from headrace.datasources.cdc_options import CdcOptions
from headrace.datasources.initial_snapshot import SnapshotProgress
from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, format_lsn, parse_lsn

_LOG = logging.getLogger(__name__)
_BEGAN = "began"


def first_offset(options: CdcOptions, confirmed: Lsn, flushed_position: Callable[[], Lsn]) -> dict[str, Any]:
    """Return the offset of a new checkpoint.

    Args:
        options: of the query.
        confirmed: the slot's position (bytes).
        flushed_position: returns how far the log is written (bytes).

    Raises:
        HeadraceError: CONTINUITY, where the slot cannot give what is asked for.
    """
    starts = options.starting_offsets
    if options.reads_first:
        return Offset(confirmed).to_json() | SnapshotProgress().to_json()
    if starts in {"earliest", "snapshot"}:
        return Offset(confirmed).to_json()
    flushed = flushed_position()
    wanted = max(flushed, confirmed) if starts == "latest" else parse_lsn(starts)
    if not confirmed <= wanted <= flushed:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"startingOffsets={starts} is not what the slot {options.slot_name!r} can give: "
            f"{format_lsn(confirmed)} to {format_lsn(flushed)}",
            "Choose a place between them, or earliest, latest or snapshot.",
        )
    if wanted > confirmed:
        _LOG.warning(
            "the slot %r stands at %s: %d bytes of log up to %s are skipped, as startingOffsets=%s says",
            options.slot_name,
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
