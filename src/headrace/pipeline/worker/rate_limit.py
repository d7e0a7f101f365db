"""Limit the rate at which a backfill reads the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")
_LOOK = 50
"""Items between two looks at the clock."""


def limit_rate(
    items: Iterable[_Item],
    per_second: float | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[_Item]:
    """Yield the same items, no more than `per_second` on average; None: without a limit."""
    if per_second is None:
        yield from items
        return
    began = clock()
    for number, item in enumerate(items, start=1):
        yield item
        if number % min(_LOOK, max(1, int(per_second))) == 0:
            sleep(max(0.0, began + number / per_second - clock()))
