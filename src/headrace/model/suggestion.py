"""Suggest the known word that a user probably meant, and shorten lists of names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_SIMILAR = 0.65  # two exchanged letters of three
_MOST_NAMES = 10


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`, ignoring case; None where none is like it."""
    by_folded = {candidate.lower(): candidate for candidate in sorted(known, reverse=True)}
    close = difflib.get_close_matches(word.lower(), by_folded, n=1, cutoff=_SIMILAR)
    return by_folded[close[0]] if close else None


def meant(word: str, known: Iterable[str]) -> str:
    """Return a remedy: `Did you mean 'required'?`, or the list of known words where none is near."""
    words = sorted(set(known))
    near = nearest(word, words)
    if near is not None:
        return f"Did you mean {near!r}?"
    return f"Known here: {', '.join(words)}." if words else ""


def some(names: Sequence[str]) -> str:
    """Join names for a message; of many only the first ones: `a, b, … and 198 more`."""
    if len(names) <= _MOST_NAMES + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} … and {len(names) - _MOST_NAMES} more"
