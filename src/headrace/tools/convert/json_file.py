"""Read a JSON file together with the line of each value."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import yaml

from headrace.config.problems import KeyPath
from headrace.config.text_files import read_text
from headrace.errors import HeadraceError, Kind, LocatedError, Place


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
    """Return the line of each value of a JSON text; nothing of a text with characters that YAML lacks."""
    lines: dict[KeyPath, int] = {}

    def note(path: KeyPath, node: yaml.Node | None) -> None:
        assert node is not None, "JSON has a value"
        lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                note((*path, key.value), value)
        elif isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                note((*path, number), item)

    # JSON is YAML, except for tabs between its tokens.
    with contextlib.suppress(yaml.YAMLError):
        note((), yaml.compose(text.replace("\t", " "), yaml.BaseLoader))
    return lines
