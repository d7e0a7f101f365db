"""Keys of types and collations that few use: every form of assembly finds the same rows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.assembly.assembler import Assembler
from headrace.assembly.lowering import plan_document
from headrace.assembly.plan import DocumentPlan
from headrace.assembly.read_strategies import ReadStrategy
from headrace.assembly.statement import keys_statement, range_parameters, range_statement
from headrace.catalog import findings, read_catalog
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.model.names import CtidRange, TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.resolution import plan_resolution
from headrace.resolution.plan import Route
from headrace.schema.load import load_schema
from support.means import DEBIAN_POSTGRES, POSTGRES_15, needs
from support.servers import short_lived_server

SCHEMA = """
version: 1
table: shop
primary_key: code
fields:
  - has_many: items
    table: item
    primary_key: id
    foreign_key: code
    fields:
      - integer: id
      - belongs_to: shop
        table: shop
        column: code
        primary_key: code
        fields: [{ custom: code, postgres: [text], opensearch: keyword }]
  - max: note
    table: item
    primary_key: id
    foreign_key: code
    column: note
    value_type: json
"""
ITEMS = """INSERT INTO item SELECT id, code, note::jsonb
           FROM shop, (VALUES (2, '1.0'), (1, '1.00')) AS one (id, note)"""
CASES = {
    "a composite value with a part that is null": (
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE TABLE shop (code pair PRIMARY KEY)",
        "CREATE TABLE item (id int, code pair, note jsonb, PRIMARY KEY (id, code))",
        "INSERT INTO shop VALUES (ROW(1, NULL)), (ROW(1, 'x'))",
    ),
    "texts of two collations": (
        'CREATE TABLE shop (code text COLLATE "C" PRIMARY KEY)',
        """CREATE TABLE item (id int, code text COLLATE "POSIX" REFERENCES shop, note jsonb,
                             PRIMARY KEY (id, code))""",
        "INSERT INTO shop VALUES ('b'), ('a')",
    ),
}
WITHOUT_CASE = (
    "CREATE COLLATION bare (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    "CREATE TABLE shop (code text COLLATE bare, town text COLLATE bare, PRIMARY KEY (code, town))",
    """CREATE TABLE item (id int PRIMARY KEY, code text COLLATE bare, town text COLLATE bare,
                          note text COLLATE bare)""",
    "INSERT INTO shop VALUES ('Ann', 'X:y')",
    "INSERT INTO item VALUES (3, 'ANN', 'x:Y', 'b'), (2, 'ann', 'x:y', 'A'), (1, 'Ann', 'x:y', 'a')",
)
SHOPS = """
version: 1
table: shop
primary_key: [code, town]
fields:
  - ids: items
    table: item
    primary_key: id
    foreign_key: [code, town]
    element_type: integer
  - min: note
    table: item
    primary_key: id
    foreign_key: [code, town]
    column: note
    value_type: keyword
"""


@pytest.mark.parametrize("tables", CASES.values(), ids=CASES.keys())
def test_every_form_finds_the_rows(
    make_database: Callable[..., str], tmp_path: Path, tables: tuple[str, ...]
) -> None:
    """Two equal jsonb values that are written differently: the key decides which one is shown."""
    url = make_database((*tables, ITEMS))
    (tmp_path / "shops.yml").write_text(SCHEMA.replace("primary_key: id", "primary_key: [id, code]"))
    spec = load_schema(tmp_path / "shops.yml", "shops")
    with ReadSession(url) as session:
        catalog = read_catalog(session, spec.tables())
        plan, part = plan_document(spec, catalog), CtidRange(0, None)
        keys = [key for (key,) in session.query("SELECT code::text FROM public.shop ORDER BY code")]
        for form in ReadStrategy:
            found = dict(session.query(range_statement(plan, part, form), range_parameters(part)))
            assert sorted(found) == sorted(keys)
            for key, body in found.items():
                assert body.count('"id":') == 2, form
                assert body.count(f'"code":"{key}"') + body.count('"shop":{"code":{') == 2, form
                assert body.endswith('"note":1.00}'), form
            assert dict(session.query(keys_statement(plan, form), [keys])) == found
        for routes in plan_resolution([spec], catalog).routes.values():
            for statement in filter(None, (route.statement for route in routes)):
                assert {key for (key,) in session.query(statement, [keys])} == set(keys)


@pytest.fixture(scope="module")
def with_icu() -> Iterator[EmbeddedPostgres]:
    with short_lived_server(binaries=DEBIAN_POSTGRES) as server:
        yield server


@needs(POSTGRES_15)
def test_a_collation_that_knows_no_case_hides_no_id_that_is_to_go(
    with_icu: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index holds the document under an id of other letters, which nothing else takes away.

    A transform gets the document once, though two of the keys lead to it.
    """
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unchanging.py").write_text("def documents(batch): return batch")
    (tmp_path / "shops.yml").write_text(SHOPS)
    spec = replace(load_schema(tmp_path / "shops.yml", "shops"), transform="unchanging:documents")
    url = with_icu.create_database("hidden_ids")
    with connect(url) as connection:
        for statement in WITHOUT_CASE:
            execute(connection, statement)
    with ReadSession(url) as session:
        assembler = Assembler(session, spec, read_catalog(session, spec.tables()))
        for repeated in (1, 2):  # by lookups, and as sets
            keys = [("ann", "x:y"), ("Ann", "X:y"), ("ANN", "x:y")] * repeated
            made = {one.id: one.body for one in assembler.assemble(keys, 1)}
            document = b'{"items":[1,2,3],"note":"A"}'
            assert made == {"Ann:X%3Ay": document, "ann:x%3Ay": None, "ANN:x%3Ay": None}


