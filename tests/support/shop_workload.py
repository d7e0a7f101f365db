"""Run random transactions on the shop.

A workload is a seeded sequence of random transactions: every kind of change that can affect a document, mixed
with rolled back transactions and savepoints. It keeps the shop's invariants, so it can run against any shop
at any time, and several can run at once with different seeds.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from headrace.postgres.connection import Connection, connect
from support.shop_changes import CHANGES, WEIGHTS, Hand

__all__ = ["Workload"]

_RACES = frozenset({"40001", "40P01", "23503", "23505"})
"""The SQLSTATEs of races between writers: serialization, deadlock, foreign key, unique key."""


class Workload:
    """Runs random transactions on the shop at `url`; not for use by two threads at once.

    Args:
        url: the shop's database.
        seed: the same seed on the same shop, alone, makes the same changes.
        commits: the values of `synchronous_commit` from which each transaction takes one.

    Attributes:
        done: the number of changes of each kind, including rolled back ones; under `commit`, `rollback` and
            `race` the number of transactions that ended so.
    """

    def __init__(self, url: str, seed: int = 1, commits: Sequence[str] = ("on",)) -> None:
        self.done: Counter[str] = Counter()
        self._connection: Connection = connect(url, application_name="headrace workload", autocommit=False)
        self._hand = Hand(self._connection, seed)
        self._commits = commits

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._connection.close()

    def step(self, change: str | None = None) -> Sequence[str]:
        """Run one transaction of one to four random changes, or of the named one.

        One in ten is rolled back; one in five has changes that are rolled back to a savepoint.

        Returns:
            The names of the committed changes, in order; empty for a transaction that did not commit.
        """
        names = (
            [change]
            if change
            else self._hand.random.choices(list(CHANGES), list(WEIGHTS.values()), k=self._hand.dice(4))
        )
        try:
            self._hand.do(f"SET LOCAL synchronous_commit = {self._hand.random.choice(self._commits)}")
            for name in names:
                self._change(name)
            if change is None and self._hand.random.random() < 0.2:
                self._change_and_undo()
            commit = change is not None or self._hand.random.random() >= 0.1
            self._end(commit=commit)
        except self._connection.DatabaseError as error:
            self._connection.rollback()
            # Several workloads at once get into each other's way, as programs do.
            if error.sqlstate not in _RACES:
                raise
            self.done["race"] += 1
            return ()
        return tuple(names) if commit else ()

    def run(self, until: threading.Event, pause: float = 0.0) -> None:
        """Run transactions, `pause` seconds apart, until the event is set."""
        while not until.is_set():
            self.step()
            if pause:
                until.wait(pause)

    def _change(self, name: str) -> None:
        CHANGES[name](self._hand)
        self.done[name] += 1

    def _change_and_undo(self) -> None:
        self._hand.do("SAVEPOINT undone")
        for name in self._hand.random.choices(list(CHANGES), k=2):
            self._change(name)
        self._hand.do("ROLLBACK TO SAVEPOINT undone")

    def _end(self, *, commit: bool) -> None:
        if commit:
            self._connection.commit()
        else:
            self._connection.rollback()
        self.done["commit" if commit else "rollback"] += 1
