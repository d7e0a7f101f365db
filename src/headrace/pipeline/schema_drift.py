"""Detect tables that were altered so that the documents of a run are, or may become, wrong.

The catalog's fingerprint is compared with the one that the run began with. The log reports almost none of
these changes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.catalog.differences import CatalogDifference, Weakening, weakened
from headrace.catalog.drift import SchemaDrift, compare_fingerprints
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.needs import IndexNeeds, Needs, stream_needs
from headrace.catalog.usage import Usage
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.session import ReadSession

SECONDS = 10.0
ALTERED = frozenset({Kind.SCHEMA_CHANGED, Kind.REPLICA_IDENTITY})
"""Errors about an altered table, found in the catalog or in the log."""
_AGAIN = "Correct the schema file if it names what has changed, then reload it: documents are rebuilt"


@dataclass(frozen=True, slots=True)
class Dependence:
    """The part of the catalog that documents depend on.

    Attributes:
        usage: the columns that documents read, by table.
        publication: the publication whose members count.
        carried: the columns that old rows must carry, by table; nothing is required of an absent table.
    """

    usage: Usage
    publication: str
    carried: Mapping[TableName, frozenset[str]]

    def read(self, session: ReadSession) -> Fingerprint:
        """Read the fingerprint of this part as it is now.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        return read_fingerprint(session, self.usage, self.publication)


class SchemaDriftMonitor:
    """Compares the catalog with the last fingerprint every few seconds; used from one thread.

    Args:
        url: the address of the database.
        dependence: the part of the catalog that is compared.
        baseline: the fingerprint that the run began with.
        seconds: the time between two looks.

    Attributes:
        baseline: the last fingerprint.
        moved: whether partitions were attached or detached since the beginning.
        emptied: the tables that lost a partition, or were emptied.
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

    def change(self, catalog: CatalogBaseline) -> None:
        """Compare with another catalog from now on: the query has another plan."""
        self.baseline, self._dependence = catalog.baseline, catalog.dependence

    def close(self) -> None:
        """Close the session; the next look opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def look(self) -> None:
        """Compare, if a look is due.

        Raises:
            HeadraceError: SCHEMA_CHANGED or REPLICA_IDENTITY: a table was altered. CONNECTION, DATABASE.
        """
        if time.monotonic() < self._next:
            return
        try:
            self._compare()
        except HeadraceError:
            self.close()
            raise
        self._next = time.monotonic() + self._seconds

    def explain(self, failure: HeadraceError) -> HeadraceError:
        """Return the error of an altered table where that explains why the query failed; else `failure`."""
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
        drift = compare_fingerprints(self._session, self.baseline, now)
        if drift.wrong:
            raise schema_changed(drift.wrong)
        if weakenings := tuple(weakened(now, self._dependence.carried)):
            raise _weakened_identity(weakenings)
        self.moved |= drift.moved
        self.emptied |= drift.emptied
        self.baseline = now


class CatalogBaseline:
    """The catalog that a run is planned for.

    Args:
        inspection: the inspection that the plan was made from.
        endpoints: the endpoints of the deployment.

    Attributes:
        baseline: the fingerprint of the catalog now.
        dependence: the part of the catalog that is compared.

    Raises:
        HeadraceError: SCHEMA_CHANGED: a table was altered since the inspection.
    """

    def __init__(self, inspection: Inspection, endpoints: Endpoints) -> None:
        self._inspection = inspection
        self._url = endpoints.database
        self.dependence = Dependence(inspection.usage(), inspection.project.publication, inspection.carried())
        with ReadSession(self._url) as session:
            self.baseline = self.dependence.read(session)
            ours = inspection.setup.alters(inspection.project.publication)
            self._planned = self.baseline.altered_like(inspection.fingerprint) if ours else self.baseline
            if wrong := compare_fingerprints(session, inspection.fingerprint, self._planned).wrong:
                raise schema_changed(wrong)

    def since(self, text: str) -> SchemaDrift:
        """Return what was altered since a state was saved with this text of a fingerprint."""
        with ReadSession(self._url) as session:
            return compare_fingerprints(session, Fingerprint.from_text(text), self._planned)

    def watch(self) -> SchemaDriftMonitor:
        """Return a monitor that compares with the baseline."""
        return SchemaDriftMonitor(self._url, self.dependence, self.baseline)

    def needs(self, generations: Iterable[tuple[str, Lsn]]) -> Needs:
        """Return what the log must hold for generations, given as name in the inspection and `as_of`."""
        inspection = self._inspection
        index_needs = [IndexNeeds(inspection.usage(name), as_of) for name, as_of in generations]
        return stream_needs(index_needs, self.dependence.carried, self.baseline, inspection.catalog)


def schema_changed(differences: Sequence[CatalogDifference]) -> HeadraceError:
    """Return the error that ends a run because of these differences."""
    changes = "; ".join(dict.fromkeys(difference.what for difference in differences))
    error = HeadraceError(Kind.SCHEMA_CHANGED, changes, f"{_AGAIN}.")
    return error.concerning(tables={difference.table for difference in differences})


def _weakened_identity(weakenings: Sequence[Weakening]) -> HeadraceError:
    return HeadraceError(
        Kind.REPLICA_IDENTITY,
        "; ".join(
            f"the old rows of {weak.part.name} do not carry {', '.join(weak.missing)}" for weak in weakenings
        ),
        "Run `headrace setup`, which shows what to alter, then start again.",
    ).concerning(tables={weak.table for weak in weakenings})
