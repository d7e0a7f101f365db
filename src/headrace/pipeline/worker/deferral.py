"""Decide which documents a task writes with its batch, and which ones it defers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

from headrace.model.changes import Key
from headrace.pipeline.worker.task import TaskShare

# Keys of one write: enough for assembly and bulk requests to run in parallel.
KEYS_AT_ONCE = 10_000

# Keys by index, for one write.
IndexKeys = Mapping[str, Sequence[Key]]

# With no more documents for each change, a batch is large but has no fan-out.
_DOCUMENTS_FOR_A_CHANGE = 10

# Keys of a deferred chunk at most, and chunks of the smallest deferred change.
CHUNK_KEYS, _CHUNKS = 1_000, 50
# The same for a secondary sink, whose thread holds 2,000 chunks.
SECONDARY_CHUNK_KEYS = 100


class Deferral:
    """Collects distinct keys, and defers those of an index that has too many.

    Args:
        share: decides which keys this task writes.
        limit: documents of one index that a change may touch and still be written with its batch.
        changes: the number of changes of the batch.
        defer: saves chunks of keys of an index durably, to be written later.
        chunk: keys of a chunk, at most.
    """

    def __init__(
        self,
        share: TaskShare,
        limit: int,
        changes: int,
        defer: Callable[[str, Sequence[Sequence[Key]]], None],
        chunk: int = CHUNK_KEYS,
    ) -> None:
        self._share = share
        # A task resolves all changes and has its share of the keys, so it has that share of the limit.
        self._most = max(limit, _DOCUMENTS_FOR_A_CHANGE * changes) // share.count
        self._chunk = max(1, min(chunk, limit // _CHUNKS))
        self._defer = defer
        self._keys: dict[str, dict[Key, None]] = {}
        self._overflowed: set[str] = set()

    def add(self, index: str, keys: Iterable[Key]) -> None:
        """Add keys; memory holds at most `limit` of an index, and those that are added at once."""
        index_keys = self._keys.setdefault(index, {})
        index_keys.update(dict.fromkeys(self._share.own(keys)))
        if len(index_keys) > self._most:
            # From now on memory holds less than a chunk of this index, however many keys follow.
            self._overflowed.add(index)
        if index in self._overflowed:
            self._defer_chunks(index, least=self._chunk)

    def keys_to_write(self, first: Collection[str] = frozenset()) -> list[IndexKeys]:
        """Return the keys to write now; the others are deferred on return.

        Args:
            first: the indexes that are written before the others.
        """
        for index in self._overflowed:
            self._defer_chunks(index, least=1)
        items = [(index, key) for index, keys in self._keys.items() for key in keys]
        parts = ([item for item in items if (item[0] in first) is is_first] for is_first in (True, False))
        return [
            group_keys(part[at : at + KEYS_AT_ONCE])
            for part in parts
            for at in range(0, len(part), KEYS_AT_ONCE)
        ]

    def _defer_chunks(self, index: str, least: int) -> None:
        """Defer whole chunks, until fewer than `least` keys are left."""
        left = iter(self._keys[index])
        count = len(self._keys[index])
        chunks = []
        while count >= least:
            chunks.append(list(islice(left, self._chunk)))
            count -= len(chunks[-1])
        if chunks:
            self._defer(index, chunks)
        self._keys[index] = dict.fromkeys(left)


def group_keys(items: Iterable[tuple[str, Key]]) -> IndexKeys:
    """Group keys by index."""
    grouped: dict[str, list[Key]] = {}
    for index, key in items:
        grouped.setdefault(index, []).append(key)
    return grouped


def halves(whole: IndexKeys) -> list[IndexKeys]:
    """Divide the keys of a write into two parts, as far as there are two."""
    items = [(index, key) for index, keys in whole.items() for key in keys]
    if len(items) <= 1:
        return [whole]
    middle = len(items) // 2
    return [group_keys(items[:middle]), group_keys(items[middle:])]
