"""Count the processor time of everything that a benchmark has started, by kind of process."""

from __future__ import annotations

import os
import threading
from collections import Counter
from types import TracebackType
from typing import Self

import psutil

from headrace.embedded.processes import descendants

_LOOK_SECONDS = 1.0
"""A look takes some 10 ms of a processor, which are missing where it is measured."""
_KINDS = {
    "-clusterName": "OpenSearch",
    "pyspark-shell": "Headrace: Java",
    "pyspark.worker": "Headrace: workers",
    "streaming_source_runner": "Headrace: reader of the log",
    "pyspark.sql.worker": "Headrace: planning",
    "headrace run": "Headrace: run",
}
"""By words of the command line: which kind of process it is."""
OTHERS = "PostgreSQL, others"


class ProcessorWatch:
    """Looks at the processes below this one until the context ends; one counts until it was last seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], tuple[str, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="processor", daemon=True)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def seconds(self) -> Counter[str]:
        """Return the processor seconds by kind of process, of all that was seen until now."""
        with self._lock:
            self._look()
            totals: Counter[str] = Counter()
            for kind, seconds in self._seen.values():
                totals[kind] += seconds  # type: ignore[assignment]
            return totals

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            with self._lock:
                self._look()

    def _look(self) -> None:
        for pid in descendants(os.getpid()):
            try:
                process = psutil.Process(pid)
                times, key = process.cpu_times(), (pid, process.create_time())
                kind = self._seen[key][0] if key in self._seen else _kind(process.cmdline())
            except psutil.Error:
                continue  # it ended while we looked
            self._seen[key] = kind, times.user + times.system


def _kind(command: list[str]) -> str:
    line = " ".join(command).replace("-m headrace run", "headrace run")
    return next((kind for words, kind in _KINDS.items() if words in line), OTHERS)
