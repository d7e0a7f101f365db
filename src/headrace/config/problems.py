"""Describe what is wrong with a deployment file, with file, line and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from headrace.config.control import ControlToken
from headrace.config.deployment import SINK_TYPES, TAGS, ConnectionParts, Deployment, IndexEntry, sink_kinds
from headrace.config.mirror import MirrorConfig, MirroredTables
from headrace.config.value import EnvReference
from headrace.errors import HeadraceError, Kind, LocatedError, Place
from headrace.model.suggestion import meant

KeyPath = tuple[str | int, ...]
"""A key of the file: the names of the tables around it, the number in a list, its own name."""

_HEADER = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*=.*""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_ELEMENTS: Mapping[KeyPath, type[BaseModel]] = {
    ("index",): IndexEntry,
    ("control", "tokens"): ControlToken,
    ("mirror", "tables"): MirroredTables,
}
_WRITE_HOST = "Write that name as `host` in the address, and where it is as `hostaddr`."
_FLUSSO: Mapping[KeyPath, str] = {
    ("source", "ssl_sni_hostname"): _WRITE_HOST,
    ("source", "manage_replica_identity"): 'Write `replica_identity = "auto"` for true, "check" for false.',
    ("sinks", "backfill"): "Remove it: a sink is filled once, not at each start.",
}
"""Keys of flusso's files that mean something else here, each with its remedy."""


class Locator:
    """Create errors with their place in the file; for values without a file, with their key.

    Args:
        file: the file.
        line_of: returns the line of a key; None for values without a file.
        known_keys: returns the keys that the table at a path may have.
        addition: what adds a missing key, `{}`.
    """

    def __init__(
        self,
        file: Path,
        line_of: Callable[[KeyPath], int] | None,
        known_keys: Callable[[KeyPath], list[str]],
        addition: str = "`{} = …`",
    ) -> None:
        self._file = file
        self._line_of = line_of
        self._known_keys = known_keys
        self._addition = addition

    def error(self, path: KeyPath, problem: str, remedy: str = "") -> HeadraceError:
        """Return an error about the key at `path`; it does not quote the line, which may hold a password."""
        line = self.line(path)
        if line is None:
            return HeadraceError(Kind.CONFIG, f"{self._file}: {problem}", remedy)
        return LocatedError(Kind.CONFIG, Place(self._file, line), problem, remedy)

    def line(self, path: KeyPath) -> int | None:
        """Return the line of the key at `path`; None for values without a file."""
        return None if self._line_of is None else self._line_of(path)

    def translate(self, details: Iterable[Any]) -> list[HeadraceError]:
        """Translate pydantic's errors, in the order of the file."""
        located = []
        for detail in details:
            path = tuple(part for part in detail["loc"] if part not in TAGS)
            # pydantic reports by class, people read by line.
            located.append((self.line(path) or 0, self.error(path, *self._sentence(path, detail))))
        return [error for _, error in sorted(located, key=lambda pair: pair[0])]

    def _sentence(self, path: KeyPath, detail: Any) -> tuple[str, str]:
        shown, context = _render_path(path), detail.get("ctx", {})
        match detail["type"]:
            case "extra_forbidden":
                remedy = _FLUSSO.get((path[0], path[-1])) or meant(str(path[-1]), self._known_keys(path[:-1]))
                sentence = f"unknown key {shown}", remedy
            case "missing":
                sentence = f"{shown} is missing", f"Add {self._addition.format(path[-1])}."
            case "literal_error":
                sentence = f"{shown} must be {context['expected']}", ""
            case "union_tag_invalid":
                given = context["tag"].strip("<>")
                sentence = f"{shown}: unknown type {given!r}", meant(given, sink_kinds())
            case "union_tag_not_found" if path[:1] == ("sinks",) and len(path) == len(("sinks", "name")):
                sentence = f"{shown} has no type", 'Add `type = "opensearch"`.'
            case "union_tag_not_found":
                sentence = f"{shown} is neither text nor a reference", 'Write "…" or { env = "NAME" }.'
            case "value_error":
                sentence = f"{shown}: {context['error']}", ""
            case _:
                message = str(detail["msg"]).replace("Input should be", "must be")
                sentence = f"{shown}: {message[:1].lower()}{message[1:]}", ""
        return sentence


def deployment_locator(file: Path, text: str | None, data: dict[str, Any]) -> Locator:
    """Return what locates the keys of a deployment file; without a text, those of values."""
    lines = None if text is None else key_lines(text)
    line_of = None if lines is None else partial(nearest_line, lines)
    return Locator(file, line_of, lambda path: keys_of(_model(path, data)))


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the keys of a table of a file."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _model(path: KeyPath, data: dict[str, Any]) -> type[BaseModel]:
    match path:
        case ():
            return Deployment
        case (str(table),):
            annotation = MirrorConfig if table == "mirror" else Deployment.model_fields[table].annotation
            return annotation if isinstance(annotation, type) else EnvReference
        case (*table, int()) if tuple(table) in _ELEMENTS:
            return _ELEMENTS[tuple(table)]
        case ("sinks", name):
            sinks = {key.strip().lower(): value for key, value in data["sinks"].items()}
            return SINK_TYPES[sinks[name]["type"]]
        case ("source", "connection_url") if "env" not in data["source"]["connection_url"]:
            return ConnectionParts
        case _:
            return EnvReference


def _render_path(path: KeyPath) -> str:
    if not path:
        return "the file"
    text = ""
    for part in path:
        # People count from 1.
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}"
    return f"'{text.lstrip('.')}'"


def key_lines(text: str) -> dict[KeyPath, int]:
    """Find the lines of the keys of a TOML text, counted from 1.

    They come from a scan, not a parser: `tomllib` has already accepted the text, and reports no places. A key
    inside an inline table is found at the line of the table's key; a line in a text of several lines may be
    taken for a key.
    """
    lines: dict[KeyPath, int] = {}
    for key, line in _scan(text.splitlines()):
        path = _fold_sink_name(key)
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], line)
    return lines


def nearest_line(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """Return the line of a key, or of the nearest table around it that has one; else the first."""
    return next((lines[path[:length]] for length in range(len(path), -1, -1) if path[:length] in lines), 1)


def _scan(lines: Sequence[str]) -> Iterator[tuple[KeyPath, int]]:
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    for number, line in enumerate(lines, 1):
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


def _fold_sink_name(path: KeyPath) -> KeyPath:
    """Return `path` with a sink's name in lower case, as the loader has it."""
    if len(path) > 1 and path[0] == "sinks":
        return (path[0], str(path[1]).strip().lower(), *path[2:])
    return path


def _parts(text: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


def _number_elements(path: KeyPath, counts: dict[KeyPath, int]) -> KeyPath:
    """Return `path` with the number of the current element after each array of tables above its last part."""
    result: KeyPath = ()
    for position, part in enumerate(path):
        result = (*result, part)
        if position < len(path) - 1 and result in counts:
            result = (*result, counts[result])
    return result
