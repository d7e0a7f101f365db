"""Keep documents that were read long ago from being written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from headrace.errors import HeadraceError, Kind

_Item = TypeVar("_Item")


class TooOldError(HeadraceError):
    """Documents were read too long ago; SINK_BUSY, because they are to be read again."""


class TimeLimit:
    """A limit on the age of documents, from their reading to their writing (decision 0093).

    A process can be suspended between the two for hours, while another one takes its place and deletes a
    document. The late write would bring it back once the sink has forgotten the delete.

    Args:
        seconds: the limit; the time that the machine sleeps counts, where the system measures it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = _now()

    def check(self) -> None:
        """Check that the time has not passed.

        Raises:
            TooOldError: read the documents again.
        """
        age = _now() - self._began
        if age > self._seconds:
            raise TooOldError(
                Kind.SINK_BUSY,
                f"documents were read {age:.0f} s before they could be written; they are read again",
                "Look whether the process was suspended, or the sink is far too slow.",
            )


def within(items: Iterable[_Item], seconds: float) -> Iterator[_Item]:
    """Yield the same items; the time runs from the first request for one.

    Raises:
        TooOldError: while iterating: as `TimeLimit.check`.
    """
    limit = TimeLimit(seconds)
    for item in items:
        limit.check()
        yield item


def _now() -> float:
    """Return seconds of a clock that also goes on while the machine sleeps; Linux has one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        # CLOCK_MONOTONIC stands still while a laptop or a virtual machine is suspended.
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
