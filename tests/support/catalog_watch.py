"""Compare the catalog look by look, as a run does, and raise what makes its documents wrong."""

from __future__ import annotations

from headrace.catalog.drift import compare_fingerprints
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.usage import Usage
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession


class CatalogWatch:
    """Compares the catalog with the last fingerprint.

    Attributes:
        emptied: the tables that lost rows.
        baseline: the catalog as of the last look.
    """

    def __init__(self, url: str, usage: Usage, publication: str) -> None:
        self.emptied: frozenset[TableName] = frozenset()
        self._usage = usage
        self._publication = publication
        self._session = ReadSession(url)
        self.baseline = self._read()

    def look(self) -> None:
        """Compare.

        Raises:
            HeadraceError: SCHEMA_CHANGED.
        """
        now = self._read()
        drift = compare_fingerprints(self._session, self.baseline, now)
        if drift.wrong:
            changes = "; ".join(dict.fromkeys(difference.what for difference in drift.wrong))
            error = HeadraceError(Kind.SCHEMA_CHANGED, changes)
            raise error.concerning(tables={difference.table for difference in drift.wrong})
        self.emptied |= drift.emptied
        self.baseline = now

    def close(self) -> None:
        """Close the session."""
        self._session.close()

    def _read(self) -> Fingerprint:
        return read_fingerprint(self._session, self._usage, self._publication)
