"""Compare the ids of an index with the database, in memory that does not grow with their number.

The ids fall into buckets by a hash; for each bucket only the number of ids and the sum of their hashes are
kept. Two sides with the same ids have the same buckets; where buckets differ, only their ids are listed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from headrace.assembly.lowering import plan_document
from headrace.assembly.statement import identities_statement
from headrace.catalog.table import Catalog
from headrace.errors import HeadraceError
from headrace.postgres.server_errors import is_refused_row
from headrace.postgres.session import ReadSession
from headrace.schema.tree import IndexSpec

Buckets = Mapping[int, tuple[int, int]]
"""Number and sum of the hashes of its ids, by bucket; one without ids is absent."""


def bucket_of(id_: str) -> int:
    """Return the bucket of an id, 0 ≤ bucket < 65,536."""
    return (_hash(id_) >> 48) & 0xFFFF


def buckets_of(ids: Iterable[str]) -> Buckets:
    """Return the buckets of these ids."""
    found: dict[int, tuple[int, int]] = {}
    for id_ in ids:
        number = _hash(id_)
        bucket = (number >> 48) & 0xFFFF
        count, total = found.get(bucket, (0, 0))
        found[bucket] = count + 1, total + number
    return found


def _hash(id_: str) -> int:
    return int.from_bytes(hashlib.sha256(id_.encode()).digest()[:8], "big", signed=True)


class Identities:
    """Reads the ids of an index's documents from the database; used from one thread."""

    def __init__(self, session: ReadSession, spec: IndexSpec, catalog: Catalog) -> None:
        self._session = session
        plan = plan_document(spec, catalog)
        self._sums, self._listed = (identities_statement(plan, listed=listed) for listed in (False, True))
        unfiltered = replace(plan, conditions=(), deletion=None)
        self._all_sums, self._all_listed = (
            identities_statement(unfiltered, listed=listed) for listed in (False, True)
        )

    def buckets(self) -> Buckets:
        """Return all buckets, from one pass over the root table.

        Where a row makes a condition fail, the ids of all rows are used from now on: whether they have a
        document is found out when each is assembled.

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session.
        """
        try:
            rows = self._session.query(self._sums)
        except HeadraceError as error:
            if not is_refused_row(error):
                raise
            self._sums, self._listed = self._all_sums, self._all_listed
            rows = self._session.query(self._sums)
        self._session.await_flush()  # a commit that a crash undoes could hide a difference
        return {bucket: (count, int(total)) for bucket, count, total in rows}

    def of(self, buckets: Sequence[int]) -> Iterator[str]:
        """Iterate over the ids of these buckets.

        Raises:
            HeadraceError: as `buckets`.
        """
        for (id_,) in self._session.stream(self._listed, [list(buckets)]):
            yield id_
        self._session.await_flush()
