"""Describe what is wrong with a deployment file, with file, line and remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from headrace.config.deployment import (
    SINK_TYPES,
    TAGS,
    ConnectionParts,
    Deployment,
    EnvReference,
    IndexEntry,
    Server,
    SourceConfig,
    sink_kinds,
)
from headrace.config.lines import Lines
from headrace.errors import HeadraceError, Kind, LocatedError, Place
from headrace.model.suggestion import meant


class Locator:
    """Create errors with their place in the file; for values without a file, with their key."""

    def __init__(self, file: Path, text: str | None, data: dict[str, Any]) -> None:
        self._file = file
        self._lines = None if text is None else Lines(text)
        self._data = data

    def error(self, path: Sequence[str | int], problem: str, remedy: str = "") -> HeadraceError:
        """Return an error about the key at `path`; it does not quote the line, which may hold a password."""
        if self._lines is None:
            return HeadraceError(Kind.CONFIG, f"{self._file}: {problem}", remedy)
        return LocatedError(Kind.CONFIG, Place(self._file, self._lines.of(path)), problem, remedy)

    def line(self, path: Sequence[str | int]) -> int:
        """Return the line of the key at `path`."""
        return 1 if self._lines is None else self._lines.of(path)

    def translate(self, details: Iterable[Any]) -> list[HeadraceError]:
        """Translate pydantic's errors, in the order of the file."""
        located = []
        for detail in details:
            path = tuple(part for part in detail["loc"] if part not in TAGS)
            located.append((self.line(path), self.error(path, *self._sentence(path, detail))))
        return [error for _, error in sorted(located, key=lambda pair: pair[0])]

    def _sentence(self, path: tuple[str | int, ...], detail: Any) -> tuple[str, str]:
        shown, context = _render_path(path), detail.get("ctx", {})
        match detail["type"]:
            case "extra_forbidden":
                sentence = f"unknown key {shown}", meant(str(path[-1]), self._known(path[:-1]))
            case "missing":
                sentence = f"{shown} is missing", f"Add `{path[-1]} = …`."
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

    def _known(self, path: tuple[str | int, ...]) -> list[str]:
        """Return the keys that the table at `path` may have."""
        model = _model(path, self._data)
        return [field.alias or name for name, field in model.model_fields.items()]


def _model(path: tuple[str | int, ...], data: dict[str, Any]) -> type[BaseModel]:
    plain: dict[tuple[str | int, ...], type[BaseModel]] = {
        (): Deployment,
        ("source",): SourceConfig,
        ("server",): Server,
    }
    if path in plain:
        return plain[path]
    match path:
        case ("index", int()):
            return IndexEntry
        case ("sinks", name):
            sinks = {key.strip().lower(): value for key, value in data["sinks"].items()}
            return SINK_TYPES[sinks[name]["type"]]
        case ("source", "connection_url") if "env" not in data["source"]["connection_url"]:
            return ConnectionParts
        case _:
            return EnvReference


def _render_path(path: tuple[str | int, ...]) -> str:
    if not path:
        return "the file"
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}"
    return f"'{text.lstrip('.')}'"
