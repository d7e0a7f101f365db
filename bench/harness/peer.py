"""Watch what a peer writes into its indexes, and when it has written all."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from time import perf_counter

import urllib3

from headrace.embedded.processes import GuardedProcess, tail
from headrace.tools.demo.shop import INDEXES

_LOOK_SECONDS = 0.1
_WITHIN = 900.0
_FILLED_WITHIN = 3600.0
_STILL_SECONDS = 3.0
_ENDED_WITHIN = 30.0


class Peer:
    """The running program of a peer, with the three indexes of a shop.

    Args:
        sink: OpenSearch's URL.
        prefix: of its indexes' names.
        log: the file with its output.
    """

    def __init__(self, sink: str, prefix: str, process: GuardedProcess, log: Path) -> None:
        self.sink = sink
        self.prefix = prefix
        self.pool = urllib3.PoolManager()
        self._process = process
        self._log = log
        self._seen = {index: set[int]() for index in INDEXES}
        self._filled = dict.fromkeys(INDEXES, -1)

    def end(self) -> None:
        """End its process, by SIGKILL where SIGTERM does not."""
        self._process.signal(signal.SIGTERM)
        if not self._process.wait(_ENDED_WITHIN):
            self._process.kill()

    def count_from_now(self) -> None:
        """Count only documents that are written from now on."""
        self._filled = {index: self._last_write(index) for index in INDEXES}

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Stop its process (SIGSTOP) until the context is left."""
        self._process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.signal(signal.SIGCONT)

    def until_written(self, touched: Mapping[str, Iterable[int]]) -> float:
        """The time (s, `perf_counter`) when the last of these documents was written."""
        for index, ids in touched.items():
            self._seen[index].update(ids)
        return self._until_still(
            lambda: all(self.count_since(index) >= len(self._seen[index]) for index in touched), _WITHIN
        )

    def until_filled(self, documents: int) -> float:
        """The time (s, `perf_counter`) when its indexes held so many documents."""
        return self._until_still(lambda: sum(map(self.count_since, INDEXES)) >= documents, _FILLED_WITHIN)

    def _until_still(self, complete: Callable[[], bool], within: float) -> float:
        """The time of the last write, once there was none for a while and all is there.

        Writes are counted without a refresh, which would cost the peer time.
        """
        deadline = perf_counter() + within
        written, since = -1, perf_counter()
        while True:
            if (now := self._written()) != written:
                written, since = now, perf_counter()
            elif perf_counter() - since > _STILL_SECONDS:
                if complete():
                    return since
                written = -1
            self.wait(deadline)

    def _written(self) -> int:
        names = ",".join(f"{self.prefix}{index}" for index in INDEXES)
        target = f"{self.sink}/{names}/_stats/indexing?ignore_unavailable=true"
        found = self.pool.request("GET", target).json()
        return int(found["_all"]["primaries"].get("indexing", {}).get("index_total", 0))

    def wait(self, deadline: float) -> None:
        """Wait a moment; fails after the deadline (s, `perf_counter`) and where the process has ended."""
        assert perf_counter() < deadline, tail(self._log)
        assert self._process.running, f"it ended: {tail(self._log)}"
        time.sleep(_LOOK_SECONDS)

    def exists(self, index: str) -> bool:
        """Whether its index is there."""
        return self.pool.request("HEAD", f"{self.sink}/{self.prefix}{index}").status == 200

    def _last_write(self, index: str) -> int:
        target = f"{self.sink}/{self.prefix}{index}/_stats?level=shards"
        [(_, found)] = self.pool.request("GET", target).json()["indices"].items()
        [shard] = (copies[0] for copies in found["shards"].values())
        return int(shard["seq_no"]["max_seq_no"])

    def count_since(self, index: str) -> int:
        """The documents of an index that were written since `count_from_now`, or ever."""
        target = f"{self.sink}/{self.prefix}{index}"
        self.pool.request("POST", f"{target}/_refresh")
        query = {"query": {"range": {"_seq_no": {"gt": self._filled[index]}}}}
        return int(self.pool.request("POST", f"{target}/_count", json=query).json().get("count", 0))
