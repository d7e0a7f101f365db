"""Read digests and ids of documents, so that a comparison transfers only the documents that differ.

Digests are read in the order of the root table's key, a range at a time. A row keeps its place in this order
however often it is written, and each range is read in a snapshot of its own, so no old rows are held back in
the database.

Ids are compared in memory that does not grow with their number. They fall into buckets by a hash; for each
bucket only the number of ids and the sum of their hashes are kept. Two sides with the same ids have the same
buckets; where buckets differ, only their ids are listed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.assembly.assembler import Assembler, by_halves, castable_keys, unless_refused
from headrace.assembly.lowering import plan_document
from headrace.assembly.plan import DocumentPlan
from headrace.assembly.read_strategies import strategy_for_rows, uses_sets
from headrace.assembly.statement import (
    digests_statement,
    identities_statement,
    ids_statement,
    presence_statement,
)
from headrace.catalog.table import Catalog, Column
from headrace.model.changes import Key, key_of_id
from headrace.postgres.server_errors import is_refused_row
from headrace.postgres.session import ReadSession
from headrace.schema.tree import IndexSpec

_DRAWS = 1 << 32
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of the documents, chosen by a hash of their ids: the same on both sides for the same seed."""

    percent: float
    seed: str

    @property
    def bound(self) -> int:
        """Return the bound: an id whose lot is below it is in the sample."""
        return round(self.percent / 100 * _DRAWS)

    def holds(self, id_: str) -> bool:
        """Return whether this id is in the sample."""
        return self.lot(id_) < self.bound

    def lot(self, id_: str) -> int:
        """Return the pseudo-random number of an id, 0 ≤ lot < 2**32."""
        return int.from_bytes(hashlib.sha256((self.seed + id_).encode()).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class Digest:
    """Size and digest of a document.

    Attributes:
        id: the document's.
        size: in bytes.
        digest: as of `digest_of`; None for a document that the index's transform drops, or that was deleted
            meanwhile.
        readable: False for a document that its rows make unreadable; its `digest` is None too.
    """

    id: str
    size: int
    digest: bytes | None
    readable: bool = True


def digest_of(document: bytes) -> bytes:
    """Return the digest of a document's bytes."""
    return hashlib.sha256(document).digest()[:_DIGEST_BYTES]


class DigestRanges:
    """Reads the digests of all documents of one index, or of a sample, a range of keys at a time.

    Used from one thread. PostgreSQL computes the digests. The documents themselves are transferred only where
    a transform changes them, because only its results can be compared, and where one cannot be read, so that
    it is found.
    """

    def __init__(
        self, session: ReadSession, spec: IndexSpec, catalog: Catalog, sample: Sample | None = None
    ) -> None:
        self._session = session
        self._sample = sample
        plan = plan_document(spec, catalog)
        self._plan, self._order = plan, _key_order(plan)
        self._last: tuple[str, ...] | None = None
        self._width = len(plan.key)
        self._transformed = spec.transform is not None
        self._assembler = Assembler(session, spec, catalog)
        self._presence = Presence(session, spec, catalog)

    def next(self, most: int) -> list[Digest]:
        """Read the next `most` documents after the last range; returns none at the end.

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session; TRANSFORM.
        """
        strategy = strategy_for_rows(self._plan, most)
        statement = digests_statement(
            self._plan, self._order, strategy, after=bool(self._last), sampled=bool(self._sample)
        )
        reusable = not uses_sets(self._plan, strategy)
        rows = unless_refused(lambda: self._rows(statement, most, reusable=reusable))
        if rows is None:
            return self._next_by_ids(most)
        # The last key, before the transform: a row that it drops has been passed too.
        if rows:
            self._last = rows[-1][3:]
        if self._transformed:
            return self._assemble([id_ for id_, *_ in rows])
        return [Digest(id_, size, digest) for id_, size, digest, *_ in rows]

    def _next_by_ids(self, most: int) -> list[Digest]:
        """Read as `next` where a row makes that fail; ranges without documents are skipped."""
        found: list[Digest] = []
        while not found:
            after, sampled = bool(self._last), bool(self._sample)
            statement = ids_statement(self._plan, self._order, after=after, sampled=sampled)
            rows = self._rows(statement, most)
            if not rows:
                break
            self._last = rows[-1][1:]
            ids = [id_ for id_, *_ in rows]
            live, digests = self._presence.read(ids).stamps, self._assemble(ids)
            found = [each for each in digests if each.id in live or each.digest or not each.readable]
        return found

    def _rows(self, statement: str, most: int, *, reusable: bool = True) -> list[tuple[Any, ...]]:
        chosen = () if self._sample is None else (self._sample.seed, self._sample.bound)
        return self._session.query(statement, (most, *chosen, *(self._last or ())), reusable=reusable)

    def _assemble(self, ids: Sequence[str]) -> list[Digest]:
        """Assemble the documents of these rows as they are now, after the transform if there is one."""
        unreadable: set[str] = set()
        keys = [key_of_id(id_, self._width) for id_ in ids]
        digests = {
            operation.id: Digest(operation.id, len(operation.body), digest_of(operation.body))
            for operation in self._assembler.assemble(keys, 0, lambda _index, id_, _why: unreadable.add(id_))
            if operation.body is not None
        }
        return [digests.get(id_, Digest(id_, 0, None, id_ not in unreadable)) for id_ in ids]


@dataclass(frozen=True, slots=True)
class Present:
    """What the database knows of some ids.

    Attributes:
        stamps: of the ids that have a document now: a value that changes when the root row is written.
        keys: of the ids that a row could have: an index may hold others.
    """

    stamps: Mapping[str, str]
    keys: Mapping[str, Key]


class Presence:
    """Finds which ids have a document in the database; used from one thread."""

    def __init__(self, session: ReadSession, spec: IndexSpec, catalog: Catalog) -> None:
        self._session = session
        self._plan = plan_document(spec, catalog)
        self._width = len(self._plan.key)
        self._statement = presence_statement(self._plan)

    def read(self, ids: Sequence[str]) -> Present:
        """Look up these ids.

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session.
        """
        # An index may hold ids that no key can have: the server refuses a NUL in any text.
        keys = {id_: key_of_id(id_, self._width) for id_ in ids if "\0" not in id_}
        usable: Sequence[Key] = list(dict.fromkeys(key for key in keys.values() if len(key) == self._width))
        rows = unless_refused(lambda: self._query(usable))
        if rows is None:
            usable = castable_keys(self._session.query, self._plan, usable)
            rows = by_halves(self._query, usable, is_refused_row)  # a condition fails for some
        stamps = {id_: stamp for id_, stamp in rows if id_ in keys and stamp is not None}
        known = set(usable)
        return Present(stamps, {id_: key for id_, key in keys.items() if key in known})

    def _query(self, keys: Sequence[Key]) -> Sequence[tuple[Any, ...]]:
        if not keys:
            return []
        return self._session.query(self._statement, [list(part) for part in zip(*keys, strict=True)])


def _key_order(plan: DocumentPlan) -> tuple[Column, ...]:
    """Return the document's key in the column order of an index that has it, if there is one."""
    names = {column.name for column in plan.key}
    castable = [unique for unique in plan.table.unique_keys if set(unique.columns) <= names]
    # The order of an index that exists: no range is sorted.
    best = min(castable, key=lambda unique: (not unique.not_null, not unique.primary), default=None)
    by_name = {column.name: column for column in plan.key}
    return plan.key if best is None else tuple(by_name[name] for name in best.columns)


Buckets = Mapping[int, tuple[int, int]]
"""Number and sum of the hashes of its ids, by bucket; one without ids is absent."""


def bucket_of(id_: str) -> int:
    """Return the bucket of an id, 0 ≤ bucket < 65,536."""
    # The same bits as in `identities_statement`, which the database computes.
    return (_id_hash(id_) >> 48) & 0xFFFF


def buckets_of(ids: Iterable[str]) -> Buckets:
    """Return the buckets of these ids."""
    found: dict[int, tuple[int, int]] = {}
    for id_ in ids:
        number = _id_hash(id_)
        bucket = (number >> 48) & 0xFFFF
        count, total = found.get(bucket, (0, 0))
        found[bucket] = count + 1, total + number
    return found


def _id_hash(id_: str) -> int:
    return int.from_bytes(hashlib.sha256(id_.encode()).digest()[:8], "big", signed=True)


class Identities:
    """Reads the ids of an index's documents from the database; used from one thread."""

    def __init__(self, session: ReadSession, spec: IndexSpec, catalog: Catalog) -> None:
        self._session = session
        self._plan = plan_document(spec, catalog)

    def buckets(self) -> Buckets:
        """Return all buckets, from one pass over the root table.

        Where a row makes a condition fail, the ids of all rows are used from now on: whether they have a
        document is found out when each is assembled.

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session.
        """
        rows = unless_refused(self._read_buckets)
        if rows is None:
            self._plan = replace(self._plan, conditions=(), deletion=None)
            rows = self._read_buckets()
        self._session.await_flush()  # a commit that a crash undoes could hide a difference
        return {bucket: (count, int(total)) for bucket, count, total in rows}

    def of(self, buckets: Sequence[int]) -> Iterator[str]:
        """Iterate over the ids of these buckets.

        Raises:
            HeadraceError: as `buckets`.
        """
        for (id_,) in self._session.stream(identities_statement(self._plan, listed=True), [list(buckets)]):
            yield id_
        self._session.await_flush()

    def _read_buckets(self) -> list[tuple[Any, ...]]:
        return self._session.query(identities_statement(self._plan, listed=False))
