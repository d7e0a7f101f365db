"""Compare two fingerprints of the catalog, with the server's help where rows must tell what happened."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.catalog.differences import CatalogDifference, came_with_rows, compare, may_have_been_unlogged
from headrace.catalog.fingerprint import Fingerprint
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession


@dataclass(frozen=True, slots=True)
class SchemaDrift:
    """What was altered between two moments, as far as it matters.

    Attributes:
        wrong: changes that make what was read of a table wrong, or may: it must be read again.
        moved: whether partitions were attached or detached, or a table was emptied.
        emptied: tables that lost rows, for example with a partition: what was read of them may be wrong.
    """

    wrong: tuple[CatalogDifference, ...] = ()
    moved: bool = False
    emptied: frozenset[TableName] = frozenset()


def compare_fingerprints(session: ReadSession, before: Fingerprint, now: Fingerprint) -> SchemaDrift:
    """Compare two fingerprints of the catalog, and ask the server about tables that are in doubt.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    difference = compare(before, now)
    attached = [
        CatalogDifference(
            arrival.table,
            f"the partition {arrival.part.name} was attached to {arrival.table} with rows in it",
        )
        for arrival in difference.arrivals
        if arrival.part.persistence == "p"
        and came_with_rows(session, arrival.table, arrival.part.name, arrival.oid)
    ]
    # True: the table may have been unlogged meanwhile. None: it was emptied.
    rewritten = {rewrite: may_have_been_unlogged(session, rewrite) for rewrite in difference.rewrites}
    doubtful = [
        CatalogDifference(
            rewrite.table, f"{rewrite.part.name} was rewritten, and may have been unlogged meanwhile"
        )
        for rewrite, doubt in rewritten.items()
        if doubt
    ]
    emptied = [rewrite.table for rewrite, doubt in rewritten.items() if doubt is None]
    return SchemaDrift(
        (*difference.plain, *attached, *doubtful),
        bool(difference.arrivals or difference.departures or emptied),
        frozenset((*(departure.table for departure in difference.departures), *emptied)),
    )
