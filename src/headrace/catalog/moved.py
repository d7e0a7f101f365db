"""Compare the catalog of a server with the same catalog after pg_upgrade has moved it (decision 0194). Pure.

pg_upgrade writes every row of the catalog again, so the transactions that wrote them tell nothing. It keeps
the oids of tables and types, and the numbers of columns; a dump that is restored elsewhere does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.catalog.fingerprint import Fingerprint, TablePrint
from headrace.catalog.usage import Usage


def usage_of(found: Fingerprint) -> Usage:
    """Return the tables and columns that a fingerprint has."""
    return {name: frozenset(table.columns) for name, table in found.tables.items()}


def find_differences(before: Fingerprint, now: Fingerprint) -> Iterator[str]:
    """Yield what pg_upgrade does not do: a sentence for each difference, without a full stop."""
    if _publication(before) != _publication(now):
        yield "the publication is another one"
    for name, table in before.tables.items():
        found = now.tables.get(name)
        if found is None:
            yield f"the table {name} is not there"
        # pg_upgrade keeps the oids of tables; a dump that is restored gives new ones.
        elif found.oid != table.oid:
            yield f"the table {name} has another oid: it was made anew, as by a dump that is restored"
        elif _moved(found) != _moved(table):
            yield f"the table {name} has another definition"


def _publication(found: Fingerprint) -> tuple[bool, str, bool] | None:
    if found.publication is None:
        return None
    _, all_tables, operations, via_root, _ = found.publication
    return all_tables, operations, via_root


def _moved(table: TablePrint) -> TablePrint:
    """Return the table without what pg_upgrade makes anew: transactions, files, and oids of memberships."""
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
