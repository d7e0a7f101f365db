"""Find the line of a key in a TOML text.

This is a scan, not a parser: `tomllib` has already accepted the text, and reports no places. A key inside an
inline table is found at the line of the table's key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*=(.*)""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_TRIPLE = re.compile(r"\"{3}|'{3}")


class Lines:
    """The lines of the keys of one text, counted from 1."""

    def __init__(self, text: str) -> None:
        self.text = text.splitlines()
        self._lines: dict[Path, int] = {}
        for key, line in _scan(self.text):
            path = _fold_sink_name(key)
            for length in range(1, len(path) + 1):
                self._lines.setdefault(path[:length], line)

    def of(self, path: Sequence[str | int]) -> int:
        """Return the line of the key at `path`, or of the nearest table around it; at least 1."""
        for length in range(len(path), 0, -1):
            line = self._lines.get(tuple(path[:length]))
            if line is not None:
                return line
        return 1


def _scan(lines: Sequence[str]) -> Iterator[tuple[Path, int]]:
    table: Path = ()
    counts: dict[Path, int] = {}
    inside = ""
    for number, line in enumerate(lines, 1):
        if inside:
            inside = "" if inside in line else inside
            continue
        header = _HEADER.fullmatch(line)
        key = None if header else _KEY.fullmatch(line)
        if header:
            table = _number_elements(_parts(header[2]), counts)
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            yield table, number
        elif key:
            yield (*table, *_parts(key[1])), number
            inside = _open_quote(key[2])


def _fold_sink_name(path: Path) -> Path:
    """Return `path` with a sink's name in lower case, as the loader has it."""
    if len(path) > 1 and path[0] == "sinks":
        return (path[0], str(path[1]).strip().lower(), *path[2:])
    return path


def _parts(text: str) -> Path:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


def _number_elements(path: Path, counts: dict[Path, int]) -> Path:
    """Return `path` with the number of the current element after each array of tables above its last part."""
    result: Path = ()
    for position, part in enumerate(path):
        result = (*result, part)
        if position < len(path) - 1 and result in counts:
            result = (*result, counts[result])
    return result


def _open_quote(value: str) -> str:
    """Return the triple quote that `value` leaves open; empty where there is none."""
    inside = ""
    for quote in _TRIPLE.findall(value):
        inside = "" if inside == quote else inside or quote
    return inside
