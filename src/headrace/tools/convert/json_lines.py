"""Parse JSON into nodes that know their line."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, Kind, LocatedError, Place

_SPACE = re.compile(r"[ \t\r\n]*")
_HALF = re.compile("[\ud800-\udfff]")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A JSON value and the line where it begins; the members of objects and lists are nodes too.

    Attributes:
        repeated: the keys of an object that stand in it more than once; the last one counts.
    """

    value: Any
    line: int
    repeated: tuple[str, ...] = ()

    @property
    def plain(self) -> Any:
        """The value without lines."""
        match self.value:
            case dict():
                return {key: node.plain for key, node in self.value.items()}
            case list():
                return [node.plain for node in self.value]
            case _:
                return self.value

    @property
    def described(self) -> str:
        """What kind of value it is, for messages."""
        names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
        return names.get(type(self.value), "a number")


def parse_json(text: str, file: Path) -> JsonNode:
    """Parse a JSON text.

    Raises:
        LocatedError: CONFIG: it is no JSON.
        HeadraceError: CONFIG: it is nested too deeply.
    """
    try:
        # Python's parser says what is wrong, and where; the walk behind it may then trust the text.
        json.loads(text)
        return _Parser(text).parse()
    except json.JSONDecodeError as error:
        raise LocatedError(
            Kind.CONFIG,
            Place(file, error.lineno, error.colno),
            f"not JSON: {error.msg}",
            "Correct the file; PGSync does not read it either.",
        ) from error
    except RecursionError as error:
        raise HeadraceError(Kind.CONFIG, f"{file}: nested too deeply") from error


class _Parser:
    """Walk over a text that is known to be JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._at = 0

    def parse(self) -> JsonNode:
        """Parse the value at the present place, and go behind it."""
        self._skip_space()
        line = bisect_right(self._ends, self._at - 1) + 1
        match self._text[self._at]:
            case "{":
                pairs = list(self._members("}"))
                names = [key for key, _ in pairs]
                repeated = dict.fromkeys(name for name in names if names.count(name) > 1)
                return JsonNode(dict(pairs), line, tuple(repeated))
            case "[":
                return JsonNode([node for _, node in self._members("]")], line)
            case _:
                return JsonNode(self._scalar(), line)

    def _members(self, end: str) -> Iterator[tuple[str, JsonNode]]:
        self._step()
        while self._text[self._at] != end:
            key = ""
            if end == "}":
                key = self._scalar()
                self._skip_space()
                self._step()  # over the colon
            yield key, self.parse()
            self._skip_space()
            if self._text[self._at] == ",":
                self._step()
        self._at += 1

    def _scalar(self) -> Any:
        """Parse a text, a number or a word; what Python reads, and no file can hold, is no JSON."""
        begin = self._at
        value, self._at = _DECODER.raw_decode(self._text, begin)
        if isinstance(value, float) and not math.isfinite(value):
            raise json.JSONDecodeError("a number that is not finite", self._text, begin)
        if isinstance(value, str) and _HALF.search(value):
            raise json.JSONDecodeError("half a character (a lone surrogate)", self._text, begin)
        return value

    def _step(self) -> None:
        self._at += 1
        self._skip_space()

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
