"""Which known word did the user probably mean? And how are many names told in one line?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_NEAR = 2
_LONGEST = 80
_TOLD = 10


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word within two edits of `word` (letter case counts as none), or None."""
    if len(word) > _LONGEST:
        return None
    folded = word.lower()
    ranked = sorted((_distance(folded, one.lower()), one) for one in set(known))
    if not ranked or ranked[0][0] > min(_NEAR, max(len(word) - 1, 1)):
        return None
    return ranked[0][1]


def meant(word: str, known: Iterable[str]) -> str:
    """A remedy: `Write 'required'.`, or the list of known words where none is near."""
    words = sorted(set(known))
    near = nearest(word, words)
    if near is not None:
        return f"Did you mean {near!r}?"
    return f"Known here: {', '.join(words)}." if words else ""


def some(names: Sequence[str]) -> str:
    """The names, or of many the first ones and how many more there are: `a, b, … and 198 more`."""
    if len(names) <= _TOLD + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_TOLD])} … and {len(names) - _TOLD} more"


def _distance(left: str, right: str) -> int:
    """Edits (insert, delete, replace, swap of neighbours) between two words; a large number if far."""
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
