"""Which alterations between two looks at the catalog are known well enough not to read a table anew?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.catalog.fingerprint import ColumnPrint, Fingerprint, PartPrint, TablePrint
from headrace.mirror.drift import may_have_drifted
from headrace.model.names import TableName

T = TableName("public", "t")
INT, TEXT, VARCHAR, MOMENT, DOMAIN = 23, 25, 1043, 1184, 99999
ID = ColumnPrint(1, INT, -1, "integer", "", 700)
A = ColumnPrint(2, VARCHAR, 14, "varchar(10)", "", 700)
B = ColumnPrint(3, MOMENT, -1, "timestamptz", "", 700)
PART = PartPrint(T, "d", frozenset({"id"}), 50, "p", toast=60, listings=frozenset({9}))
TABLE = TablePrint(50, {"id": ID, "a": A, "b": B}, {50: PART}, highest=3)
X = replace(A, number=4, touched=710)
PACKED = {50: replace(PART, file=51)}
REWRITTEN = {50: replace(PART, file=51, toast=61)}


def altered(
    highest: int = 3, parts: dict[int, PartPrint] | None = None, **columns: ColumnPrint
) -> TablePrint:
    return replace(TABLE, columns=columns, parts=parts or TABLE.parts, highest=highest)


def retyped(column: ColumnPrint, type_oid: int, modifier: int) -> ColumnPrint:
    return replace(column, type_oid=type_oid, modifier=modifier, type="other", touched=710)


@pytest.mark.parametrize(
    "now",
    [
        altered(id=ID, a=A, b=B),
        altered(4, id=ID, a=A, b=B, x=X),
        altered(5, id=ID, a=A, b=B, x=X, y=replace(X, number=5)),
        altered(id=ID, c=replace(A, touched=710), b=B),
        altered(id=ID, b=B),
        altered(id=ID, a=retyped(A, VARCHAR, 24), b=B),
        altered(id=ID, a=retyped(A, TEXT, -1), b=B),
        altered(parts=PACKED, id=ID, a=A, b=B),
    ],
)
def test_what_is_known_well_enough(now: TablePrint) -> None:
    assert not may_have_drifted(Fingerprint({T: TABLE}), Fingerprint({T: now}), now.columns)


@pytest.mark.parametrize(
    "now",
    [
        altered(4, id=ID, a=A, b=B),  # a column came and went
        altered(5, id=ID, a=A, b=B, x=replace(X, number=5)),
        altered(4, id=ID, a=X, b=B),  # dropped and added again
        altered(id=ID, a=B, b=A),  # swapped
        altered(4, id=ID, a=replace(A, number=4), c=replace(A, touched=710), b=B),
        altered(4, id=ID, b=B, x=X),  # dropped and added
        altered(id=ID, c=replace(B, touched=710)),  # dropped and renamed
        altered(4, PACKED, id=ID, a=A, b=B, x=X),  # the default is in the rows
        altered(parts=REWRITTEN, id=ID, a=retyped(A, VARCHAR, 7), b=B),
        altered(parts=REWRITTEN, id=ID, a=A, b=retyped(B, MOMENT, 0)),
        altered(id=ID, a=A, b=retyped(B, DOMAIN, -1)),
        replace(altered(5, id=ID, a=A, b=B, x=X, y=replace(X, number=5)), in_order=False),
    ],
)
def test_what_costs_a_load(now: TablePrint) -> None:
    assert may_have_drifted(Fingerprint({T: TABLE}), Fingerprint({T: now}), now.columns)


def test_what_the_lake_does_not_have_may_be_written_anew_and_be_of_another_type() -> None:
    now = Fingerprint({T: altered(parts=REWRITTEN, id=ID, a=A, b=retyped(B, DOMAIN, -1))})
    assert not may_have_drifted(Fingerprint({T: TABLE}), now, ("id", "a"))


def test_a_lake_of_before_numbers_were_noted_is_not_read_anew() -> None:
    before = Fingerprint({T: replace(TABLE, highest=0)})
    assert not may_have_drifted(before, Fingerprint({T: replace(TABLE, highest=9)}), ("id", "a", "b"))
