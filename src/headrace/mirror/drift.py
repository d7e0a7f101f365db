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
    """Return both fingerprints with what both have, but for the publication and columns of another type.

    A column that was renamed has its former name in both: it may have been altered otherwise, too.
    """
    names = before.tables.keys() & now.tables.keys()
    pairs = {name: _pair(before.tables[name], now.tables[name]) for name in names}
    return (
        Fingerprint({name: former for name, (former, _) in pairs.items()}, ended=before.ended),
        Fingerprint({name: present for name, (_, present) in pairs.items()}, ended=now.ended),
    )


def _pair(before: TablePrint, now: TablePrint) -> tuple[TablePrint, TablePrint]:
    present = {_identity(column): column for column in now.columns.values()}
    names = [name for name, column in before.columns.items() if _identity(column) in present]
    former = {name: before.columns[name] for name in names}
    return (
        replace(before, columns=former, members=frozenset(), inherited=False),
        replace(
            now,
            columns={name: present[_identity(column)] for name, column in former.items()},
            members=frozenset(),
            inherited=False,
        ),
    )


def _identity(column: ColumnPrint) -> tuple[int, int, int]:
    return column.number, column.type_oid, column.modifier
