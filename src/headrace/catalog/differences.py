"""Compare two fingerprints of the catalog, and decide what the differences mean for documents.

A table's rows can change without a change in the log: by a rewrite, by a partition that is attached or
detached with rows, by a table that is dropped and created again, while a table is not published. Then
documents are rebuilt. They are also rebuilt where something was altered and altered back, because the writes
in between are unknown. Other differences mean only that the plan is outdated, or nothing.

The comparison is pure. Whether a partition or a file came with rows, the age of its rows tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from headrace.catalog.fingerprint import ColumnPrint, Fingerprint, PartPrint, TablePrint, has_only_more_labels
from headrace.catalog.usage import Usage
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession


class Effect(Enum):
    """What a change of the catalog means for the rows of a table that were read."""

    HARMLESS = "harmless"
    EMPTIED = "emptied"
    DEPARTED = "departed"
    READ_AGAIN = "read again"


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """What became of a table.

    Attributes:
        table: the table that is followed.
        what: one sentence for people, without a full stop: what it was, what it is.
        effect: `EMPTIED` and `DEPARTED` are like a TRUNCATE; the log never has the latter.
        column: the only column concerned; None: the table as a whole.
        part: the oid of the only relation concerned; None: all rows are.
    """

    table: TableName
    what: str
    effect: Effect = Effect.READ_AGAIN
    column: str | None = None
    part: int | None = None

    def concerns(self, usage: Usage) -> bool:
        """Return whether documents that read these columns are concerned."""
        return self.table in usage and (self.column is None or self.column in usage[self.table])


@dataclass(frozen=True, slots=True)
class PartChange:
    """A relation with rows of a table that came, went, or has a new file: its rows tell what that means.

    `ended` comes from the fingerprint with the old file.
    """

    table: TableName
    oid: int
    part: PartPrint
    ended: int = 0


@dataclass(frozen=True, slots=True)
class Differences:
    """All differences that matter, by kind.

    Attributes:
        plain: those whose meaning is known.
        arrivals: new leaf partitions. The log carries nothing of the rows that they were attached with.
        departures: leaf partitions that were detached or dropped with their rows.
        rewrites: relations with a new file and no TOAST table, which may have been unlogged meanwhile.
    """

    plain: tuple[CatalogChange, ...] = ()
    arrivals: tuple[PartChange, ...] = ()
    departures: tuple[PartChange, ...] = ()
    rewrites: tuple[PartChange, ...] = ()


def compare(before: Fingerprint, now: Fingerprint) -> Differences:
    """Return what is different in `now`, for all that both fingerprints contain.

    A table or column that only `now` contains is no difference, nor is a column that it does not contain and
    that still exists.
    """
    plain: list[CatalogChange] = []
    arrivals: list[PartChange] = []
    departures: list[PartChange] = []
    rewrites: list[PartChange] = []
    for table, old in before.tables.items():
        plain += _publication(table, before, now)
        new = now.tables.get(table)
        if new is None:
            plain.append(CatalogChange(table, f"the table {table} is gone"))
        elif new.oid != old.oid:
            plain.append(CatalogChange(table, f"the table {table} was dropped and created again"))
        else:
            plain += _table(table, old, new)
            # An ordinary table is its own only part: none can come or go.
            if old.parts.keys() != {old.oid} or new.parts.keys() != {new.oid}:
                came, went = _moved_leaves(old, new)
                arrivals += [PartChange(table, oid, new.parts[oid]) for oid in came]
                departures += [PartChange(table, oid, old.parts[oid]) for oid in went]
            possibly_unlogged = _possibly_unlogged(old, new)
            rewrites += [PartChange(table, oid, part, before.ended) for oid, part in possibly_unlogged]
    return Differences(tuple(plain), tuple(arrivals), tuple(departures), tuple(rewrites))


def _moved_leaves(old: TablePrint, new: TablePrint) -> tuple[set[int], set[int]]:
    """Return the leaves that came and those that went; one that was detached and attached again did both."""
    # Detached and attached meanwhile: rows may have gone and come without the log.
    again = {oid for oid in old.parts.keys() & new.parts if old.parts[oid].edges != new.parts[oid].edges}
    return new.parts.keys() - old.parts | again, old.parts.keys() - new.parts | again


def _possibly_unlogged(old: TablePrint, new: TablePrint) -> Iterator[tuple[int, PartPrint]]:
    for oid, part in old.parts.items():
        now = new.parts.get(oid)
        # With a TOAST table its oid tells, see `is_rewritten`.
        if now is not None and _may_have_been_unlogged(part, now) and not (part.toast or now.toast):
            yield oid, now


def _may_have_been_unlogged(before: PartPrint, now: PartPrint) -> bool:
    """Return whether the relation may have been unlogged.

    SET UNLOGGED and SET LOGGED rewrite a table each; PostgreSQL refuses them while it is published by name.
    """
    # Listed all the time: PostgreSQL has refused SET UNLOGGED.
    return is_rewritten(before, now) and not before.listings & now.listings


def is_rewritten(before: PartPrint, now: PartPrint) -> bool:
    """Return whether the relation was rewritten by more than VACUUM FULL, CLUSTER and TRUNCATE.

    That is known only as far as a TOAST table shows it.
    """
    # VACUUM FULL, CLUSTER and TRUNCATE give the TOAST table a new file, and keep its oid.
    return now.file != before.file and (now.toast != before.toast or not now.toast)


def _table(table: TableName, old: TablePrint, new: TablePrint) -> Iterator[CatalogChange]:
    # The row type is written by a change of owner too, which moves no row.
    if new.named != old.named and new.owner == old.owner:
        yield CatalogChange(
            table, f"the table {table} was called otherwise, or was in another schema, and is back"
        )
    if new.inherited and not old.inherited:
        yield CatalogChange(
            table, f"other tables inherit from {table} now, or did: their changes are not its own"
        )
    # A membership that is new is no loss; one that is gone was a while without changes in the log.
    if not old.members <= new.members:
        yield CatalogChange(table, f"the table {table} has left the publication, or is published in part now")
    for name, column in old.columns.items():
        if new.columns.get(name) != column:
            yield from _column(table, name, column, new, any_rewritten(old, new))
    for oid, part in new.parts.items():
        yield from _part(table, old.parts.get(oid), part)


def _part(table: TableName, old: PartPrint | None, new: PartPrint) -> Iterator[CatalogChange]:
    if new.persistence != "p" and (old is None or old.persistence == "p"):
        what = "a foreign table" if new.persistence == "f" else "unlogged"
        yield CatalogChange(table, f"{new.name} is {what} now: its changes are not in the log")
    elif old is None:
        return
    elif new.toast != old.toast and _may_have_been_unlogged(old, new):
        yield CatalogChange(table, f"{new.name} was rewritten, and may have been unlogged meanwhile")
    elif new.name.schema == old.name.schema and new.moved != old.moved:
        yield CatalogChange(table, f"{new.name} was in another schema, and is back")


def any_rewritten(old: TablePrint, new: TablePrint) -> bool:
    """Return whether the rows were rewritten by more than VACUUM FULL, CLUSTER and TRUNCATE.

    Of a relation without a TOAST table those count, too.
    """
    return any(oid in new.parts and is_rewritten(part, new.parts[oid]) for oid, part in old.parts.items())


def _column(
    table: TableName, name: str, old: ColumnPrint, table_now: TablePrint, rewritten: bool
) -> Iterator[CatalogChange]:
    what = f"the column {name} of the table {table}"
    new, new_name = table_now.columns.get(name), table_now.names.get(old.number)
    # The column exists, and is not among those that this fingerprint was asked for.
    if new is None and new_name == name:
        return
    if new is None:
        sentence = f"{what} is gone" if new_name is None else f"{what} is called {new_name} now"
    elif new.number != old.number:
        sentence = f"{what} was dropped and added again, or another column took its name"
    elif (new.type_oid, new.modifier) != (old.type_oid, old.modifier):
        sentence = f"{what} was {old.type}, and is {new.type} now"
    elif not has_only_more_labels(old.inside, new.inside):
        sentence = f"the values of {what} were made of ({old.inside}), and are of ({new.inside}) now"
    elif rewritten and new.touched != old.touched:
        # ALTER … TYPE … USING may compute other values of the same type.
        sentence = f"{what} was altered and the rows were written again: its values may have changed"
    elif not old.versions <= new.versions:
        # As a label that was renamed, and renamed back: documents in between have the other name.
        sentence = f"what the values of {what} are made of was altered, and altered back"
    else:
        return
    yield CatalogChange(table, sentence, column=name)


def _publication(table: TableName, before: Fingerprint, now: Fingerprint) -> Iterator[CatalogChange]:
    if before.publication is None:
        return
    if now.publication is None:
        yield CatalogChange(table, "the publication is gone")
        return
    oid, every, operations, via_root, version = before.publication
    oid_now, every_now, operations_now, via_root_now, version_now = now.publication
    # Another oid: it was dropped in between, so that nobody knows what it published.
    if oid != oid_now or (every and not every_now):
        yield CatalogChange(table, "the publication was created again or narrowed")
    # More operations than before are no loss.
    elif not set(operations.split(", ")) <= set(operations_now.split(", ")):
        yield CatalogChange(table, f"the publication published {operations}, and {operations_now} now")
    elif via_root_now and not via_root:
        yield CatalogChange(table, "the publication has publish_via_partition_root on now")
    elif version != version_now:
        # The xmin of its row: what it published in between is not known.
        yield CatalogChange(
            table, "the publication was altered: what was written meanwhile may be missing from the log"
        )


# A row is older than a row of the catalog by its transaction, or by its command in the same transaction. The
# raw xmin stays when a row is frozen.
_OLDER = """
SELECT EXISTS (
    SELECT FROM {table} AS r, ({created}) AS created
    WHERE r.tableoid = $1::text::oid
      AND (created.late OR age(r.xmin) > age(created.xmin)
           OR (r.xmin::text = created.xmin::text AND r.cmin::text::bigint < created.command))
)
"""
# The last attachment on the path to the root: attaching a partitioned partition brings its leaves' rows.
# Late: the transaction had written before, so one with a later xid may have written the rows and ended before
# the attachment. Nobody could where the same transaction created the relation, as its system columns tell,
# except for a savepoint of it: its rows have a later xid, as those that are written after the commit.
_ATTACHED = """
SELECT i.xmin, i.cmin::text::bigint AS command, i.cmin::text <> '0' AND c.xmin <> i.xmin AS late
FROM pg_partition_ancestors($1::text::oid) AS a JOIN pg_inherits i ON i.inhrelid = a.relid
     JOIN pg_attribute c ON c.attrelid = $1::text::oid AND c.attnum = -1
