"""Format counts, rates and times for the page. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.model.units import duration

UNKNOWN = "\N{EN DASH}"
"""Stands where a figure is not known."""


def rate_text(rate: float | None) -> str:
    """Format a number per second, without the unit."""
    if rate is None:
        return UNKNOWN
    return f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}"  # noqa: PLR2004 - where a digit more tells


def short_text(seconds: float) -> str:
    """Format a time that may be less than a second."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds)


def age_text(seconds: float) -> str:
    """Format a time that grows while it is looked at: no finer than its reader needs."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{max(0, seconds):.0f} s"
    return f"{seconds // 60:.0f} min" if seconds < 3600 else duration(seconds)  # noqa: PLR2004 - an hour


def clock_text(time: float) -> str:
    """Format the time of day, in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S UTC")


def moment_text(time: float, now: float) -> str:
    """Return a time of day, with the date where it is not that of `now`."""
    then, today = datetime.fromtimestamp(time, UTC), datetime.fromtimestamp(now, UTC)
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M")
