"""Has a generation the documents that it should have, no fewer and no more?

Ids only: what they hold is right by the versions, but the cluster forgets deletes (decision 0016). Both sides
are compared by buckets of a hash; the ids of those that differ are read, and what only one side has is
assembled anew. Memory holds some hundred thousand ids at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.assembly.identities import Buckets, Identities, bucket_of, buckets_of

_IDS_AT_ONCE = 200_000


def sweep(
    identities: Identities, held: Callable[[], Iterable[str]], mend: Callable[[list[str]], None]
) -> int:
    """Compare and mend; returns how many ids were on one side only.

    Args:
        identities: the database's side.
        held: lists the index's ids; called several times where there is much to mend.
        mend: assembles the documents of these ids anew.

    Raises:
        HeadraceError: what either side does not bear.
    """
    there, endpoints = identities.buckets(), buckets_of(held())
    found = 0
    for group in _groups(there, endpoints):
        wanted, chosen = set(identities.of(group)), frozenset(group)
        differing = wanted ^ {one for one in held() if bucket_of(one) in chosen}
        if differing:
            mend(sorted(differing))
        found += len(differing)
    return found


def _groups(there: Buckets, endpoints: Buckets) -> Iterator[Sequence[int]]:
    """The buckets that differ, some hundred thousand ids at a time."""
    group: list[int] = []
    size = 0
    for bucket in sorted(there.keys() | endpoints.keys()):
        if there.get(bucket) == endpoints.get(bucket):
            continue
        more = there.get(bucket, (0, 0))[0] + endpoints.get(bucket, (0, 0))[0]
        if group and size + more > _IDS_AT_ONCE:
            yield group
            group, size = [], 0
        group.append(bucket)
        size += more
    if group:
        yield group
