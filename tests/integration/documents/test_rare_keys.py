"""Keys of types and collations that few use: every form of assembly finds the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.assembly.assembler import Assembler
from headrace.assembly.lowering import plan_document
from headrace.assembly.read_strategies import ReadStrategy
from headrace.assembly.statement import keys_statement, range_parameters, range_statement
from headrace.catalog import read_catalog
from headrace.model.names import CtidRange
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.resolution import plan_resolution
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


@needs(POSTGRES_15)
def test_a_collation_that_knows_no_case_hides_no_id_that_is_to_go(tmp_path: Path) -> None:
    """The index holds the document under an id of other letters, which nothing else takes away."""
    (tmp_path / "shops.yml").write_text(SHOPS)
    spec = load_schema(tmp_path / "shops.yml", "shops")
    with short_lived_server(binaries=DEBIAN_POSTGRES) as server:
        with connect(server.url) as connection:
            for statement in WITHOUT_CASE:
                execute(connection, statement)
        with ReadSession(server.url) as session:
            assembler = Assembler(session, spec, read_catalog(session, spec.tables()))
            for repeated in (1, 2):  # by lookups, and as sets
                keys = [("ann", "x:y"), ("Ann", "X:y"), ("ANN", "x:y")] * repeated
                made = {one.id: one.body for one in assembler.assemble(keys, 1)}
                document = b'{"items":[1,2,3],"note":"A"}'
                assert made == {"Ann:X%3Ay": document, "ann:x%3Ay": None, "ANN:x%3Ay": None}
