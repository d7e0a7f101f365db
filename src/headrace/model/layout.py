"""Indent JSON without a change to its meaning. Pure.

A JSON parser would round numbers that a double cannot hold, so every value stays the same text.
"""

from __future__ import annotations

import re

_PARTS = re.compile(r'\s+|("(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+)|([\[{])|([\]}])|(,)|(:)')
_STEP = "  "


def indented(text: str) -> str:
    """Indent JSON, one value to a line; empty lists and objects stay on one line."""
    lines: list[str] = [""]
    depth = 0
    opened = False
    for match in _PARTS.finditer(text):
        _, begin, end, comma, colon = match.groups()
        token = match[0].strip()
        if not token:
            continue
        depth -= end is not None
        if opened == (end is None):
            lines.append(_STEP * depth)
        opened = begin is not None
        depth += opened
        lines[-1] += ": " if colon else token
        if comma is not None:
            lines.append(_STEP * depth)
    return "\n".join(lines)
