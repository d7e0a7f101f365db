"""Count how many bytes of a JSON document each of its fields takes, without white space. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class FieldSize:
    """What one document holds of a field.

    Attributes:
        size: the bytes of its key and value, with everything that is in it.
        objects: the JSON objects that it holds, in lists too.
        values: its own texts (without quotes), numbers and booleans, as JSON; none is null.
    """

    size: int = 0
    objects: int = 0
    values: list[str] = field(default_factory=list)


class _Number(str):
    """A number as it is written: Python's own have a limit of digits."""

    __slots__ = ()


def field_sizes(body: bytes) -> Mapping[str, FieldSize] | None:
    """Return the size of each field that a document holds, by its dotted path; empty for the whole.

    None where it is nested too deeply.
    """
    sizes: dict[str, FieldSize] = defaultdict(FieldSize)
    try:
        sizes[""].size = _measure(json.loads(body, parse_int=_Number, parse_float=_Number), "", sizes)
    except RecursionError:
        return None
    return sizes


def _measure(value: object, path: str, sizes: dict[str, FieldSize]) -> int:
    """Return the bytes of a value; what stands in it is added to `sizes`."""
    if isinstance(value, dict):
        sizes[path].objects += 1
        total = _punctuation(len(value))
        for key, inner in value.items():
            below = f"{path}.{key}" if path else key
            size = len(_text(key).encode()) + 1 + _measure(inner, below, sizes)
            sizes[below].size += size
            total += size
        return total
    if isinstance(value, list):
        return _punctuation(len(value)) + sum(_measure(inner, path, sizes) for inner in value)
    text = _text(value)
    if value is not None:
        sizes[path].values.append(text[1:-1] if text.startswith('"') else text)
    return len(text.encode())


def _punctuation(count: int) -> int:
    """Return the bytes of the brackets around so many items, and of the commas between them."""
    return 2 + max(0, count - 1)


def _text(value: object) -> str:
    return value if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
