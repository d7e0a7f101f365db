"""Suggest the known word that a user probably meant, and shorten lists of names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_NEAR = 2
_LONGEST = 80
_MOST_NAMES = 10


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word within two edits of `word`, ignoring case; None where there is none."""
    if len(word) > _LONGEST:
        return None
    folded = word.lower()
    ranked = sorted((_distance(folded, candidate.lower()), candidate) for candidate in set(known))
    if not ranked or ranked[0][0] > min(_NEAR, max(len(word) - 1, 1)):
        return None
    return ranked[0][1]


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


def _distance(left: str, right: str) -> int:
    """Count the edits (insert, delete, replace, swap of neighbours) between two words.

    Words whose lengths differ by more than `_NEAR` get `_NEAR + 1`.
    """
    if abs(len(left) - len(right)) > _NEAR:
        return _NEAR + 1
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]
