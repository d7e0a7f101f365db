"""Decide whether a document that differs is wrong, or whether its change is not applied yet.

A recheck reads the index, then the database, and waits until everything that the database showed is applied.
Then it reads the index again. A document that the index held unchanged before and after is exactly as new as
the read of the database. Where it differs, it is wrong. A document that changed in between is checked again.
The two sides and the pipeline are arguments; otherwise the code is pure. Documents
are compared as values: 1.0 equals 1.00, and the order of keys does not count.
"""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import zip_longest
from typing import Any, Protocol

from headrace.model.lsn import Lsn
from headrace.sinks.opensearch.documents import StoredDocument

_LONGEST = 120
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of two documents.

    Attributes:
        path: where they differ, as `orders[0].total`.
        expected: the expected value as JSON, cut short; `nothing` where it is missing.
        found: the value that was found, in the same form.
    """

    path: str
    expected: str
    found: str


def first_difference(expected: bytes, found: bytes) -> Difference | None:
    """Return the first difference of two JSON documents; None where they are equal.

    Documents that Python cannot take apart are compared as texts: `json` may hold a number beyond every
    decimal, and lists some hundred deep.
    """
    if expected == found:
        return None
    try:
        return next(_differences("", _parse(expected), _parse(found)), None)
    except (InvalidOperation, RecursionError):
        texts = (_cut(body.decode(errors="replace")) or "nothing" for body in (expected, found))
        return Difference("", *texts)


def _parse(document: bytes) -> Any:
    if not document:  # of a document that lies in the index twice
        return _ABSENT
    # As decimals 1 and 1.0 are one number, and no number loses digits.
    return json.loads(document, parse_float=Decimal, parse_int=Decimal)


def _differences(path: str, expected: Any, found: Any) -> Iterator[Difference]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in dict.fromkeys([*expected, *found]):
            yield from _differences(_inside(path, key), expected.get(key, _ABSENT), found.get(key, _ABSENT))
    elif isinstance(expected, list) and isinstance(found, list):
        for number, (one, other) in enumerate(zip_longest(expected, found, fillvalue=_ABSENT)):
            yield from _differences(f"{path}[{number}]", one, other)
    # To Python true equals 1, in JSON it does not.
    elif type(expected) is not type(found) or expected != found:
        yield Difference(path, _cut(_text(expected)), _cut(_text(found)))


def _inside(path: str, key: str) -> str:
    if not key.isidentifier():
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def _text(value: Any) -> str:
    """Return `value` as JSON; numbers keep all their digits."""
    if value is _ABSENT:
        return "nothing"
    if isinstance(value, dict):
        members = [f"{_text(key)}:{_text(member)}" for key, member in value.items()]
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    text = text.encode(errors="backslashreplace").decode()  # half a character can be escaped in JSON
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# Seconds after each round; a document that keeps changing is given up after the last one.
_PAUSES = (0.0, 0.1, 0.3, 1.0, 2.0, 4.0)


class Verdict(enum.StrEnum):
    """What is known about a document."""

    RIGHT = "right"
    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    # It was written again in every round, so it is followed but could not be compared.
    CHANGING = "changing"
    # It differs, but the pipeline does not reach the position of the read: undecided.
    UNAPPLIED = "unapplied"
    # Its rows cannot be read, so the expected document is unknown.
    UNREADABLE = "unreadable"

    @property
    def is_drift(self) -> bool:
        """Whether the document is wrong."""
        return self in (Verdict.MISSING, Verdict.EXTRA, Verdict.DIFFERENT)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of rechecking a document.

    Attributes:
        id: the id of the document.
        verdict: what is known about it.
        expected: the document as the database gives it; None where there is none.
        found: the document in the index; None where there is none.
        ahead: whether the index's version is beyond the database's log, so that no write is accepted.
        why: why the document is unreadable.
    """

    id: str
    verdict: Verdict
    expected: bytes | None = None
    found: StoredDocument | None = None
    ahead: bool = False
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A read of some ids in the database: first the stamps, then the documents.

    Attributes:
        stamps: see `headrace.assembly.digests.Present`.
        documents: the documents by id; a missing id, or None, has no document.
        unreadable: by id, why a document cannot be read.
    """

    stamps: Mapping[str, str]
    documents: Mapping[str, bytes | None]
    unreadable: Mapping[str, str] = field(default_factory=dict)


class DatabaseSide(Protocol):
    """Reads the documents as they should be."""

    def look(self, ids: Sequence[str]) -> Look:
        """Read the documents as they should be now."""

    def stamps(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Return the stamps of those ids that have a document now."""

    def position(self) -> Lsn:
        """Return a position after everything that was read so far."""


