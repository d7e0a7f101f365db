"""Are a table's columns found with their types, whatever these are made of and wherever they stand?"""

from __future__ import annotations

from headrace.catalog.types import read_row_types
from headrace.model.names import TableName
from headrace.model.types import ArrowForm
from headrace.postgres.session import ReadSession
from integration.capture.following import Source

SETUP = (
    'CREATE SCHEMA "Odd ""Schema"""',
    'CREATE EXTENSION citext SCHEMA "Odd ""Schema"""',
    'CREATE SCHEMA "public2"',
    "CREATE TYPE hstore AS ENUM ('a')",  # not the extension's
    'CREATE DOMAIN "Price" AS numeric(10,2)',
    'CREATE TYPE public2.line AS (price "Price", prices "Price"[], name "Odd ""Schema""".citext)',
    'CREATE TABLE "Odd ""Schema"""."T" (id bigint, gone int, "Line" public2.line, h hstore, grid int[][])',
    'ALTER TABLE "Odd ""Schema"""."T" DROP COLUMN gone',
    "CREATE TABLE nothing ()",
    "CREATE TABLE parts (id int, at timestamptz) PARTITION BY RANGE (id)",
    "CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (9)",
    "CREATE VIEW seen AS SELECT 1::int2 AS n",
)
T, NOTHING, PARTS, PART, VIEW = (
    TableName('Odd "Schema"', "T"),
    TableName("public", "nothing"),
    TableName("public", "parts"),
    TableName("public", "part_1"),
    TableName("public", "seen"),
)


def test_every_column_is_found_with_what_its_type_is_made_of(database: str) -> None:
    """Types are known by name and extension, not by number; names are taken as they are."""
    Source(database).sql(*SETUP)
    with ReadSession(database) as session:
        found = read_row_types(session, [T, NOTHING, PARTS, PART, VIEW, TableName("public", "absent"), T])
    assert set(found) == {T, NOTHING, PARTS, PART, VIEW}
    assert {name: kind.spark for name, kind in found[T].columns.items()} == {
        "id": "bigint",
        "Line": "struct<`price`:decimal(10,2),`prices`:array<decimal(10,2)>,`name`:string>",
        "h": "string",
        "grid": "array<array<int>>",
    }
    assert found[T].columns["Line"].parts[2].name == "citext"
    assert found[T].columns["h"].form is ArrowForm.TEXT
    assert [one.name for one in found[T].attributes] == ["id", "Line", "h", "grid"]
    assert found[T].attributes[0].type == 20
    assert found[NOTHING].columns == {}
    assert found[PARTS].columns == found[PART].columns
    assert [kind.spark for kind in found[PARTS].columns.values()] == ["int", "timestamp"]
    assert found[VIEW].columns["n"].spark == "smallint"


def test_money_has_the_decimals_that_the_database_prints(database: str) -> None:
    source = Source(database)
    source.sql("CREATE TABLE t (amount money)")
    with ReadSession(database) as session:
        [row_type] = read_row_types(session, [TableName("public", "t")]).values()
    [(printed,)] = source.query("SELECT 1::money::text")
    decimals = len(printed.partition(".")[2])
    assert row_type.columns["amount"].arrow.scale == decimals


def test_no_table_is_no_question(database: str) -> None:
    with ReadSession(database) as session:
        assert read_row_types(session, []) == {}
