"""Keys of types and collations that few use: every form of assembly finds the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.assembly import Form, plan_document
from headrace.assembly.statement import keys_statement, range_parameters, range_statement
from headrace.catalog import read_catalog
from headrace.model import CtidRange
from headrace.postgres.session import ReadSession
from headrace.resolution import plan_resolution
from headrace.spec import load_schema

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
        for form in Form:
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
