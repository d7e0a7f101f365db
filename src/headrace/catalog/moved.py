"""Compare the catalog of a server with the same catalog after pg_upgrade has moved it (decision 0194). Pure.

It keeps the oids of tables and types, the numbers of columns and (since PostgreSQL 15) the tables' files; a
dump that is restored elsewhere does not. It writes every row of the catalog again, so the transactions of
before tell nothing. But it makes the slot after that: what the slot may still decode (its catalog_xmin, while
nobody reads it) came later, and is an alteration of which nobody knows how long it held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.catalog.differences import is_rewritten
from headrace.catalog.fingerprint import Fingerprint, PartPrint, TablePrint
from headrace.catalog.usage import Usage


def usage_of(found: Fingerprint) -> Usage:
    """Return the tables and columns that a fingerprint has."""
    return {name: frozenset(table.columns) for name, table in found.tables.items()}


def is_since(transaction: int, slot_made: int) -> bool:
    """Tell whether a transaction (raw xid) wrote after a slot was made, which keeps 2**31 of them apart."""
    return (transaction - slot_made) % (1 << 32) < 1 << 31


def find_differences(before: Fingerprint, now: Fingerprint, slot_made: int) -> Iterator[str]:
    """Yield what pg_upgrade does not do: a sentence for each difference, without a full stop.

    `slot_made` is the catalog_xmin of the slot that it made.
    """
    if _publication(before) != _publication(now):
        yield "the publication is another one"
    for name, table in before.tables.items():
        found = now.tables.get(name)
        if found is None:
            yield f"the table {name} is not there"
        # pg_upgrade keeps the oids of tables; a dump that is restored gives new ones.
        elif found.oid != table.oid:
            yield (
                f"the table {name} has another oid: it was dropped and created again, as by a dump that is "
                "restored"
            )
        elif _moved(found) != _moved(table):
            yield f"the table {name} has another definition"
        elif any(is_since(transaction, slot_made) for transaction in _transactions(found)):
            yield f"the table {name}, a type of its columns or its publication was altered after the upgrade"
        elif any(_may_have_been_unlogged(table.parts[oid], part) for oid, part in found.parts.items()):
            yield f"the table {name} was rewritten, and may have been unlogged meanwhile"


def _publication(found: Fingerprint) -> tuple[bool, str, bool] | None:
    if found.publication is None:
        return None
    _, all_tables, operations, via_root, _ = found.publication
    return all_tables, operations, via_root


def _may_have_been_unlogged(before: PartPrint, now: PartPrint) -> bool:
    # A publication that lists it, before and now, keeps it from being unlogged.
    return is_rewritten(before, now) and not (before.listings and now.listings)


def _transactions(table: TablePrint) -> Iterator[int]:
    """Yield what wrote the rows of the catalog that define the table and its memberships."""
    yield table.named
    yield from table.joined
    for column in table.columns.values():
        yield column.touched
        yield from (int(version.rpartition(" ")[2]) for version in column.versions)
    for part in table.parts.values():
        yield from (attached for _, attached in part.edges)
        if part.moved:  # 0 stands for none
            yield part.moved


def _moved(table: TablePrint) -> TablePrint:
    """Return the table without what pg_upgrade makes again: transactions, files, and oids of memberships."""
    return replace(
        table,
        columns={
            name: replace(column, touched=0, versions=frozenset()) for name, column in table.columns.items()
        },
        parts={
            oid: replace(
                part,
                file=0,
                listings=frozenset(),
                edges=frozenset((parent, 0) for parent, _ in part.edges),
                moved=0,
            )
            for oid, part in table.parts.items()
        },
        members=frozenset((0, listed, filtered) for _, listed, filtered in table.members),
        named=0,
    )
