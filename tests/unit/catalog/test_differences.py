"""What counts as a difference between two fingerprints, and what does the log have to hold?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.catalog.differences import compare
from headrace.catalog.fingerprint import ColumnPrint, Fingerprint, PartPrint, TablePrint
from headrace.catalog.needs import ColumnNeed, IndexNeeds, TableNeeds, stream_needs
from headrace.catalog.table import Catalog
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from unit.assembly import shop

T = TableName("public", "t")
COLUMNS = {"id": ColumnPrint(1, 23, -1, "integer", "", 700), "note": ColumnPrint(2, 25, -1, "text", "", 700)}
PART = PartPrint(T, "d", frozenset({"id"}), 50, "p")
TABLE = TablePrint(50, COLUMNS, {50: PART}, frozenset({(9, None, False)}), {1: "id", 2: "note", 3: "unread"})
FOUND = Fingerprint({T: TABLE}, (5, False, "insert, update, delete, truncate", False, 700), 100)
LEAF = replace(PART, name=TableName("public", "leaf"))
PARTED = replace(TABLE, parts={60: LEAF})


def with_table(table: TablePrint) -> Fingerprint:
    return replace(FOUND, tables={T: table})


def test_what_is_the_same_is_no_difference() -> None:
    assert compare(FOUND, FOUND) == compare(FOUND, replace(FOUND, as_of=200)) == compare(Fingerprint(), FOUND)
    assert not compare(FOUND, FOUND).plain


def test_a_column_that_is_not_looked_at_any_more_is_none() -> None:
    fewer = replace(TABLE, columns={"id": COLUMNS["id"]})
    assert not compare(FOUND, with_table(fewer)).plain
    renamed = replace(fewer, names={1: "id", 2: "remark"})
    [found] = compare(FOUND, with_table(renamed)).plain
    assert found.what == "the column note of the table t is called remark now"
    assert found.concerns({T: frozenset({"note"})})
    assert not found.concerns({T: frozenset({"id"})})
    assert not found.concerns({})


def test_what_only_former_files_need_is_still_compared() -> None:
    """Until their generations have left the state; nothing of it concerns those of the new files."""
    other = TableName("public", "other")
    fewer = Fingerprint({other: TABLE}, FOUND.publication, 200, ended=80)
    kept = fewer.with_former(replace(FOUND, ended=70))
    assert (set(kept.tables), kept.as_of, kept.ended) == ({T, other}, 200, 70)
    both = with_table(replace(TABLE, columns={"id": replace(COLUMNS["id"], touched=701)})).with_former(FOUND)
    assert both.tables[T].columns == {"id": replace(COLUMNS["id"], touched=701), "note": COLUMNS["note"]}
    usage = {other: frozenset({"id", "note"})}
    assert not any(difference.concerns(usage) for difference in compare(kept, fewer).plain)


def test_a_table_in_another_file_has_other_values_only_where_a_column_was_touched() -> None:
    rewritten = replace(TABLE, parts={50: replace(PART, file=51)})
    assert not compare(FOUND, with_table(rewritten)).plain
    touched = {**COLUMNS, "note": replace(COLUMNS["note"], touched=701)}
    assert not compare(FOUND, with_table(replace(TABLE, columns=touched))).plain
    [found] = compare(FOUND, with_table(replace(rewritten, columns=touched))).plain
    assert found.column == "note"


def test_leaves_come_and_go() -> None:
    before = with_table(PARTED)
    after = with_table(replace(PARTED, parts={61: LEAF}))
    found = compare(before, after)
    assert ([one.oid for one in found.arrivals], [one.oid for one in found.departures]) == ([61], [60])
    assert not found.plain


def test_the_text_of_a_fingerprint_is_the_fingerprint() -> None:
    kept = Fingerprint.from_text(FOUND.to_text())
    assert (kept.tables, kept.publication, kept.as_of) == (FOUND.tables, FOUND.publication, 0)
    assert Fingerprint.from_text("") == Fingerprint()
    with pytest.raises(HeadraceError) as caught:
        Fingerprint.from_text("bm90aGluZw==")
    assert caught.value.kind is Kind.CONTINUITY


def test_the_oldest_reader_of_a_column_says_since_when_it_is_needed() -> None:
    catalog = Catalog({T: shop.table("t", "id:int4 note:text other:text", "id")})
    readers = [
        IndexNeeds({T: frozenset({"id", "note"})}, 300),
        IndexNeeds({T: frozenset({"id"})}, 200),
        IndexNeeds({}, 100),
    ]
    needs = stream_needs(readers, {T: frozenset({"id", "other"})}, FOUND, catalog)
    assert needs == {
        T: TableNeeds(
            50,
            {
                "id": ColumnNeed(23, -1, "integer", 200, carried=True),
                "note": ColumnNeed(25, -1, "text", 300),
                "other": ColumnNeed(None, -1, "text", 200, carried=True),
            },
        )
    }
    listed = with_table(replace(TABLE, members=frozenset({(9, ("id",), False)})))
    assert stream_needs(readers, {}, listed, catalog)[T].columns["note"].type_oid is None
