"""Describe how far the backfill of an index is, on the terminal, in the log and on the page. Pure."""

from __future__ import annotations

from headrace.model.units import duration, quantity
from headrace.status.board import IndexStatus

_LEAST_RATE = 0.5
_LEAST_SECONDS = 1.0


def describe_backfill(index: IndexStatus) -> str:
    """Describe how far the backfill is, how fast it is, and how long it will take.

    What is not known, and what rounds to nothing, is left out.
    """
    parts = [quantity(index.documents, "document")]
    if not index.ranges_total:
        return parts[0]
    if index.ranges_done >= index.ranges_total:
        return f"{parts[0]}, {_all_ranges(index.ranges_total)} finished, ids are being compared"
    parts.append(_ranges(index.ranges_done, index.ranges_total))
    if (index.documents_per_second or 0.0) >= _LEAST_RATE:
        parts.append(f"{index.documents_per_second:,.0f}/s")
    if index.seconds_left is not None and index.seconds_left >= _LEAST_SECONDS:
        parts.append(f"about {duration(index.seconds_left)} left")
    return ", ".join(parts)


def _ranges(done: int, total: int) -> str:
    """Say how many ranges are finished: documents of one that is not are there already."""
    if total == 1:
        return "the only range is not finished"
    return f"{f'{done:,}' if done else 'none'} of {total:,} ranges finished"


def _all_ranges(count: int) -> str:
    return "the only range is" if count == 1 else f"all {count:,} ranges are"
