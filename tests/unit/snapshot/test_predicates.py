"""Which conditions does the server decide, and how are they written?"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from headrace.catalog.types import RowType
from headrace.model.names import TableName
from headrace.model.value_type import Attribute, DatabaseType, resolve
from headrace.snapshot.predicates import ColumnComparison, PushedCondition, render_condition

_TYPES = {
    "bool": 16,
    "bytea": 17,
    "int8": 20,
    "int4": 23,
    "text": 25,
    "float8": 701,
    "bpchar": 1042,
    "date": 1082,
    "timestamp": 1114,
    "timestamptz": 1184,
    "numeric": 1700,
    "uuid": 2950,
    "citext": 70_000,
}
_DATABASE = {oid: DatabaseType(oid, "pg_catalog", name, "base") for name, oid in _TYPES.items()}
_ATTRIBUTES = (
    *(Attribute(name, oid) for name, oid in _TYPES.items()),
    Attribute("price", _TYPES["numeric"], (10 << 16 | 2) + 4),
    Attribute('a"b', _TYPES["int4"]),
)
_ROW_TYPE = RowType(
    TableName("public", "t"), _ATTRIBUTES, {one.name: resolve(one, _DATABASE) for one in _ATTRIBUTES}
)
_UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
_NOON = dt.datetime.fromisoformat("2024-02-29 12:00:00.5")
EQUAL, LESS, STARTS_WITH = ColumnComparison.EQUAL, ColumnComparison.LESS, ColumnComparison.STARTS_WITH


@pytest.mark.parametrize(
    ("column", "comparison", "values", "sql"),
    [
        ("int4", EQUAL, (7,), "\"int4\" IN ('7')"),
        ('a"b', ColumnComparison.AT_LEAST, (7,), '"a""b" >= \'7\''),
        ("int8", EQUAL, (1, 2), "\"int8\" IN ('1', '2')"),
        ("bool", EQUAL, (True,), "\"bool\" IN ('true')"),
        ("float8", LESS, (float("nan"),), "\"float8\" < 'nan'"),
        ("float8", ColumnComparison.GREATER, (float("-inf"),), "\"float8\" > '-inf'"),
        ("price", ColumnComparison.AT_MOST, (Decimal("1.50"),), "\"price\" <= '1.50'"),
        ("text", EQUAL, ("it's \\",), "\"text\" IN ( E'it''s \\\\')"),
        ("text", STARTS_WITH, ("a%",), 'starts_with("text" COLLATE "C", \'a%\')'),
        ("bytea", EQUAL, (b"\x00\xff",), "\"bytea\" IN ( E'\\\\x00ff')"),
        ("uuid", EQUAL, (_UUID,), f"\"uuid\" IN ('{_UUID}')"),
        ("date", LESS, (dt.date(2024, 2, 29),), "\"date\" < '2024-02-29'"),
        ("timestamp", LESS, (_NOON,), "\"timestamp\" < '2024-02-29 12:00:00.500000'"),
        (
            "timestamptz",
            LESS,
            (_NOON.replace(tzinfo=dt.UTC),),
            "\"timestamptz\" < '2024-02-29 12:00:00.500000+00:00'",
        ),
        ("citext", ColumnComparison.IS_NULL, (), 'num_nulls("citext") = 1'),
        ("numeric", ColumnComparison.IS_NOT_NULL, (), 'num_nulls("numeric") = 0'),
    ],
)
def test_what_means_the_same_on_both_sides_is_rendered(
    column: str, comparison: ColumnComparison, values: tuple[object, ...], sql: str
) -> None:
    assert render_condition(PushedCondition(column, comparison, values), _ROW_TYPE) == sql


@pytest.mark.parametrize(
    ("column", "comparison", "values"),
    [
        ("text", LESS, ("b",)),  # the order of texts is the collation's
        ("text", EQUAL, ("\0",)),  # no text of the server's
        ("text", STARTS_WITH, ("\0",)),
        ("numeric", EQUAL, ("1.5",)),  # text to the reader, where 1.50 is another
        ("numeric", LESS, (Decimal(1),)),
        ("uuid", EQUAL, (_UUID.upper(),)),  # equal to the server only
        ("uuid", EQUAL, ("x",)),  # which the server would refuse
        ("bpchar", EQUAL, ("DE",)),
        ("bpchar", STARTS_WITH, ("DE ",)),
        ("citext", EQUAL, ("Ann",)),
        ("bool", LESS, (True,)),
        ("int4", EQUAL, ()),
        ("int4", EQUAL, (1, None)),
        ("timestamptz", LESS, (_NOON,)),  # without a zone
        ("date", LESS, (_NOON,)),
        ("unknown", ColumnComparison.IS_NULL, ()),
    ],
)
def test_what_the_server_could_see_otherwise_is_left_to_spark(
    column: str, comparison: ColumnComparison, values: tuple[object, ...]
) -> None:
    assert render_condition(PushedCondition(column, comparison, values), _ROW_TYPE) is None
