"""Count how many bytes of a JSON document each of its fields takes, as the text stands. Pure.

A parser would drop the text, and with it the exact sizes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


@dataclass(slots=True)
class FieldSize:
    """What one document holds of a field.

    Attributes:
        size: the bytes of its key and value, with everything that is in it.
        objects: the JSON objects that it holds, in lists too.
        values: its own texts (without quotes), numbers and booleans, as they stand; none is null.
    """

    size: int = 0
    objects: int = 0
    values: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """An object or list that has not ended; `start` is where the present key of an object begins."""

    path: str
    is_object: bool
    start: int | None = None
    key: str = ""

    @property
    def member(self) -> str:
        """The path of the value that stands here now."""
        if not self.is_object:
            return self.path
        return f"{self.path}.{self.key}" if self.path else self.key


def field_sizes(body: bytes, paths: Collection[str]) -> Mapping[str, FieldSize]:
    """Return the size of each field of `paths` that a document holds.

    Args:
        body: the document.
        paths: the dotted paths of the fields that are measured.
    """
    sizes: dict[str, FieldSize] = {}
    opened = [_Open("", is_object=False)]
    for match in _TOKENS.finditer(body):
        token, above = match[0], opened[-1]
        if token in b"{[":
            if token == b"{" and above.member in paths:
                sizes.setdefault(above.member, FieldSize()).objects += 1
            opened.append(_Open(above.member, is_object=token == b"{"))
        elif token in b"}],":
            _end_member(above, match.start(), sizes, paths)
            if token != b",":
                opened.pop()
        # A key begins here. It counts for the field, as its value does.
        elif above.is_object and above.start is None:
            above.start, above.key = match.start(), json.loads(token)
        elif token not in {b":", b"null"} and above.member in paths:
            value = token[1:-1] if token.startswith(b'"') else token
            sizes.setdefault(above.member, FieldSize()).values.append(value)
    return sizes


def _end_member(above: _Open, end: int, sizes: dict[str, FieldSize], paths: Collection[str]) -> None:
    if above.start is None:
        return
    if above.member in paths:
        sizes.setdefault(above.member, FieldSize()).size += end - above.start
    above.start = None
