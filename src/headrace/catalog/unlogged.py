"""Find what changed the rows of a followed table, or their meaning, without a change in the log.

Whoever copies a table from its changes keeps rows that are wrong then: a partition came or went with rows,
values were computed again, a table or a column was replaced by another one of its name. What the log tells,
or what changes no value, is not reported: columns that come, go or are renamed, types that are widened in
place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headrace.catalog.differences import (
    CatalogChange,
    Effect,
    PartChange,
    compare,
    has_kept_rows,
    is_rewritten,
)
from headrace.catalog.drift import judge_differences
from headrace.catalog.fingerprint import ColumnPrint, Fingerprint, PartPrint, TablePrint, without_collation
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession

_NAMED = ""
"""The persistence of a partition of which nothing but its name in the log is known."""


def find_unlogged(session: ReadSession, before: Fingerprint, now: Fingerprint) -> list[CatalogChange]:
    """Return what changed rows between two fingerprints, of tables and columns that both have.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    old, new = _comparable(session, before, now)
    # A table that was emptied is none of them: the log has the TRUNCATE.
    found = [
        change
        for change in judge_differences(session, compare(old, new))
        if change.effect in {Effect.READ_AGAIN, Effect.DEPARTED}
    ]
    reused = (
        CatalogChange(table, what)
        for table in old.tables
        for what in _reused_names(table, before.tables[table], now.tables[table])
    )
    return [*found, *reused]


def following(now: Fingerprint, before: Fingerprint) -> Fingerprint:
    """Return `now` with the tables and columns of `before` that are gone: their names may come again."""
    same = {
        name: table
        for name, table in before.tables.items()
        if name not in now.tables or now.tables[name].oid == table.oid
    }
    return replace(now.with_former(replace(before, tables=same)), ended=now.ended)


def with_named(
    before: Fingerprint,
    columns: Mapping[TableName, Mapping[str, int]],
    leaves: Mapping[TableName, Mapping[int, TableName]],
    usage: Mapping[TableName, frozenset[str]],
) -> Fingerprint:
    """Return a fingerprint that also has what the log named: columns by their numbers, and partitions.

    A name of `usage` that comes again for another number is found then, and a partition that is gone.
    """
    tables = dict(before.tables)
    for name in columns.keys() & tables.keys():
        table, numbers = tables[name], columns[name]
        new = {
            column: ColumnPrint(number, 0, 0, "", "", 0)
            for column, number in numbers.items()
            if column not in table.columns and column in usage.get(name, numbers)
        }
        parts = {
            oid: PartPrint(leaf, "", None, 0, _NAMED)
            for oid, leaf in leaves.get(name, {}).items()
            if oid not in table.parts
        }
        if new or parts:
            tables[name] = replace(table, columns={**table.columns, **new}, parts={**table.parts, **parts})
    return before if tables == before.tables else replace(before, tables=tables)


def _comparable(
    session: ReadSession, before: Fingerprint, now: Fingerprint
) -> tuple[Fingerprint, Fingerprint]:
    """Return both with what both have, without differences that change no row."""
    pairs = {
        name: _pair(old, now.tables[name], _find_rewritten(session, name, before, now))
        for name, old in before.tables.items()
        if name in now.tables
    }
    return (
        Fingerprint({name: old for name, (old, _) in pairs.items()}, ended=before.ended),
        Fingerprint({name: new for name, (_, new) in pairs.items()}, ended=now.ended),
    )


def _find_rewritten(
    session: ReadSession, table: TableName, before: Fingerprint, now: Fingerprint
) -> frozenset[int]:
    """Return the oids of the relations whose rows were rewritten by more than VACUUM FULL and the like."""
    old, new = before.tables[table], now.tables[table]
    return frozenset(
        oid
        for oid, part in old.parts.items()
        if oid in new.parts
        and part.persistence != _NAMED
        and is_rewritten(part, new.parts[oid])
        and (
            new.parts[oid].toast
            or not has_kept_rows(session, PartChange(table, oid, new.parts[oid], before.ended))
        )
    )


def _pair(old: TablePrint, new: TablePrint, rewritten: frozenset[int]) -> tuple[TablePrint, TablePrint]:
    names = old.columns.keys() & new.columns.keys()
    columns = {name: _same_values(old.columns[name], new.columns[name], bool(rewritten)) for name in names}
    # Where a column was altered, a rewrite is the alteration's, and not that of SET UNLOGGED.
    is_altered = new.highest > old.highest or any(columns[name] != new.columns[name] for name in names)
    # One that the log has named and that is still there was not looked at yet: it has come now.
    former = {
        oid: part for oid, part in old.parts.items() if part.persistence != _NAMED or oid not in new.parts
    }
    parts = {
        oid: replace(part, file=former[oid].file) if oid in former and oid not in rewritten else part
        for oid, part in new.parts.items()
    }
    # Rows of a table that was renamed and renamed back are reported under its name; the publication and
    # children by INHERITS are looked at elsewhere.
    elsewhere: dict[str, Any] = {"named": old.named, "members": frozenset(), "inherited": False}
    present = {name: replace(new.columns[name], inside=_of_values(new.columns[name])) for name in names}
    return (
        replace(old, columns=columns, parts=_without_doubt(former) if is_altered else former, **elsewhere),
        replace(new, columns=present, parts=_without_doubt(parts) if is_altered else parts, **elsewhere),
    )


def _same_values(old: ColumnPrint, new: ColumnPrint, is_rewritten_: bool) -> ColumnPrint:
    """Return the former column; with the present type where that changed in place, so that no value did.

    Of a column that only the log has named, nothing but the number is known.
    """
    is_noted = not old.type_oid
    is_retyped = (old.type_oid, old.modifier) != (new.type_oid, new.modifier)
    is_same = old.number == new.number and (is_noted or (is_retyped and not is_rewritten_))
    found = new if is_same else old
    return replace(found, inside=_of_values(found))


def _of_values(column: ColumnPrint) -> str:
    """Return what the values are made of; a collation changes their order alone."""
    return without_collation(column.inside)


def _without_doubt(parts: Mapping[int, PartPrint]) -> dict[int, PartPrint]:
    """Return relations that were rewritten for their columns: none is taken for one that was unlogged."""
    # 0, on both sides, stands for an entry in a publication: with one no table can have been unlogged.
    return {oid: replace(part, listings=part.listings | {0}) for oid, part in parts.items()}


def _reused_names(table: TableName, old: TablePrint, new: TablePrint) -> Iterator[str]:
    """Say which new columns may have the name of one that was added before, and dropped since."""
    if old.oid != new.oid or not old.highest:
        return
    added = [
        name
        for name, column in new.columns.items()
        if name not in old.columns and column.number > old.highest
    ]
    # Numbers are never given out again: one that no column has was added and dropped.
    gone = [number for number in range(old.highest + 1, new.highest + 1) if number not in new.names]
    if added and gone:
        yield (
            f"a column was added to the table {table} and dropped, and {', '.join(sorted(added))} added: "
            "values that came under this name may be of the dropped one"
        )