ORDER BY age(i.xmin), command DESC LIMIT 1
"""
# An ALTER TABLE rewrites rows in the same command as the new file.
_REWRITTEN = """
SELECT xmin, cmin::text::bigint + 1 AS command, false AS late FROM pg_class WHERE oid = $1::text::oid
"""
_BEFORE = """
SELECT EXISTS (
    SELECT FROM {table} AS r WHERE r.tableoid = $1::text::oid AND age(r.xmin) > age($2::text::xid)
), pg_snapshot_xmin(pg_current_snapshot())::text::bigint - $3::text::bigint
"""
_COMPARABLE = 1 << 31
"""Transactions; 32 bits cannot distinguish more of them."""


def came_with_rows(session: ReadSession, arrival: PartChange) -> bool:
    """Return whether the partition holds a row that is older than its attachment.

    False also where it is no partition any more. A row that an older transaction wrote after the attachment
    counts too, and any row where the attaching transaction had written before: a false alarm is better than a
    missed one. Where there is no such row, this reads the whole
    partition; the whole table where the role may read only that.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    return _has_older(session, arrival, _ATTACHED)


def may_have_been_unlogged(session: ReadSession, rewrite: PartChange) -> bool | None:
    """Return whether rows may have been written while a table with a new file was unlogged.

    SET LOGGED rewrites all rows, each of them older than the catalog's row of the file; VACUUM FULL keeps
    their age. None: there is no row that old. The table was emptied by a TRUNCATE, or while it was unlogged.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    if has_kept_rows(session, rewrite):
        return False
    return _has_older(session, rewrite, _REWRITTEN) or None


def has_kept_rows(session: ReadSession, rewrite: PartChange) -> bool:
    """Return whether a row is older than the fingerprint before: then no ALTER TABLE rewrote the rows.

    VACUUM FULL and CLUSTER keep their age.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    if not rewrite.ended:
        return False
    # xmin has 32 bits; `age` compares them around the present.
    wrapped = str(rewrite.ended % (1 << 32))
    [(has_older, transactions_since)] = _query_either(
        session, rewrite, _BEFORE, (str(rewrite.oid), wrapped, str(rewrite.ended))
    )
    # Beyond 2**31 transactions an old row looks younger than a new one.
    return bool(has_older) and int(transactions_since) < _COMPARABLE


def _has_older(session: ReadSession, change: PartChange, created: str) -> bool:
    [(has_older,)] = _query_either(session, change, _OLDER.replace("{created}", created), (str(change.oid),))
    return bool(has_older)


def _query_either(
    session: ReadSession, change: PartChange, sql: str, parameters: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """Query the relation itself, or its whole table where the role may read only that.

    Raises:
        HeadraceError: CONNECTION also where the relation has another name by now, or is gone; DATABASE.
    """
    try:
        return session.query(sql.format(table=quoted(change.part.name)), parameters)
    except HeadraceError as error:
        if error.sqlstate == "42P01":
            # The name is that of a moment ago. The next look reads the catalog again.
            gone = f"{change.part.name} was renamed or dropped while its rows were looked at"
            raise HeadraceError(Kind.CONNECTION, gone) from error
        if error.kind is not Kind.PRIVILEGE:
            raise
        return session.query(sql.format(table=quoted(change.table)), parameters)
