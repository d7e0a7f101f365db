"""Which documents does a task write with its batch, and which are deferred for later?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

from headrace.datasources.partitioning import TaskShare
from headrace.model import Key

KEYS_AT_ONCE = 10_000
"""What one write takes: enough for assembly and bulk requests to run beside each other."""

Portion = Mapping[str, Sequence[Key]]
"""Keys by index, as many as one write takes."""

_FEW = 500
"""Keys that are not worth parting: one bulk request holds them."""

_DOCUMENTS_FOR_A_CHANGE = 10
"""What touches no more than so many documents for each change is no fan-out: it is a large batch."""

_CHUNK_KEYS, _CHUNKS = 1_000, 50
"""How many keys a deferred chunk has at most, and how many chunks the smallest deferred change has."""


class Deferral:
    """Takes keys, each once, and defers those of an index that has too many.

    Args:
        share: the keys that are this task's.
        limit: documents of one index that a change may touch and still be written with its batch.
        changes: of the batch.
        defer: keeps chunks of keys of an index for later, durably.

    Attributes:
        deferred: how many keys were deferred.
    """

    def __init__(
        self,
        share: TaskShare,
        limit: int,
        changes: int,
        defer: Callable[[str, Sequence[Sequence[Key]]], None],
    ) -> None:
        self._share = share
        self._most = max(limit, _DOCUMENTS_FOR_A_CHANGE * changes) // share.count
        self._chunk = max(1, min(_CHUNK_KEYS, limit // _CHUNKS))
        self._defer = defer
        self._keys: dict[str, dict[Key, None]] = {}
        self._overflowed: set[str] = set()
        self.deferred = 0

    def add(self, index: str, keys: Iterable[Key]) -> None:
        """Take some keys; memory holds `limit` of an index at most, and the few that are added at once."""
        kept = self._keys.setdefault(index, {})
        kept.update(dict.fromkeys(self._share.own(keys)))
        if len(kept) > self._most:
            self._overflowed.add(index)
        if index in self._overflowed:
            self._deferral_of(index, least=self._chunk)

    def portions(self, first: Collection[str] = frozenset()) -> list[Portion]:
        """What is to be written now; the rest is deferred when this returns.

        Args:
            first: the indexes that are written before the others.
        """
        for index in self._overflowed:
            self._deferral_of(index, least=1)
        wanted = [(index, key) for index, keys in self._keys.items() for key in keys]
        parted = ([one for one in wanted if (one[0] in first) is awaited] for awaited in (True, False))
        return [
            portion(part[at : at + KEYS_AT_ONCE])
            for part in parted
            for at in range(0, len(part), KEYS_AT_ONCE)
        ]

    def _deferral_of(self, index: str, least: int) -> None:
        """Park whole chunks, until fewer than `least` keys are left."""
        kept = iter(self._keys[index])
        count = len(self._keys[index])
        chunks = []
        while count >= least:
            chunks.append(list(islice(kept, self._chunk)))
            count -= len(chunks[-1])
        if chunks:
            self._defer(index, chunks)
            self.deferred += sum(map(len, chunks))
        self._keys[index] = dict.fromkeys(kept)


def portion(wanted: Iterable[tuple[str, Key]]) -> Portion:
    """Keys by index."""
    found: dict[str, list[Key]] = {}
    for index, key in wanted:
        found.setdefault(index, []).append(key)
    return found


def halves(whole: Portion) -> list[Portion]:
    """The same keys in two portions; in one where they are few."""
    wanted = [(index, key) for index, keys in whole.items() for key in keys]
    if len(wanted) <= _FEW:
        return [whole]
    middle = len(wanted) // 2
    return [portion(wanted[:middle]), portion(wanted[middle:])]
