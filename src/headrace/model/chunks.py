"""Cut what is worked off together into chunks of limited size and number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")


def chunked(
    items: Iterable[_Item],
    size_of: Callable[[_Item], int],
    max_size: Callable[[], int],
    max_count: float = math.inf,
) -> Iterator[list[_Item]]:
    """Split `items`, in order, into chunks of at most `max_size` and `max_count`; a larger item goes alone.

    `max_size` is called for each item, because the limit may change meanwhile.
    """
    chunk: list[_Item] = []
    size = 0
    for item in items:
        added = size_of(item)
        if chunk and (size + added > max_size() or len(chunk) >= max_count):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += added
    if chunk:
        yield chunk