ReadIndex = Callable[[Sequence[str]], Mapping[str, StoredDocument]]
"""Reads those documents of some ids that the index holds now."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """Checks documents again until the verdict about each is certain.

    Attributes:
        database: reads the expected documents.
        read_index: reads the documents in the index.
        reached: waits until the pipeline has applied everything before a position; False where it cannot.
        levels: the longest path from a changed row to a document, in rows.
        contents: whether contents are compared, or only ids.
        drops: whether a transform may drop documents, also by other rows than the root's.
        sleep: waits.
    """

    database: DatabaseSide
    read_index: ReadIndex
    reached: Callable[[Lsn], bool]
    levels: int = 0
    contents: bool = True
    drops: bool = False
    sleep: Callable[[float], None] = time.sleep

    def run(self, ids: Iterable[str]) -> list[Finding]:
        """Return a finding for each of `ids`; memory holds both sides of all of them."""
        left = list(ids)
        found: list[Finding] = []
        missed: set[str] = set()
        before = self.read_index(left)
        for pause in _PAUSES:
            if not left:
                break
            judged, before = self._round(left, before)
            missing = {finding.id for finding in judged if finding.verdict is Verdict.MISSING}
            # No stamp tells that another row has dropped a document meanwhile: it has to be missing twice.
            unsure = missing - missed if self.drops else set()
            missed = missing
            unsure |= {finding.id for finding in judged if finding.verdict is Verdict.CHANGING}
            found += [finding for finding in judged if finding.id not in unsure]
            left = [finding.id for finding in judged if finding.id in unsure]
            if left:
                self.sleep(pause)
        return found + [Finding(finding, Verdict.CHANGING) for finding in left]

    def _round(
        self, ids: list[str], before: Mapping[str, StoredDocument]
    ) -> tuple[list[Finding], Mapping[str, StoredDocument]]:
        # The order is the proof: the database, a position after it, the stream up to there, the index.
        look = self.database.look(ids)
        position = self.database.position()
        applied = self._wait_applied(position)
        after = self.read_index(ids)
        absent = [id_ for id_ in ids if id_ in look.stamps and id_ not in after]
        stamps_now = self.database.stamps(absent) if absent else {}
        findings = []
        for id_ in ids:
            if id_ in look.unreadable:
                findings.append(Finding(id_, Verdict.UNREADABLE, why=look.unreadable[id_]))
                continue
            expected, found = look.documents.get(id_), after.get(id_)
            is_unchanged = found == before.get(id_)
            if found is None:
                is_unchanged = is_unchanged and id_ in stamps_now and look.stamps.get(id_) == stamps_now[id_]
            verdict = self._verdict(expected, found, applied=applied, is_unchanged=is_unchanged)
            ahead = found is not None and found.version > position
            findings.append(Finding(id_, verdict, expected, found, ahead))
        return findings, after

    def _wait_applied(self, position: Lsn) -> bool:
        """Wait until the documents include everything before `position`; False where they never will.

        A row on the path from a change to a document may have been moved before the change was applied. Then
        the move, at a later position, brings the document up to date, or the move of a row nearer to the
        document. Each move was visible when the one before was applied, so one wait for each level is enough.
        """
        for _ in range(self.levels):
            if not self.reached(position):
                return False
            position = self.database.position()
        return self.reached(position)

    def _verdict(
        self, expected: bytes | None, found: StoredDocument | None, *, applied: bool, is_unchanged: bool
    ) -> Verdict:
        if expected is None or found is None:
            is_right = expected is None and found is None
        else:
            is_right = not self.contents or first_difference(expected, found.source) is None
        if is_right:
            return Verdict.RIGHT
        if not applied:
            return Verdict.UNAPPLIED
        if not is_unchanged:
            return Verdict.CHANGING
        if found is None:
            return Verdict.MISSING
        return Verdict.EXTRA if expected is None else Verdict.DIFFERENT
