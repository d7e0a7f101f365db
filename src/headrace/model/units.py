"""Format counts, bytes and seconds for people. Pure."""

from __future__ import annotations

_UNIT = 1024
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_HISSING = ("s", "x", "ch", "sh")
"""Endings of nouns whose plural ends with `es`."""


def quantity(count: int, noun: str) -> str:
    """Format a number of things: `1 document`, `12,000 documents`, `2 indexes`."""
    return f"{count:,} {plural(count, noun)}"


def plural(count: int, noun: str) -> str:
    """Return a regular English noun as it stands after this number."""
    if count == 1:
        return noun
    return f"{noun}es" if noun.endswith(_HISSING) else f"{noun}s"


def are(count: int) -> str:
    """Return `is` or `are`, as it stands after this number of things."""
    return "is" if count == 1 else "are"


def size(count: int) -> str:
    """Format a number of bytes in PostgreSQL's units (1 kB is 1024 B)."""
    value, unit = float(count), 0
    while value >= _UNIT and unit < len(_UNITS) - 1:
        value, unit = value / _UNIT, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Format a number of seconds."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min {int(seconds % _MINUTE)} s"
    if seconds < 3 * _DAY:
        return f"{int(seconds // _HOUR)} h {int(seconds % _HOUR // _MINUTE)} min"
    return f"{seconds / _DAY:,.0f} days"
