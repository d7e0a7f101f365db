"""Has someone altered a table so that the documents of this run would be, or are, wrong?

The catalog's fingerprint is compared with the one that the run began with. Nothing in the log tells of most
of what is found here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.catalog.arrivals import came_with_rows
from headrace.catalog.differences import Difference, Differences, Weakening, compare, weakened
from headrace.catalog.fingerprint import Fingerprint, read_fingerprint
from headrace.catalog.usage import Usage
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.session import ReadSession

SECONDS = 10.0
_AGAIN = "Correct the schema file if it names what has changed, then start again: documents are built anew"


def altered(session: ReadSession, before: Fingerprint, now: Fingerprint) -> tuple[Difference, ...]:
    """Every difference that makes documents wrong, or may.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    found = compare(before, now)
    return (*found.plain, *_with_rows(session, found), *_without_rows(found))


def _with_rows(session: ReadSession, found: Differences) -> tuple[Difference, ...]:
    return tuple(
        Difference(one.table, f"the partition {one.part.name} was attached to {one.table} with rows in it")
        for one in found.arrivals
        if came_with_rows(session, one.part.name, one.oid)
    )


def _without_rows(found: Differences) -> tuple[Difference, ...]:
    return tuple(
        Difference(one.table, f"the partition {one.part.name} of {one.table} is gone, and its rows with it")
        for one in found.departures
    )


@dataclass(frozen=True, slots=True)
class Dependence:
    """What documents depend on.

    Attributes:
        usage: the columns that they read, by table.
        publication: whose members count.
        carried: the columns that old rows must carry, by table; an absent one is not asked for.
    """

    usage: Usage
    publication: str
    carried: Mapping[TableName, frozenset[str]]

    def read(self, session: ReadSession) -> Fingerprint:
        """All of it as it is now.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        return read_fingerprint(session, self.usage, self.publication)


class CatalogWatch:
    """Compares now and then; for one thread.

    Args:
        url: the database.
        dependence: what is compared.
        baseline: what the run began with.
        seconds: how long it waits between two looks.
    """

    def __init__(
        self, url: str, dependence: Dependence, baseline: Fingerprint, seconds: float = SECONDS
    ) -> None:
        self._url = url
        self._dependence = dependence
        self._baseline = baseline
        self._seconds = seconds
        self._next = 0.0
        self._session: ReadSession | None = None

    def close(self) -> None:
        """Close the session; the next look opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def look(self) -> None:
        """Compare, if it is time to.

        Raises:
            HeadraceError: SCHEMA_CHANGED or REPLICA_IDENTITY, for what was found; CONNECTION, DATABASE.
        """
        if time.monotonic() < self._next:
            return
        try:
            self._compare()
        except HeadraceError:
            self.close()
            raise
        self._next = time.monotonic() + self._seconds

    def _compare(self) -> None:
        if self._session is None or self._session.closed:
            self._session = ReadSession(self._url)
        now = self._dependence.read(self._session)
        if found := altered(self._session, self._baseline, now):
            raise schema_changed(found)
        for weak in weakened(now, self._dependence.carried):
            raise _weak(weak)
        self._baseline = now


def schema_changed(found: Sequence[Difference]) -> HeadraceError:
    """The error that ends a run."""
    said = "; ".join(dict.fromkeys(one.what for one in found))
    return HeadraceError(Kind.SCHEMA_CHANGED, said, f"{_AGAIN}.")


def _weak(weak: Weakening) -> HeadraceError:
    return HeadraceError(
        Kind.REPLICA_IDENTITY,
        f"the old rows of {weak.part.name} do not carry {', '.join(weak.missing)} any more",
        "Run `headrace setup`, which shows what to alter, then start again.",
    )
