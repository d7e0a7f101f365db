"""Indent JSON and SQL without a change to their meaning. Pure functions.

A JSON parser would round numbers that a double cannot hold, so every value stays the same text. In SQL only
white space between words changes.
"""

from __future__ import annotations

import re

_PARTS = re.compile(r'\s+|("(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+)|([\[{])|([\]}])|(,)|(:)')
_WORDS = re.compile(
    r"""\s+ | (?P<text> [eE]?'(?:[^'\\]|\\.|'')*' | "(?:[^"]|"")*") | (?P<open>\((?=\s*SELECT\b))
      | (?P<other>\() | (?P<close>\))
      | (?P<clause>\b(?:FROM|WHERE|(?:(?:FULL|LEFT|CROSS)\ )?JOIN|(?:ORDER|GROUP)\ BY|LIMIT|UNION\ ALL
        |SELECT)\b)
      | (?P<word>[^\s()'"]+)""",
    re.VERBOSE,
)
_STEP = "  "


def indented(text: str) -> str:
    """Indent JSON, one value to a line; empty lists and objects stay on one line."""
    lines: list[str] = [""]
    depth = 0
    opened = False
    for match in _PARTS.finditer(text):
        value, begin, end, comma, colon = match.groups()
        if end is not None:
            depth -= 1
            if not opened:
                lines.append(_STEP * depth)
        elif opened and match[0].strip():
            lines.append(_STEP * depth)
        if match[0].strip():
            opened = begin is not None
        depth += begin is not None
        lines[-1] += value or begin or end or comma or (": " if colon else "")
        if comma is not None:
            lines.append(_STEP * depth)
    return "\n".join(lines)


def indented_sql(text: str) -> str:
    """Indent a statement: a line for each clause and each key of a document, subqueries indented."""
    lines: list[str] = [""]
    nested: list[bool] = []
    for match in _WORDS.finditer(text):
        kind, word = match.lastgroup, match[0]
        if kind is None:
            lines[-1] += " " if lines[-1].strip() else ""
            continue
        closed = kind == "close" and nested and nested.pop()
        if closed or (kind == "text" and word.startswith("',\"")):
            lines.append(_STEP * (2 * sum(nested) + 1))
        elif kind == "clause" and (not nested or nested[-1]):
            lines.append(_STEP * 2 * sum(nested))
        lines[-1] += word
        if kind in {"open", "other"}:
            nested.append(kind == "open")
    return "\n".join(line.rstrip() for line in lines if line.strip())
