"""Read values out of JSON text without changing a byte of them. Pure.

The text is walked value by value; a raw value is a slice of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")


def _number(_: str) -> None:
    """Ignore a number of any length."""


_skip = json.JSONDecoder(parse_int=_number, parse_float=_number).raw_decode
_decode = json.JSONDecoder().raw_decode


class RawJson:
    """A cursor in a JSON text; every method moves it forward.

    Raises:
        ValueError: the text is not what was expected, or ends too early.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fields(self) -> Iterator[str]:
        """Iterate over the keys of an object; the caller takes each value before the next key."""
        self._take("{")
        more = self._peek() != "}"
        while more:
            key = self.value()
            self._take(":")
            yield key
            more = self._peek() == ","
            if more:
                self._take(",")
        self._take("}")

    def items(self) -> Iterator[None]:
        """Iterate over the items of a list; the caller takes each value before the next."""
        self._take("[")
        more = self._peek() != "]"
        while more:
            yield
            more = self._peek() == ","
            if more:
                self._take(",")
        self._take("]")

    def value(self) -> Any:
        """Take the next value, parsed."""
        found, self._at = _decode(self._text, self._start())
        return found

    def raw(self) -> str:
        """Take the next value as unchanged text."""
        start = self._start()
        _, self._at = _skip(self._text, start)
        return self._text[start : self._at]

    def _start(self) -> int:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        return match.end()

    def _peek(self) -> str:
        self._at = self._start()
        return self._text[self._at : self._at + 1]

    def _take(self, character: str) -> None:
        if self._peek() != character:
            raise ValueError(f"{character!r} was expected at {self._at}, not {self._peek()!r}")
        self._at += 1
