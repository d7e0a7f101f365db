"""Split the texts of arrays, ranges, composite types and hstore into the texts of their parts.

Pure syntax: each part is as PostgreSQL would print it alone, and None for NULL.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from headrace.model.values.conversion import UnreadableError

Tree = list["Tree | str | None"]
"""An array's elements; a list for each inner dimension."""

_BOUNDS = re.compile(r"(?:(?:\[-?\d+:-?\d+\])+=)?")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_DOUBLED = re.compile(r'\\(.)|""', re.DOTALL)
_FIELD = re.compile(r'"((?:[^"\\]|\\.|"")*)"|([^,()"\\]*)', re.DOTALL)
_BOUND = re.compile(r'"((?:[^"\\]|\\.|"")*)"|([^,()\[\]"\\]*)', re.DOTALL)
_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, |$)', re.DOTALL)


_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class RangeText:
    """A range's parts; a bound that is None is infinite, unless the range is empty."""

    lower: str | None
    upper: str | None
    lower_inc: bool
    upper_inc: bool
    empty: bool


@functools.cache
def _tokens(delimiter: str) -> re.Pattern[str]:
    d = re.escape(delimiter)
    return re.compile(rf'([{{}}{d}])|"((?:[^"\\]|\\.)*)"|([^{{}}"\\{d}]+)', re.DOTALL)


def array_tree(text: str, delimiter: str = ",") -> Tree:
    """Parse the elements of an array; its lower bounds are ignored."""
    # `[0:2]={…}`: PostgreSQL prints lower bounds other than 1.
    bounds = _BOUNDS.match(text)
    assert bounds is not None
    root: Tree = []
    open_lists = [root]
    position, after_value = bounds.end(), False
    tokens = _tokens(delimiter)
    while position < len(text):
        token = tokens.match(text, position)
        if token is None or not open_lists:
            raise UnreadableError("it is no array")
        position = token.end()
        match token[1]:
            case "{":
                inner: Tree = []
                open_lists[-1].append(inner)
                open_lists.append(inner)
            case "}":
                open_lists.pop()
            case None:
                open_lists[-1].append(_element(token))
            case _:
                if not after_value:
                    raise UnreadableError("it is no array")
        after_value = token[1] not in ("{", delimiter)
    if len(open_lists) != 1 or len(root) != 1 or not isinstance(root[0], list):
        raise UnreadableError("it is no array")
    return root[0]


def _element(token: re.Match[str]) -> str | None:
    if token[2] is not None:
        return _ESCAPED.sub(r"\1", token[2])
    # In quotes it is the text NULL.
    return None if token[3] == "NULL" else token[3]


def range_text(text: str) -> RangeText:
    """Parse one range."""
    parts, end = _range(text, 0)
    if end != len(text):
        raise UnreadableError("it is no range")
    return parts


def multirange_texts(text: str) -> list[RangeText]:
    """Parse the ranges of a multirange."""
    ranges = [] if text == "{}" else _items(text, "{}", _range)
    if ranges is None:
        raise UnreadableError("it is no multirange")
    return ranges


def _range(text: str, start: int) -> tuple[RangeText, int]:
    if text.startswith("empty", start):
        return RangeText(None, None, False, False, True), start + 5  # noqa: FBT003
    opening = text[start : start + 1]
    lower, position = _quotable(_BOUND, text, start + 1)
    comma = text[position : position + 1]
    upper, position = _quotable(_BOUND, text, position + 1)
    closing = text[position : position + 1]
    if opening not in ("[", "(") or comma != "," or closing not in ("]", ")"):
        raise UnreadableError("it is no range")
    return RangeText(lower, upper, opening == "[", closing == "]", empty=False), position + 1


def composite_texts(text: str, count: int) -> list[str | None]:
    """Parse the fields of a composite value with `count` fields."""
    fields = _items(text, "()", functools.partial(_quotable, _FIELD))
    if fields is None or len(fields) != count:
        raise UnreadableError(f"it has not {count} fields")
    return fields


def _items(text: str, brackets: str, read: Callable[[str, int], tuple[_Item, int]]) -> list[_Item] | None:
    """Parse one item and more between brackets, with commas between them; None where that is not all."""
    items: list[_Item] = []
    position = 0
    while text[position : position + 1] == ("," if items else brackets[0]):
        item, position = read(text, position + 1)
        items.append(item)
    return items if text[position:] == brackets[1] else None


def _quotable(pattern: re.Pattern[str], text: str, position: int) -> tuple[str | None, int]:
    """Parse a field or a bound: quotes are doubled or escaped, and an empty text is NULL."""
    token = pattern.match(text, position)
    if token is None:
        raise UnreadableError("it ends too early")
    if token[1] is not None:
        return _DOUBLED.sub(lambda match: match[1] or '"', token[1]), token.end()
    return token[2] or None, token.end()


def map_pairs(text: str) -> list[tuple[str, str | None]]:
    """Parse the pairs of an hstore, in its order."""
    pairs = []
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            raise UnreadableError("it is no hstore")
        value = None if match[2] is None else _ESCAPED.sub(r"\1", match[2])
        pairs.append((_ESCAPED.sub(r"\1", match[1]), value))
        position = match.end()
    return pairs


def leaves(tree: Tree) -> Iterator[str | None]:
    """Yield the elements of all inner lists, in order."""
    for item in tree:
        if isinstance(item, list):
            yield from leaves(item)
        else:
            yield item


def depth(tree: Tree) -> int:
    """Return the number of dimensions; 0 where there is no element."""
    dimensions = 0
    item: Tree | str | None = tree
    while isinstance(item, list):
        if not item:
            return 0
        dimensions, item = dimensions + 1, item[0]
    return dimensions


def render_tree(tree: Tree, next_leaf: Callable[[], str]) -> str:
    """Render the tree as a JSON array; `next_leaf` returns the JSON of one element after the other."""
    parts = (render_tree(item, next_leaf) if isinstance(item, list) else next_leaf() for item in tree)
    return f"[{','.join(parts)}]"
