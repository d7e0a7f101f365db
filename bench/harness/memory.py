"""Sample the memory of a run's processes while they work."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

import psutil


class MemoryWatch:
    """Looks at processes until the context ends.

    Attributes:
        peak: the highest sum (bytes).
        peaks: the highest sum of each kind.
        largest: the highest of one process of each kind.

    Pages that processes share are divided among them (PSS) where the system says so, else counted in each
    (RSS).

    Args:
        members: gives the processes' ids.
        seconds: between two looks.
    """

    def __init__(self, members: Callable[[], list[int]], seconds: float = 0.5) -> None:
        self._members = members
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self.peak = 0
        self.peaks: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._seconds):
            found = self.look()
            self.peak = max(self.peak, found.total())
            self.peaks |= found

    def look(self) -> Counter[str]:
        """Return what the processes hold now (bytes), by kind."""
        found: Counter[str] = Counter()
        for pid in self._members():
            try:
                process = psutil.Process(pid)
                kind, size = _kind(process.cmdline()), _bytes(process)
            except psutil.Error:
                continue  # it ended while we looked
            found[kind] += size
            self.largest[kind] = max(self.largest[kind], size)
        return found


def _kind(command: list[str]) -> str:
    if command and command[0].endswith("java"):
        return "Java"
    return "Python workers" if any("pyspark" in word for word in command) else "Python, headrace run"


def _bytes(process: psutil.Process) -> int:
    memory = process.memory_full_info()
    return int(getattr(memory, "pss", 0) or memory.rss)
