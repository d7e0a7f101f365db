"""What does a fingerprint know of what the log named, and of what is gone?"""

from __future__ import annotations

from dataclasses import replace

from headrace.catalog.fingerprint import ColumnPrint, Fingerprint, PartPrint, TablePrint
from headrace.catalog.unlogged import following, with_named
from headrace.model.names import TableName

T, LEAF = TableName("public", "t"), TableName("public", "leaf")
ID = ColumnPrint(1, 23, -1, "integer", "", 700)
NOTE = ColumnPrint(2, 25, -1, "text", "", 700)
TABLE = TablePrint(50, {"id": ID}, {50: PartPrint(T, "d", frozenset({"id"}), 50, "p")}, highest=1)
FOUND = Fingerprint({T: TABLE}, ended=90)


def test_a_column_that_is_gone_is_known_until_the_table_is_another_one() -> None:
    """Its name may come again for another column, whose values are not those that were copied."""
    before = Fingerprint({T: replace(TABLE, columns={"id": ID, "note": NOTE})}, ended=80)
    now = following(FOUND, before)
    assert (now.tables[T].columns, now.ended) == ({"id": ID, "note": NOTE}, 90)
    again = Fingerprint({T: replace(TABLE, oid=51)})
    assert following(again, before).tables[T].columns == {"id": ID}


def test_a_table_that_is_gone_is_known_too() -> None:
    assert following(Fingerprint(ended=95), FOUND).tables == FOUND.tables


def test_what_the_log_named_is_known_by_its_number_and_oid() -> None:
    named = with_named(
        FOUND, {T: {"id": 1, "x": 3, "other": 4}}, {T: {50: T, 60: LEAF}}, {T: frozenset({"id", "x"})}
    )
    table = named.tables[T]
    assert {name: column.number for name, column in table.columns.items()} == {"id": 1, "x": 3}
    assert {oid: part.name for oid, part in table.parts.items()} == {50: T, 60: LEAF}
    assert Fingerprint.from_text(named.to_text()).tables == named.tables


def test_nothing_new_leaves_the_fingerprint_as_it_is() -> None:
    assert with_named(FOUND, {T: {"id": 1}, LEAF: {"x": 1}}, {T: {50: T}}, {}) is FOUND
