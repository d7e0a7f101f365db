"""Writers that go on while everything breaks."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import psycopg

from headrace.errors import HeadraceError
from support.shop_workload import Workload

_PAUSE = 0.005
_COMMITS = ("on", "local", "off")
_AGAIN = 0.2
_AWAY = ("08", "57P")
"""How the server's own end is named: connection, and shut down or crashed."""


class Writer(threading.Thread):
    """Random transactions on the shop, also across the server's restarts.

    Attributes:
        done: see `Workload.done`; `lost` counts the connections that broke.
        failure: what no restart explains.
    """

    def __init__(self, url: str, seeds: Iterator[int]) -> None:
        super().__init__(name="writer", daemon=True)
        self.done: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self.at_work = threading.Lock()
        self._url = url
        self._seeds = seeds
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set() and self.failure is None:
            try:
                with Workload(self._url, next(self._seeds), _COMMITS) as workload:
                    self._write(workload)
            except (psycopg.Error, HeadraceError) as error:
                self._judge(error)
                self._ended.wait(_AGAIN)

    def end(self) -> None:
        """Write no more; returns when it does not."""
        self._ended.set()
        self.join()

    def _write(self, workload: Workload) -> None:
        try:
            while not self._ended.wait(_PAUSE):
                with self.at_work:
                    workload.step()
        finally:
            self.done.update(workload.done)

    def _judge(self, error: psycopg.Error | HeadraceError) -> None:
        state = error.sqlstate if isinstance(error, psycopg.Error) else None
        if state is not None and not state.startswith(_AWAY):
            self.failure = error
        self.done["lost"] += 1


class Writers:
    """Several of them, until `end`."""

    def __init__(self, url: str, count: int, first_seed: int) -> None:
        seeds = itertools.count(first_seed)
        self._all: Sequence[Writer] = [Writer(url, seeds) for _ in range(count)]
        for one in self._all:
            one.start()

    @property
    def done(self) -> Counter[str]:
        """What all have done; exact once they have ended."""
        return sum((one.done for one in self._all), Counter())

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No transaction is open and none begins.

        Raises:
            AssertionError: one of them could not write, and no restart explains it.
        """
        with contextlib.ExitStack() as held:
            for one in self._all:
                held.enter_context(one.at_work)
                assert one.failure is None, repr(one.failure)
                assert one.is_alive(), "a writer has ended by itself"
            yield

    def end(self) -> None:
        """Write no more."""
        for one in self._all:
            one.end()
