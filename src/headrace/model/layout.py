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


def indented_sql(text: str) -> str:
    """Indent a statement: a line for each clause and each key of a document, subqueries indented."""
    lines: list[str] = [""]
    subqueries = [True]  # the statement itself, then whether each open parenthesis holds a query
    for match in _WORDS.finditer(text):
        kind, word = match.lastgroup, match[0]
        if kind is None:
            lines[-1] += " " if lines[-1].strip() else ""
            continue
        closed = kind == "close" and len(subqueries) > 1 and subqueries.pop()
        depth = 2 * (sum(subqueries) - 1)
        # A text that begins with a comma and a quote begins the next key of a document.
        if closed or (kind == "text" and word.startswith("',\"")):
            lines.append(_STEP * (depth + 1))
        elif kind == "clause" and subqueries[-1]:
            lines.append(_STEP * depth)
        lines[-1] += word
        if kind in {"open", "other"}:
            subqueries.append(kind == "open")
    return "\n".join(filter(None, map(str.rstrip, lines)))
