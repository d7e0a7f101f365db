"""Where in the table of types does a declared type belong?"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from headrace.model.types import TYPES, ArrowForm, Json, spark_type
from headrace.model.value_type import Attribute, DatabaseType, resolve

INT4, NUMERIC, TEXT, MONEY, LIST, PRICE, PRICES, DEAR, HSTORE, EMPTY = range(1, 11)
KNOWN = {
    one.oid: one
    for one in (
        DatabaseType(INT4, "pg_catalog", "int4", "base"),
        DatabaseType(NUMERIC, "pg_catalog", "numeric", "base"),
        DatabaseType(TEXT, "pg_catalog", "text", "base"),
        DatabaseType(MONEY, "pg_catalog", "money", "base"),
        DatabaseType(LIST, "pg_catalog", "_numeric", "array", NUMERIC),
        DatabaseType(PRICE, "public", "price", "domain", NUMERIC, (10 << 16) + 2 + 4),
        DatabaseType(PRICES, "public", "prices", "domain", LIST, (10 << 16) + 2 + 4, 2),
        DatabaseType(DEAR, "public", "dear", "domain", PRICE),
        DatabaseType(HSTORE, "public", "hstore", "base"),
        DatabaseType(EMPTY, "public", "empty", "composite"),
    )
}


def modifier(precision: int, scale: int) -> int:
    """As PostgreSQL packs it."""
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("precision", "scale", "arrow"),
    [
        (10, 2, pa.decimal128(10, 2)),
        (38, 0, pa.decimal128(38, 0)),
        (38, 38, pa.decimal128(38, 38)),
        (39, 2, pa.string()),
        (1000, 0, pa.string()),
        (3, -2, pa.decimal128(5, 0)),
        (38, -1, pa.string()),
        (2, 5, pa.decimal128(5, 5)),
        (2, 39, pa.string()),
    ],
)
def test_a_numeric_is_a_decimal_where_38_digits_hold_every_value(
    precision: int, scale: int, arrow: pa.DataType
) -> None:
    """Hole 5 of drasi and 14 of flusso: a numeric is never a float."""
    found = resolve(Attribute("n", NUMERIC, modifier(precision, scale)), KNOWN)
    assert found.arrow == arrow
    assert found.name == f"numeric({precision},{scale})"


def test_a_domain_is_its_base_with_the_modifier_that_the_domain_declares() -> None:
    """Hole 5 of drasi: domains."""
    assert resolve(Attribute("n", PRICE), KNOWN).arrow == pa.decimal128(10, 2)
    assert resolve(Attribute("n", DEAR), KNOWN).arrow == pa.decimal128(10, 2)
    found = resolve(Attribute("n", PRICES), KNOWN)
    assert (found.name, found.spark) == ("numeric(10,2)[][]", "array<array<decimal(10,2)>>")


def test_a_type_that_only_has_the_name_of_an_extensions_type_is_text() -> None:
    assert resolve(Attribute("h", HSTORE), KNOWN).form is ArrowForm.TEXT


def test_a_composite_type_without_fields_is_text() -> None:
    assert resolve(Attribute("e", EMPTY), KNOWN).arrow == pa.string()


def test_a_composite_type_that_is_called_oid_is_an_object_also_inside_another() -> None:
    types = {**KNOWN, 11: DatabaseType(11, "public", "oid", "composite", fields=(Attribute("a", INT4),))}
    assert resolve(Attribute("o", 11), types).json_in_composite is Json.OBJECT


def test_money_has_the_decimals_of_the_database() -> None:
    assert resolve(Attribute("m", MONEY), KNOWN, money_scale=0).spark == "decimal(19,0)"


def test_every_name_stands_once_in_the_table() -> None:
    names = [name for row in TYPES for name in row.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "arrow",
    [
        *dict.fromkeys(row.arrow for row in TYPES if row.arrow is not None),
        pa.decimal128(10, 2),
        pa.list_(pa.field("element", pa.list_(pa.field("element", pa.timestamp("us"))))),
        pa.struct([("a", pa.int32()), ("b", pa.date32())]),
    ],
    ids=str,
)
def test_spark_reads_the_arrow_type_as_the_type_that_is_named(arrow: pa.DataType) -> None:
    """Spark's own reading of Arrow types is the judge."""
    judged = from_arrow_type(arrow, prefer_timestamp_ntz=True).simpleString()
    assert spark_type(arrow).replace("`", "") == judged


def test_a_fields_name_is_quoted_in_sparks_ddl() -> None:
    assert spark_type(pa.struct([("a`b c", pa.int32())])) == "struct<`a``b c`:int>"
