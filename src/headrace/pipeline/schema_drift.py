"""Has someone altered a table so that the documents of this run would be, or are, wrong?

The catalog's fingerprint is compared with the one that the run began with. Nothing in the log tells of most
of what is found here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.catalog.arrivals import came_with_rows, may_have_been_unlogged
from headrace.catalog.differences import CatalogDifference, Weakening, compare, weakened
from headrace.catalog.fingerprint import Fingerprint, read_fingerprint
from headrace.catalog.needs import IndexNeeds, Needs, stream_needs
from headrace.catalog.usage import Usage
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model import Lsn, TableName
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.project import Endpoints
from headrace.postgres.session import ReadSession

SECONDS = 10.0
ALTERED = frozenset({Kind.SCHEMA_CHANGED, Kind.REPLICA_IDENTITY})
"""What is said of an altered table, by the catalog or by the log."""
_AGAIN = "Correct the schema file if it names what has changed, then start again: documents are built anew"


@dataclass(frozen=True, slots=True)
class SchemaDrift:
    """What was altered between two moments, as far as documents are concerned.

    Attributes:
        wrong: makes documents wrong, or may: they are built anew.
        moved: whether partitions have come or gone, or a table was emptied.
        emptied: tables that lost rows, with a partition for example: whatever exists may have changed.
    """

    wrong: tuple[CatalogDifference, ...] = ()
    moved: bool = False
    emptied: frozenset[TableName] = frozenset()


def altered(session: ReadSession, before: Fingerprint, now: Fingerprint) -> SchemaDrift:
    """Compare.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    found = compare(before, now)
    brought = [
        CatalogDifference(
            one.table, f"the partition {one.part.name} was attached to {one.table} with rows in it"
        )
        for one in found.arrivals
        if one.part.persistence == "p" and came_with_rows(session, one.table, one.part.name, one.oid)
    ]
    unlogged = {one: may_have_been_unlogged(session, one) for one in found.rewrites}
    doubtful = [
        CatalogDifference(
            one.table, f"{one.part.name} was written anew, and may have been unlogged meanwhile"
        )
        for one, doubt in unlogged.items()
        if doubt
    ]
    emptied = [one.table for one, doubt in unlogged.items() if doubt is None]
    return SchemaDrift(
        (*found.plain, *brought, *doubtful),
        bool(found.arrivals or found.departures or emptied),
        frozenset((*(one.table for one in found.departures), *emptied)),
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


class SchemaDriftMonitor:
    """Compares now and then; for one thread.

    Args:
        url: the database.
        dependence: what is compared.
        baseline: what the run began with.
        seconds: how long it waits between two looks.

    Attributes:
        baseline: what was found last.
        moved: whether partitions have come or gone since the beginning.
        emptied: the tables that have lost one.
    """

    def __init__(
        self, url: str, dependence: Dependence, baseline: Fingerprint, seconds: float = SECONDS
    ) -> None:
        self.baseline = baseline
        self.moved = False
        self.emptied: frozenset[TableName] = frozenset()
        self._url = url
        self._dependence = dependence
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

    def explained(self, failure: HeadraceError) -> HeadraceError:
        """Why the query failed: what the catalog says was altered, if that is it; else `failure` itself."""
        if failure.retry is Retry.BACK_OFF:
            return failure
        try:
            self._compare()
        except HeadraceError as error:
            if error.kind is Kind.SCHEMA_CHANGED or (error.kind in ALTERED and failure.kind not in ALTERED):
                return error
        finally:
            self.close()
        return failure

    def _compare(self) -> None:
        if self._session is None or self._session.closed:
            self._session = ReadSession(self._url)
        now = self._dependence.read(self._session)
        found = altered(self._session, self.baseline, now)
        if found.wrong:
            raise schema_changed(found.wrong)
        for weak in weakened(now, self._dependence.carried):
            raise _weak(weak)
        self.moved |= found.moved
        self.emptied |= found.emptied
        self.baseline = now


class CatalogBaseline:
    """The catalog that a run is planned for.

    Args:
        inspection: what the plan was made from.

    Raises:
        HeadraceError: SCHEMA_CHANGED, where someone has altered a table since it was inspected.
    """

    def __init__(self, inspection: Inspection, endpoints: Endpoints) -> None:
        self._inspection = inspection
        self._url = endpoints.database
        self._dependence = Dependence(
            inspection.usage(), inspection.project.publication, inspection.carried()
        )
        with ReadSession(self._url) as session:
            self.baseline = self._dependence.read(session)
            ours = inspection.setup.alters(inspection.project.publication)
            self._found = self.baseline.altered_like(inspection.fingerprint) if ours else self.baseline
            if wrong := altered(session, inspection.fingerprint, self._found).wrong:
                raise schema_changed(wrong)

    def since(self, text: str) -> SchemaDrift:
        """What was altered since a state was written that holds this text."""
        with ReadSession(self._url) as session:
            return altered(session, Fingerprint.from_text(text), self._found)

    def watch(self) -> SchemaDriftMonitor:
        """From what is known now."""
        return SchemaDriftMonitor(self._url, self._dependence, self.baseline)

    def needs(self, generations: Iterable[tuple[str, Lsn]]) -> Needs:
        """What the log must hold for generations: each one's name in the inspection, and its `as_of`."""
        found = self._inspection
        asked = [IndexNeeds(found.usage(name), as_of) for name, as_of in generations]
        return stream_needs(asked, self._dependence.carried, self.baseline, found.catalog)


def schema_changed(found: Sequence[CatalogDifference]) -> HeadraceError:
    """The error that ends a run."""
    said = "; ".join(dict.fromkeys(one.what for one in found))
    return HeadraceError(Kind.SCHEMA_CHANGED, said, f"{_AGAIN}.")


def _weak(weak: Weakening) -> HeadraceError:
    return HeadraceError(
        Kind.REPLICA_IDENTITY,
        f"the old rows of {weak.part.name} do not carry {', '.join(weak.missing)} any more",
        "Run `headrace setup`, which shows what to alter, then start again.",
    )
