"""Say what became of tables between two fingerprints: harmless, like a truncate, or to be read again.

Documents, sources and mirrors differ only in what they compare: see `unlogged` and `headrace.mirror.drift`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.catalog.differences import (
    CatalogChange,
    Differences,
    Effect,
    came_with_rows,
    compare,
    may_have_been_unlogged,
)
from headrace.catalog.fingerprint import Fingerprint
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession


@dataclass(frozen=True, slots=True)
class SchemaDrift:
    """What was altered between two moments, as far as it matters.

    Attributes:
        wrong: changes that make what was read of a table wrong, or may: it must be read again.
        emptied: tables that lost rows, for example with a partition: what was read of them may be wrong.
    """

    wrong: tuple[CatalogChange, ...] = ()
    emptied: frozenset[TableName] = frozenset()


def compare_fingerprints(session: ReadSession, before: Fingerprint, now: Fingerprint) -> SchemaDrift:
    """Compare two fingerprints of the catalog, and ask the server about tables that are in doubt.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    changes = tuple(judge_differences(session, compare(before, now)))
    return SchemaDrift(
        tuple(change for change in changes if change.effect is Effect.READ_AGAIN),
        frozenset(change.table for change in changes if change.effect in {Effect.EMPTIED, Effect.DEPARTED}),
    )


def judge_differences(session: ReadSession, found: Differences) -> Iterator[CatalogChange]:
    """Say of each difference what it means for rows that were read; asks the server where rows must tell.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    yield from found.plain
    for arrival in found.arrivals:
        # A foreign table or an unlogged one is a plain difference already.
        has_rows = arrival.part.persistence == "p" and came_with_rows(session, arrival)
        what = f"the partition {arrival.part.name} was attached to {arrival.table} with rows in it"
        effect = Effect.READ_AGAIN if has_rows else Effect.HARMLESS
        yield CatalogChange(arrival.table, what, effect, part=arrival.oid)
    for departure in found.departures:
        table, name = departure.table, departure.part.name
        what = f"the partition {name} of {table} was detached or dropped with its rows"
        yield CatalogChange(table, what, Effect.DEPARTED, part=departure.oid)
    for rewrite in found.rewrites:
        doubt = may_have_been_unlogged(session, rewrite)
        if doubt:
            what = f"{rewrite.part.name} was rewritten, and may have been unlogged meanwhile"
            yield CatalogChange(rewrite.table, what)
        elif doubt is None:
            what = f"{rewrite.part.name} was emptied"
            yield CatalogChange(rewrite.table, what, Effect.EMPTIED, part=rewrite.oid)
