"""Find what happened to a table between two looks at the catalog that the log does not tell.

A table is read again unless what happened is proved to leave the lake's rows, and the log's next ones, known
(decisions 0126 and 0133). Whether the publication has sent the table, is left to the stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from headrace.catalog.differences import Differences, Effect, any_rewritten, compare
from headrace.catalog.drift import judge_differences
from headrace.catalog.fingerprint import ColumnPrint, Fingerprint, TablePrint
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession

_TEXTS = frozenset({25, 1043})
"""The oids of `text` and `varchar`, whose values are the same."""


def may_have_drifted(before: Fingerprint, now: Fingerprint, mirrored: Collection[str]) -> bool:
    """Tell, without asking the server, whether a table must be read again."""
    is_changed = compare(*_comparable(before, now, mirrored)) != Differences()
    return is_changed or _first_doubt(before, now, mirrored) is not None


@dataclass(frozen=True, slots=True)
class TableDrift:
    """What was done to a table's rows beside the log.

    Attributes:
        why: what it was.
        parts: the oids of the partitions whose rows alone are concerned; None: all rows are.
    """

    why: str
    parts: frozenset[int] | None = None


def find_drift(
    session: ReadSession, before: Fingerprint, now: Fingerprint, mirrored: Collection[str]
) -> TableDrift | None:
    """Return why a table must be read again, or parts of it; None: it need not.

    Args:
        session: reads what the fingerprints do not tell.
        before: the catalog at the last look, with all columns of the table.
        now: the catalog at this look.
        mirrored: the names of the mirrored columns, now.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    # Doubts about columns come first: where the whole table is read, its partitions need no look.
    found = compare(*_comparable(before, now, mirrored))
    doubt = found.plain[0].what if found.plain else _first_doubt(before, now, mirrored)
    if doubt is not None:
        return TableDrift(doubt)
    changes = [change for change in judge_differences(session, found) if change.effect is not Effect.HARMLESS]
    whole = next((change for change in changes if change.part is None), None)
    if whole is not None:
        return TableDrift(whole.what)
    parts = frozenset(change.part for change in changes if change.part is not None)
    return TableDrift(changes[0].what, parts) if changes else None


def column_numbers(table: TablePrint) -> dict[str, int]:
    """Return the number of each column."""
    return {name: column.number for name, column in table.columns.items()}


def altered_columns(before: TablePrint, now: TablePrint) -> frozenset[int]:
    """Return the numbers of the columns that were altered: they may have had other names in between."""
    old = {column.number: column.touched for column in before.columns.values()}
    return frozenset(
        column.number
        for column in now.columns.values()
        if old.get(column.number, column.touched) != column.touched
    )


def _first_doubt(before: Fingerprint, now: Fingerprint, mirrored: Collection[str]) -> str | None:
    names = sorted(before.tables.keys() & now.tables.keys())
    doubts = (_doubts(name, before.tables[name], now.tables[name], frozenset(mirrored)) for name in names)
    return next(chain.from_iterable(doubts), None)


def _doubts(table: TableName, before: TablePrint, now: TablePrint, mirrored: frozenset[str]) -> Iterator[str]:
    """Yield why the names of columns in the log may be those of others than the catalog has now.

    The log names columns as they were called when a row was written. No number is used twice; so where no
    column went, a row's columns are known by how many they are, and where columns only went, by their names.
    """
    old, new = _names(before), _names(now)
    added, dropped = new.keys() - old.keys(), old.keys() - new.keys()
    # The highest number counts every column that ever was, also one that came and went between two looks.
    if now.highest - before.highest != len(added) and before.highest:
        yield f"a column of {table} was added and dropped again"
    holders = column_numbers(before)
    for name, number in column_numbers(now).items():
        if holders.get(name, number) != number:
            yield f"another column of {table} is called {name} now"
    # Rows of the time in between may lack the dropped column, and have another one under its name.
    altered = altered_columns(before, now)
    if dropped and (added or altered):
        yield f"columns of {table} were dropped, and others altered"
    if len(added | altered) > 1 and not now.in_order:
        yield f"more than one column of {table} was altered, whose partitions have them in another order"
    # Rewriting files puts the default of added columns into the rows, and the database forgets it.
    if not mirrored.isdisjoint(map(new.get, added)) and has_new_files(before, now):
        yield f"a column was added to {table}, and its rows were rewritten"


def _names(table: TablePrint) -> dict[int, str]:
    return {number: name for name, number in column_numbers(table).items()}


def has_new_files(before: TablePrint, now: TablePrint) -> bool:
    """Tell whether files were rewritten, by whatever."""
    return any(oid in now.parts and part.file != now.parts[oid].file for oid, part in before.parts.items())


def _comparable(
    before: Fingerprint, now: Fingerprint, mirrored: Collection[str]
) -> tuple[Fingerprint, Fingerprint]:
    """Return both fingerprints with what both have, but for the publication.

    A column that was renamed has its former name in both: it may have been altered otherwise, too.
    """
    names = before.tables.keys() & now.tables.keys()
    pairs = {name: _pair(before.tables[name], now.tables[name], mirrored) for name in names}
    return (
        Fingerprint({name: former for name, (former, _) in pairs.items()}, ended=before.ended),
        Fingerprint({name: present for name, (_, present) in pairs.items()}, ended=now.ended),
    )


def _pair(before: TablePrint, now: TablePrint, mirrored: Collection[str]) -> tuple[TablePrint, TablePrint]:
    present = {column.number: column for name, column in now.columns.items() if name in mirrored}
    is_rewritten = any_rewritten(before, now)
    former: dict[str, ColumnPrint] = {}
    for name, column in before.columns.items():
        after = present.get(column.number)
        if after is not None:
            # A type that shows the same values is no difference, where the rows were not written again.
            is_same = column.type_oid == after.type_oid or {column.type_oid, after.type_oid} <= _TEXTS
            same = replace(column, type_oid=after.type_oid, modifier=after.modifier, type=after.type)
            former[name] = same if is_same and not is_rewritten else column
    columns = {name: present[column.number] for name, column in former.items()}
    return (
        replace(before, columns=former, members=frozenset(), inherited=False),
        replace(now, columns=columns, members=frozenset(), inherited=False),
    )
