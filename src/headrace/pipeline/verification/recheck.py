"""Is a document that differs wrong, or only on its way?

It is looked at again: the index, the database, then the index once more when everything that the database
showed is applied. What the index held before the look at the database, and holds unchanged behind it, is
no newer than that look, and no older either: where it differs then, it is wrong. What changed in between is
looked at again. Pure but for the two sides and the pipeline, which are given.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.model import Lsn
from headrace.pipeline.verification.first_difference import first_difference
from headrace.sinks.opensearch.documents import Stored

PAUSES = (0.0, 0.1, 0.3, 1.0, 2.0, 4.0)
"""Seconds behind each round; a document that is written again and again is given up after the last."""


class Verdict(enum.StrEnum):
    """What is known of a document."""

    RIGHT = "right"
    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    CHANGING = "changing"
    """It was written again in every round: it is followed, and could not be compared."""
    UNAPPLIED = "unapplied"
    """It differs, and the pipeline does not get to where the database was read: nobody can tell."""
    UNREADABLE = "unreadable"
    """Its rows make reading it fail: the database does not say what it should be."""

    @property
    def is_drift(self) -> bool:
        """Whether it is wrong."""
        return self in (Verdict.MISSING, Verdict.EXTRA, Verdict.DIFFERENT)


@dataclass(frozen=True, slots=True)
class Finding:
    """A document at the end of its rounds.

    Attributes:
        expected: what the database makes of it; None where it has none.
        found: what the index holds; None where it holds none.
        ahead: whether the index's version lies beyond the database's log: no write of ours is accepted.
        why: of an unreadable one.
    """

    id: str
    verdict: Verdict
    expected: bytes | None = None
    found: Stored | None = None
    ahead: bool = False
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What the database says of some ids, from before to after: the stamps, then the documents.

    Attributes:
        stamps: see `headrace.assembly.digests.Present`.
        documents: by id; one that is left out, or None, is none.
        unreadable: why, by id of those that cannot be read.
    """

    stamps: Mapping[str, str]
    documents: Mapping[str, bytes | None]
    unreadable: Mapping[str, str] = field(default_factory=dict)


class DatabaseSide(Protocol):
    """What the documents should be."""

    def look(self, ids: Sequence[str]) -> Look:
        """What they are now."""
        ...

    def stamps(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Of those that have a document now."""
        ...

    def position(self) -> Lsn:
        """A place in the log behind everything that was looked at so far."""
        ...


class IndexSide(Protocol):
    """What the index holds."""

    def read(self, ids: Sequence[str]) -> Mapping[str, Stored]:
        """The documents among them, as they are now."""
        ...


@dataclass(frozen=True, slots=True)
class Recheck:
    """Looks at documents until it is clear what is wrong with them.

    Attributes:
        reached: returns when the pipeline has applied everything before a place; False where it does not
            get there.
        levels: how many rows may lead from a changed row to a document, at most.
        contents: whether what stands in the documents counts, or only that they are there.
    """

    database: DatabaseSide
    index: IndexSide
    reached: Callable[[Lsn], bool]
    levels: int = 0
    contents: bool = True
    pauses: Sequence[float] = PAUSES
    sleep: Callable[[float], None] = time.sleep

    def settle(self, ids: Iterable[str]) -> list[Finding]:
        """A finding for each of `ids`; memory holds both sides of all of them."""
        left = list(ids)
        found: list[Finding] = []
        before = self.index.read(left)
        for pause in self.pauses:
            if not left:
                break
            judged, before = self._round(left, before)
            found += [one for one in judged if one.verdict is not Verdict.CHANGING]
            left = [one.id for one in judged if one.verdict is Verdict.CHANGING]
            if left:
                self.sleep(pause)
        return found + [Finding(one, Verdict.CHANGING) for one in left]

    def _round(
        self, ids: list[str], before: Mapping[str, Stored]
    ) -> tuple[list[Finding], Mapping[str, Stored]]:
        look = self.database.look(ids)
        position = self.database.position()
        applied = self._settled(position)
        after = self.index.read(ids)
        absent = [one for one in ids if one in look.stamps and one not in after]
        again = self.database.stamps(absent) if absent else {}
        judged = []
        for one in ids:
            if one in look.unreadable:
                judged.append(Finding(one, Verdict.UNREADABLE, why=look.unreadable[one]))
                continue
            expected, found = look.documents.get(one), after.get(one)
            unmoved = found == before.get(one)
            if found is None:
                unmoved = unmoved and one in again and look.stamps.get(one) == again[one]
            verdict = self._verdict(expected, found, applied=applied, unmoved=unmoved)
            ahead = found is not None and found.version > position
            judged.append(Finding(one, verdict, expected, found, ahead))
        return judged, after

    def _settled(self, position: Lsn) -> bool:
        """Wait until the documents have everything before `position`; False where the pipeline stands still.

        Of the rows that led from a change to a document one may have been moved away before the change was
        applied. Then the move, which lies behind, brings the document up to date; or another one, of a row
        nearer to the document. Each was to be seen when the one before was applied.
        """
        for _ in range(self.levels):
            if not self.reached(position):
                return False
            position = self.database.position()
        return self.reached(position)

    def _verdict(
        self, expected: bytes | None, found: Stored | None, *, applied: bool, unmoved: bool
    ) -> Verdict:
        if self._same(expected, found):
            return Verdict.RIGHT
        if not applied:
            return Verdict.UNAPPLIED
        if not unmoved:
            return Verdict.CHANGING
        if found is None:
            return Verdict.MISSING
        return Verdict.EXTRA if expected is None else Verdict.DIFFERENT

    def _same(self, expected: bytes | None, found: Stored | None) -> bool:
        if expected is None or found is None:
            return expected is None and found is None
        if not self.contents or expected == found.source:
            return True
        return first_difference(expected, found.source) is None
