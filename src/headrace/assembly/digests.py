"""What would the documents be, in short? For a comparison that transfers only those that are not right.

In the order of the root table's key, a range at a time: a row has its place in it however often it is
written, and each range is read in a snapshot of its own, so nothing is held back in the database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.assembly.assembler import Assembler
from headrace.assembly.forms import form_for_rows, uses_sets
from headrace.assembly.lowering import plan_document
from headrace.assembly.plan import DocumentPlan
from headrace.assembly.statement import casts_statement, digests_statement, ids_statement, presence_statement
from headrace.catalog.table import Catalog, Column
from headrace.errors import HeadraceError
from headrace.model import Key, key_of_id
from headrace.postgres.session import ReadSession, is_refused_row, is_refused_value
from headrace.schema.tree import IndexSpec

_LOTS = 1 << 32
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of the documents, chosen by a hash of their ids: the same for the same seed, on both sides."""

    percent: float
    seed: str

    @property
    def bound(self) -> int:
        """An id with a lot below it is chosen."""
        return round(self.percent / 100 * _LOTS)

    def holds(self, id_: str) -> bool:
        """Whether this id is chosen."""
        return self.lot(id_) < self.bound

    def lot(self, id_: str) -> int:
        """The number that an id draws, 0 ≤ lot < 2**32."""
        return int.from_bytes(hashlib.sha256((self.seed + id_).encode()).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class Digest:
    """A document in short: `size` in bytes, `digest` as `digest_of` has it.

    None for a document that the index's transform does not keep, or that was deleted meanwhile.

    Attributes:
        readable: False for a document that its rows make unreadable; its `digest` is None too.
    """

    id: str
    size: int
    digest: bytes | None
    readable: bool = True


def digest_of(document: bytes) -> bytes:
    """The digest of a document's bytes."""
    return hashlib.sha256(document).digest()[:_DIGEST_BYTES]


class DigestRanges:
    """The digests of all documents of one index, or of a sample, a range of keys at a time.

    Used from one thread. PostgreSQL makes the digests; where a transform changes the documents they are sent,
    because only what it makes of them can be compared, and where one cannot be read, so that it is found.

    Attributes:
        transformed: whether a function of the user's is called.
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
        self.transformed = spec.transform is not None
        self._assembler = Assembler(session, spec, catalog)
        self._presence = Presence(session, spec, catalog)

    def next(self, most: int) -> list[Digest]:
        """The next `most` documents behind the last range; none at the end.

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session; TRANSFORM.
        """
        form = form_for_rows(self._plan, most)
        statement = digests_statement(
            self._plan, self._order, form, behind=self._behind, sampled=self._sampled
        )
        try:
            rows = self._rows(statement, most, kept=not uses_sets(self._plan, form))
        except HeadraceError as error:
            if not is_refused_row(error):
                raise
            return self._apart(most)
        if rows:
            self._last = rows[-1][3:]
        if self.transformed:
            return self._made([id_ for id_, *_ in rows])
        return [Digest(id_, size, digest) for id_, size, digest, *_ in rows]

    def _apart(self, most: int) -> list[Digest]:
        """As `next`, where that fails for what some row holds; a range without a document is passed over."""
        found: list[Digest] = []
        while not found:
            statement = ids_statement(self._plan, self._order, behind=self._behind, sampled=self._sampled)
            rows = self._rows(statement, most)
            if not rows:
                break
            self._last = rows[-1][1:]
            ids = [id_ for id_, *_ in rows]
            live = self._presence.read(ids).stamps
            found = [one for one in self._made(ids) if one.id in live or one.digest or not one.readable]
        return found

    @property
    def _behind(self) -> bool:
        return self._last is not None

    @property
    def _sampled(self) -> bool:
        return self._sample is not None

    def _rows(self, statement: str, most: int, *, kept: bool = True) -> list[tuple[Any, ...]]:
        chosen = () if self._sample is None else (self._sample.seed, self._sample.bound)
        return self._session.query(statement, (most, *chosen, *(self._last or ())), kept=kept)

    def _made(self, ids: Sequence[str]) -> list[Digest]:
        """The documents of these rows, as they are now, behind the transform if there is one."""
        unreadable: set[str] = set()
        keys = [key_of_id(one, self._width) for one in ids]
        made = {
            one.id: Digest(one.id, len(one.body), digest_of(one.body))
            for one in self._assembler.assemble(keys, 0, lambda _index, id_, _why: unreadable.add(id_))
            if one.body is not None
        }
        return [made.get(one, Digest(one, 0, None, one not in unreadable)) for one in ids]


@dataclass(frozen=True, slots=True)
class Present:
    """What the database knows of some ids.

    Attributes:
        stamps: of the ids that have a document now: a mark that is another one when its row is written again.
        keys: of the ids that a row could have: an index may hold others.
    """

    stamps: Mapping[str, str]
    keys: Mapping[str, Key]


class Presence:
    """Tells which ids have a document in the database. Used from one thread."""

    def __init__(self, session: ReadSession, spec: IndexSpec, catalog: Catalog) -> None:
        self._session = session
        plan = plan_document(spec, catalog)
        self._width = len(plan.key)
        self._statement, self._casts = presence_statement(plan), casts_statement(plan)

    def read(self, ids: Sequence[str]) -> Present:
        """Look at these ids now.

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session.
        """
        keys = {id_: key_of_id(id_, self._width) for id_ in ids if "\0" not in id_}
        formed = {key: None for key in keys.values() if len(key) == self._width}
        rows, usable = self._asked(list(formed))
        stamps = {id_: stamp for id_, stamp in rows if id_ in keys}
        return Present(stamps, {id_: key for id_, key in keys.items() if key in usable})

    def _asked(self, keys: list[Key]) -> tuple[list[tuple[str, str]], set[Key]]:
        """The rows of `keys`, and which of these can be cast to the key's type; found by halving.

        A row that a condition fails for has no stamp, and a key.
        """
        if not keys:
            return [], set()
        columns = [list(part) for part in zip(*keys, strict=True)]
        try:
            rows = self._session.query(self._statement, columns)
        except HeadraceError as error:
            if not is_refused_row(error):
                raise
        else:
            return [(id_, stamp) for id_, stamp in rows if stamp is not None], set(keys)
        if len(keys) == 1:
            return [], set(keys) if self._is_usable(columns) else set()
        middle = len(keys) // 2
        (some, usable), (more, others) = self._asked(keys[:middle]), self._asked(keys[middle:])
        return some + more, usable | others

    def _is_usable(self, columns: list[list[str]]) -> bool:
        try:
            self._session.query(self._casts, columns)
        except HeadraceError as error:
            if not is_refused_value(error):
                raise
            return False
        return True


def _key_order(plan: DocumentPlan) -> tuple[Column, ...]:
    """The document's key in the order of an index that has it, where there is one."""
    names = {column.name for column in plan.key}
    usable = [one for one in plan.table.unique_keys if set(one.columns) <= names]
    best = min(usable, key=lambda one: (not one.not_null, not one.primary), default=None)
    by_name = {column.name: column for column in plan.key}
    return plan.key if best is None else tuple(by_name[name] for name in best.columns)