@needs(POSTGRES_15)
def test_columns_of_two_collations_that_know_no_case_are_not_joined(
    with_icu: EmbeddedPostgres, tmp_path: Path
) -> None:
    """Each takes other texts for equal, and PostgreSQL does not choose one of them."""
    (tmp_path / "shops.yml").write_text(SHOPS)
    spec = load_schema(tmp_path / "shops.yml", "shops")
    url = with_icu.create_database("two_collations")
    with connect(url) as connection:
        for statement in WITHOUT_CASE[:-2]:
            execute(connection, statement)
        execute(connection, """ALTER TABLE item ALTER town TYPE text COLLATE "C" """)
    with ReadSession(url) as session:
        told = findings(spec, read_catalog(session, spec.tables()))
    causes = [finding.error.cause for finding in told if finding.level == "error"]
    problem = (
        'item.town (text COLLATE pg_catalog."C") cannot be compared with shop.town (text COLLATE public.bare)'
    )
    assert [problem in cause for cause in causes] == [True, True]


MIXED = """
version: 1
table: shop
primary_key: code
fields:
  - keyword: note
  - count: items_count
    table: item
    foreign_key: code
  - has_many: items
    table: item
    primary_key: id
    foreign_key: code
    fields:
      - keyword: note
      - belongs_to: maker
        table: maker
        column: maker
        primary_key: name
        fields: [{ keyword: note }]
  - many_to_many: tags
    table: tag
    primary_key: name
    through: { table: tagged, left_key: shop, right_key: tag }
    fields:
      - keyword: note
      - has_many: labels
        table: label
        primary_key: id
        foreign_key: tag
        fields: [{ keyword: note }]
"""
TEXTS = {
    "shop": ("code",),
    "maker": ("name",),
    "tag": ("name",),
    "item": ("code", "maker"),
    "tagged": ("shop", "tag"),
    "label": ("tag",),
}
"""The columns that are compared, of each table; those of the first three are keys."""
KEYS = ("shop", "maker", "tag")
SPELLINGS = ("ann", "Ann", "ANN", "bob", "BOB", "eve")
CODE = ("shop", "code")
Column = tuple[str, str]
Rows = dict[str, list[dict[str, Any]]]


@needs(POSTGRES_15)
def test_columns_of_unlike_collations_meet_the_same_rows_wherever_they_are_compared(
    with_icu: EmbeddedPostgres, tmp_path: Path
) -> None:
    """As PostgreSQL compares them: where one of two knows no case, neither does the comparison."""
    (tmp_path / "shops.yml").write_text(MIXED)
    spec = load_schema(tmp_path / "shops.yml", "shops")
    url = with_icu.create_database("unlike_collations")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(WITHOUT_CASE[0].encode())
        for seed in range(25):
            caseless, rows = make_tables(connection, random.Random(seed))
            expected = documents(rows, caseless)
            with ReadSession(url) as session:
                catalog = read_catalog(session, spec.tables())
                for found in read_documents(session, plan_document(spec, catalog), list(expected)):
                    assert found == expected, (seed, caseless)
                routes = plan_resolution([spec], catalog).routes
                for table, row in ((table, row) for table, found in rows.items() for row in found):
                    led = list(led_to(session, routes[TableName("public", table)], row))
                    reached = {
                        key for key in expected if any(meet(key, CODE, end, CODE, caseless) for end in led)
                    }
                    assert depending(rows, caseless, table, row) <= reached, (seed, caseless, table, row)


