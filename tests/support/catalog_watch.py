"""Compare the catalog look by look, as a run does, and raise what makes its documents wrong."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.catalog.differences import weakened
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
        moved: whether partitions were attached or detached since the beginning.
        emptied: the tables that lost rows.
    """

    def __init__(
        self, url: str, usage: Usage, publication: str, carried: Mapping[TableName, frozenset[str]]
    ) -> None:
        self.moved = False
        self.emptied: frozenset[TableName] = frozenset()
        self._usage = usage
        self._publication = publication
        self._carried = carried
        self._session = ReadSession(url)
        self._baseline = self._read()

    def look(self) -> None:
        """Compare.

        Raises:
            HeadraceError: SCHEMA_CHANGED or REPLICA_IDENTITY.
        """
        now = self._read()
        drift = compare_fingerprints(self._session, self._baseline, now)
        if drift.wrong:
            changes = "; ".join(dict.fromkeys(difference.what for difference in drift.wrong))
            error = HeadraceError(Kind.SCHEMA_CHANGED, changes)
            raise error.concerning(tables={difference.table for difference in drift.wrong})
        if weakenings := tuple(weakened(now, self._carried)):
            said = "; ".join(
                f"the old rows of {weak.part.name} do not carry {', '.join(weak.missing)}"
                for weak in weakenings
            )
            raise HeadraceError(Kind.REPLICA_IDENTITY, said)
        self.moved |= drift.moved
        self.emptied |= drift.emptied
        self._baseline = now

    def close(self) -> None:
        """Close the session."""
        self._session.close()

    def _read(self) -> Fingerprint:
        return read_fingerprint(self._session, self._usage, self._publication)
