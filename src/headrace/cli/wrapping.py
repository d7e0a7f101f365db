"""Wrap text and tables to the width of a terminal. Pure functions.

Lines are broken between words, and columns of a table become narrower. Text in backticks is a command, which
the operator may copy: it stays on one line as far as it fits. A name in quotes is never broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size

_WORD = re.compile(r"(?:`[^`]*`|[^\s`])+|`\S*")
_QUOTED_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+|\S+")
_INDENT = "  "
_GAP = "  "
_LEAST_WIDTH = 8
"""A column is never made narrower than this by breaking its words."""


def wrap(text: str, width: int, *, first: int = 0, indent: str = _INDENT) -> list[str]:
    """Wrap `text` between words into lines no wider than `width`.

    Args:
        text: each of its lines is wrapped separately.
        width: the width in cells.
        first: cells that are used before the first line.
        indent: the beginning of each continuation line.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        lines += _wrap_line(line, _WORD, width, indent, 0 if lines else first)
    return lines


def wrap_sql(line: str, width: int) -> list[str]:
    """Wrap one line of SQL: a comment stays a comment, and nothing in quotes is broken."""
    if line.startswith("--"):
        return _wrap_line(line, _WORD, width, "--   ", 0)
    return _wrap_line(line, _QUOTED_WORD, width, _INDENT, 0)


def _wrap_line(line: str, word: re.Pattern[str], width: int, indent: str, first: int) -> list[str]:
    if first + cell_len(line) <= width:
        return [line]
    leading = line[: len(line) - len(line.lstrip())]
    indent = leading + indent
    lines, current, used, is_begun, end = [], leading, first + len(leading), False, 0
    for match in word.finditer(line):
        gap, text, end = line[end : match.start()], match[0], match.end()
        pieces = text.split() if word is _WORD and cell_len(indent + text) > width else [text]
        for number, piece in enumerate(pieces):
            before = " " if number else gap
            if is_begun and used + len(before) + cell_len(piece) > width:
                lines.append(current)
                current, used, is_begun = indent, len(indent), False
            if is_begun:
                current, used = current + before, used + len(before)
            current, used, is_begun = current + piece, used + cell_len(piece), True
    return [*lines, current]


def table_lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], width: int | None
) -> Iterator[str]:
    """Yield the lines of a table, its head first.

    Where `width` is too narrow, columns of text are wrapped. Where that is not enough, each row is a block of
    lines, without a head. None: one row is one line, however wide.
    """
    widest = _widths(head, rows)
    if width is None or _total(widest) <= width:
        yield from _grid(head, rows, right, widest)
        return
    least = [_narrowest(column, place in right) for place, column in enumerate(zip(head, *rows, strict=True))]
    if _total(least) <= width:
        yield from _grid(head, rows, right, _shared(least, widest, width))
        return
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield from _block(head, row, width)


def is_stacked(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], width: int | None
) -> bool:
    """Whether each row becomes a block of lines, so that the table has no head."""
    least = [_narrowest(column, place in right) for place, column in enumerate(zip(head, *rows, strict=True))]
    return width is not None and _total(_widths(head, rows)) > width and _total(least) > width


def _widths(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(head, *rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _narrowest(column: Sequence[str], is_number: bool) -> int:
    """Return how narrow a column may become; a column of numbers stays as it is."""
    if is_number:
        return max(map(cell_len, column))
    words = (cell_len(word) for cell in column for word in _WORD.findall(cell))
    return min(max(map(cell_len, column)), max(_LEAST_WIDTH, *words, 0))


def _shared(least: Sequence[int], widest: Sequence[int], width: int) -> list[int]:
    """Divide the remaining width among the columns that need it, the smallest need first."""
    widths, left = list(least), width - _total(least)
    needs = sorted((most - few, place) for place, (few, most) in enumerate(zip(least, widest, strict=True)))
    for number, (need, place) in enumerate(needs):
        more = min(need, left // (len(needs) - number))
        widths[place] += more
        left -= more
    return widths


def _grid(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], widths: Sequence[int]
) -> Iterator[str]:
    for row in (head, *rows):
        cells = [wrap(cell, width, indent="") for cell, width in zip(row, widths, strict=True)]
        for number in range(max(map(len, cells))):
            line = [cell[number] if number < len(cell) else "" for cell in cells]
            aligned = [
                " " * (width - cell_len(cell)) + cell if place in right else set_cell_size(cell, width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            yield _GAP.join(aligned).rstrip()


def _block(head: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    """Yield one row as a block: a line for each cell that is not empty, under its first cell."""
    yield from wrap(row[0], width)
    names = max(map(cell_len, head[1:]), default=0)
    for name, cell in zip(head[1:], row[1:], strict=True):
        if cell:
            before = f"{_INDENT}{set_cell_size(name, names)}{_GAP}"
            first, *more = wrap(cell, width - len(before), indent="")
            yield before + first
            yield from (" " * len(before) + line for line in more)
