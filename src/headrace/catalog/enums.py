"""Compare two texts of `ColumnPrint.inside`, and find enums that only got more labels. Pure.

A new label changes no row and not the order of the others, so it changes no document. Other changes of labels
may change documents: a label is renamed, or a type of that name is created again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LABEL = r" ?E?'(?:[^'\\]|''|\\.)*'"
_ENUM = re.compile(rf"(?!generated: |collation: )(.+?): ({_LABEL}(?:, {_LABEL})*)", re.DOTALL)
_ENTRY = re.compile(r"""(?:[^'";]|'(?:[^'\\]|''|\\.)*'|"(?:[^"]|"")*"|;(?! ))+""", re.DOTALL)


def has_only_more_labels(before: str, now: str) -> bool:
    """Return whether `now` has every entry of `before`, enums possibly with more labels."""
    old, new = list(_entries(before)), list(_entries(now))
    return len(old) == len(new) and all(map(_is_covered, old, new))


def without_labels(inside: str) -> str:
    """Return the text without the labels of its enums."""
    return "; ".join(name if labels else entry for entry, name, labels in _entries(inside))


def _is_covered(old: tuple[str, str, tuple[str, ...]], new: tuple[str, str, tuple[str, ...]]) -> bool:
    if old[0] == new[0]:
        return True
    left = iter(new[2])
    return bool(old[2]) and old[1] == new[1] and all(label in left for label in old[2])


def _entries(inside: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each entry, with the name and the labels if it is an enum."""
    for match in _ENTRY.finditer(inside):
        entry = match[0].strip()
        enum = _ENUM.fullmatch(entry)
        labels = () if enum is None else tuple(re.findall(_LABEL, enum[2], re.DOTALL))
        yield entry, "" if enum is None else enum[1], tuple(label.strip() for label in labels)
