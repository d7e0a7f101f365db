"""Read a JSON file together with the line of each value."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import yaml

from headrace.config.problems import KeyPath
from headrace.config.text_files import parse_json, read_text
from headrace.errors import Kind


def read_json(file: Path, what: str) -> tuple[Any, dict[KeyPath, int]]:
    """Return the value of a JSON file, and the line of each value in it by the keys that lead there.

    Raises:
        HeadraceError: CONFIG: it cannot be read, is no JSON, or is nested too deeply.
    """
    text = read_text(file, what, Kind.CONFIG)
    return parse_json(file, text), _find_lines(text)


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
    with contextlib.suppress(yaml.YAMLError, RecursionError):
        note((), yaml.compose(text.replace("\t", " "), yaml.BaseLoader))
    return lines
