"""Find what made a table's rows others beside the log: partitions, labels of enums, rewrites.

Columns that were added, dropped, renamed or got another type are left to `alterations.py`; whether the
publication has sent the table, to the stream. Decision 0126.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.catalog.differences import compare
from headrace.catalog.drift import compare_fingerprints
from headrace.catalog.fingerprint import ColumnPrint, Fingerprint, TablePrint
from headrace.postgres.session import ReadSession


def may_have_drifted(before: Fingerprint, now: Fingerprint) -> bool:
    """Tell, without asking the server, whether a table's rows may have become others beside the log."""
    found = compare(*_comparable(before, now))
    return bool(found.plain or found.arrivals or found.departures or found.rewrites)


def find_drift(session: ReadSession, before: Fingerprint, now: Fingerprint) -> str | None:
    """Return what made rows of tables others beside the log since `before`; None: nothing did.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    drift = compare_fingerprints(session, *_comparable(before, now))
    if drift.wrong:
        return drift.wrong[0].what
    return f"rows of {min(drift.emptied)} went with a partition" if drift.emptied else None


def _comparable(before: Fingerprint, now: Fingerprint) -> tuple[Fingerprint, Fingerprint]:
    """Return both fingerprints with what both have, but for the publication and altered columns."""
    return _reduced(before, now), _reduced(now, before)


def _reduced(one: Fingerprint, other: Fingerprint) -> Fingerprint:
    tables = {
        name: _part(table, other.tables[name]) for name, table in one.tables.items() if name in other.tables
    }
    return Fingerprint(tables, ended=one.ended)


def _part(table: TablePrint, other: TablePrint) -> TablePrint:
    columns = {
        name: column
        for name, column in table.columns.items()
        if name in other.columns and _identity(other.columns[name]) == _identity(column)
    }
    return replace(table, columns=columns, members=frozenset(), inherited=False)


def _identity(column: ColumnPrint) -> tuple[int, int, int]:
    return column.number, column.type_oid, column.modifier
