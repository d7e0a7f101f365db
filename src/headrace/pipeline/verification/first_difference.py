"""Find the first difference of two JSON documents.

Documents are compared as values: 1.0 equals 1.00, and the order of keys does not count. Pure functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_LONGEST = 120
_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of two documents.

    Attributes:
        path: where they differ, as `orders[0].total`.
        expected: the expected value as JSON, cut short; `nothing` where it is missing.
        found: the value that was found, in the same form.
    """

    path: str
    expected: str
    found: str


def first_difference(expected: bytes, found: bytes) -> Difference | None:
    """Return the first difference of two JSON documents; None where they are equal."""
    return next(_differences("", _parse(expected), _parse(found)), None)


def _parse(document: bytes) -> Any:
    return json.loads(document, parse_float=Decimal, parse_int=Decimal)


def _differences(path: str, expected: Any, found: Any) -> Iterator[Difference]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            inner = _inside(path, key)
            if key in expected and key in found:
                yield from _differences(inner, expected[key], found[key])
            else:
                yield Difference(inner, _show(expected, key), _show(found, key))
    elif isinstance(expected, list) and isinstance(found, list):
        for number in range(max(len(expected), len(found))):
            inner = f"{path}[{number}]"
            if number < min(len(expected), len(found)):
                yield from _differences(inner, expected[number], found[number])
            else:
                yield Difference(inner, _show(expected, number), _show(found, number))
    elif type(expected) is not type(found) or expected != found:
        yield Difference(path, _cut(_text(expected)), _cut(_text(found)))


def _inside(path: str, key: str) -> str:
    if not key.isidentifier():
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def _show(held: Any, key: Any) -> str:
    exists = key in held if isinstance(held, dict) else key < len(held)
    return _cut(_text(held[key])) if exists else _NOTHING


def _text(value: Any) -> str:
    """Return `value` as JSON; numbers keep all their digits."""
    if isinstance(value, dict):
        members = [f"{_text(key)}:{_text(member)}" for key, member in value.items()]
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    text = text.encode(errors="backslashreplace").decode()  # half a character can be escaped in JSON
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
