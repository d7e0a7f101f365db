"""Compare the ids of an index with those of the database, and assemble documents that differ.

Ids are enough: versions keep the contents right, but the cluster forgets deletes (decision 0016). Both sides
are compared by buckets of a hash. The ids of buckets that differ are read, and the documents that only one
side has are assembled again. Memory holds some hundred thousand ids at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.assembly.digests import Buckets, Identities, bucket_of, buckets_of
from headrace.model.chunks import chunked

_IDS_AT_ONCE = 200_000


def reconcile(
    identities: Identities, list_ids: Callable[[], Iterable[str]], assemble: Callable[[list[str]], None]
) -> int:
    """Compare both sides and repair; return how many ids were on one side only.

    Args:
        identities: the database's side.
        list_ids: lists the index's ids; called several times where there is much to repair.
        assemble: assembles the documents of these ids again.

    Raises:
        HeadraceError: an error of either server.
    """
    expected, actual = identities.buckets(), buckets_of(list_ids())
    repaired = 0
    for group in _groups(expected, actual):
        wanted_ids, buckets = set(identities.of(group)), frozenset(group)
        differing = wanted_ids ^ {id_ for id_ in list_ids() if bucket_of(id_) in buckets}
        if differing:
            assemble(sorted(differing))
        repaired += len(differing)
    return repaired


def _groups(expected: Buckets, actual: Buckets) -> Iterator[Sequence[int]]:
    """Yield the buckets that differ, in groups of some hundred thousand ids."""
    differing = [
        bucket
        for bucket in sorted(expected.keys() | actual.keys())
        if expected.get(bucket) != actual.get(bucket)
    ]

    def count(bucket: int) -> int:
        return expected.get(bucket, (0, 0))[0] + actual.get(bucket, (0, 0))[0]

    return chunked(differing, count, lambda: _IDS_AT_ONCE)
