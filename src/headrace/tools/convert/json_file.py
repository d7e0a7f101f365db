"""Read a JSON file together with the line of each value."""

from __future__ import annotations

import itertools
import json
import re
from bisect import bisect_right
from pathlib import Path
from typing import Any

from headrace.config.problems import KeyPath
from headrace.config.text_files import read_text
from headrace.errors import HeadraceError, Kind, LocatedError, Place

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+')


def read_json(file: Path, what: str) -> tuple[Any, dict[KeyPath, int]]:
    """Return the value of a JSON file, and the line of each value in it by the keys that lead there.

    Raises:
        HeadraceError: CONFIG: it cannot be read, is no JSON, or is nested too deeply.
    """
    text = read_text(file, what, Kind.CONFIG)
    try:
        value, lines = json.loads(text), _find_lines(text)
        # What Python reads, and no file can hold: NaN, infinity, half a surrogate pair.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        place = Place(file, error.lineno, error.colno)
        raise LocatedError(Kind.CONFIG, place, f"not JSON: {error.msg}", "Correct the file.") from error
    except ValueError as error:
        problem = "not JSON: a number that is not finite, or half a character (a lone surrogate)"
        raise HeadraceError(Kind.CONFIG, f"{file}: {problem}", "Correct the file.") from error
    except RecursionError as error:
        raise HeadraceError(Kind.CONFIG, f"{file}: nested too deeply") from error
    return value, lines


def _find_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of each value of a text that is known to be JSON."""
    ends = [match.start() for match in re.finditer("\n", text)]
    # Between valid values commas and colons say nothing.
    tokens = (
        (match[0], bisect_right(ends, match.start()) + 1)
        for match in _TOKEN.finditer(text)
        if match[0] not in ",:"
    )
    lines: dict[KeyPath, int] = {}

    def note(path: KeyPath, part: str, line: int) -> None:
        """Note the line of a value that begins with `part`, and of what is in it."""
        lines[path] = line
        if part == "{":
            while (key := next(tokens))[0] != "}":
                note((*path, json.loads(key[0])), *next(tokens))
        elif part == "[":
            numbers = itertools.count()
            while (item := next(tokens))[0] != "]":
                note((*path, next(numbers)), *item)

    note((), *next(tokens))
    return lines
