"""How is a seeding kept from taking all that a database can give?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")
_LOOK = 50
"""Items between two looks at the clock."""


def paced(
    items: Iterable[_Item],
    per_second: float | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[_Item]:
    """The same items, no more than `per_second` of them on average; None: as they come."""
    if per_second is None:
        yield from items
        return
    began = clock()
    for number, item in enumerate(items, start=1):
        yield item
        if number % min(_LOOK, max(1, int(per_second))) == 0:
            sleep(max(0.0, began + number / per_second - clock()))