def depending(rows: Rows, caseless: set[Column], table: str, row: dict[str, Any]) -> set[str]:
    """The documents that would be others without the row."""
    rest = {**rows, table: [other for other in rows[table] if other != row]}
    expected, without = documents(rows, caseless), documents(rest, caseless)
    return {key for key in expected if without.get(key) != expected[key]}


def read_documents(session: ReadSession, plan: DocumentPlan, keys: list[str]) -> Iterator[dict[str, Any]]:
    part = CtidRange(0, None)
    for form in ReadStrategy:
        read = session.query(range_statement(plan, part, form), range_parameters(part))
        for listed in (read, session.query(keys_statement(plan, form), [keys])):
            yield {key: json.loads(body) for key, body in listed}


def led_to(session: ReadSession, routes: Iterable[Route], row: dict[str, Any]) -> Iterator[str]:
    for route in routes:
        values = [[str(row[column])] for column in route.columns]
        yield from values[0] if route.statement is None else sum(session.query(route.statement, values), ())


def make_tables(connection: psycopg.Connection, rng: random.Random) -> tuple[set[Column], Rows]:
    """Tables whose columns know case or not, by chance; the latter, and all rows."""
    caseless = {(table, name) for table, names in TEXTS.items() for name in names if rng.random() < 0.5}
    rows: Rows = {}
    for table, names in TEXTS.items():
        listed = "".join(f", {name} text{' COLLATE bare' * ((table, name) in caseless)}" for name in names)
        connection.execute(f"DROP TABLE IF EXISTS {table}".encode())
        key = names[0] if table in KEYS else "id"
        connection.execute(f"CREATE TABLE {table} (id int, note text{listed}, PRIMARY KEY ({key}))".encode())
        for number in range(6):
            values = [rng.choice(SPELLINGS) for _ in names]
            connection.execute(
                f"INSERT INTO {table} VALUES (%s, %s{', %s' * len(names)}) ON CONFLICT DO NOTHING".encode(),
                [number, f"{table} {number}", *values],
            )
        cursor = connection.cursor(row_factory=psycopg.rows.dict_row)
        rows[table] = cursor.execute(f"SELECT * FROM {table}".encode()).fetchall()
    return caseless, rows


def meet(left: str, of_left: Column, right: str, of_right: Column, caseless: set[Column]) -> bool:
    return left.lower() == right.lower() if {of_left, of_right} & caseless else left == right


def documents(rows: Rows, caseless: set[Column]) -> dict[str, Any]:
    def related(table: str, name: str, row: dict[str, Any], of_row: Column) -> list[dict[str, Any]]:
        column = (table, name)
        met = [other for other in rows[table] if meet(other[name], column, row[of_row[1]], of_row, caseless)]
        return sorted(met, key=lambda row: row["name" if table in KEYS else "id"])

    def item(row: dict[str, Any]) -> dict[str, Any]:
        makers = related("maker", "name", row, ("item", "maker"))
        return {"note": row["note"], "maker": {"note": makers[0]["note"]} if makers else None}

    def tag(row: dict[str, Any]) -> dict[str, Any]:
        labels = related("label", "tag", row, ("tag", "name"))
        return {"note": row["note"], "labels": [{"note": label["note"]} for label in labels]}

    def document(shop: dict[str, Any]) -> dict[str, Any]:
        items = related("item", "code", shop, CODE)
        links = related("tagged", "shop", shop, CODE)
        names = {row["name"] for link in links for row in related("tag", "name", link, ("tagged", "tag"))}
        tags = [row for row in sorted(rows["tag"], key=lambda row: row["name"]) if row["name"] in names]
        return {
            "note": shop["note"],
            "items_count": len(items),
            "items": [item(row) for row in items],
            "tags": [tag(row) for row in tags],
        }

    return {shop["code"]: document(shop) for shop in rows["shop"]}
