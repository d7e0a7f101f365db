"""Keys that are equal in several spellings lead to the same rows in every form, and to each row once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.assembly.lowering import plan_document
from headrace.assembly.read_strategies import ReadStrategy
from headrace.assembly.statement import keys_statement
from headrace.catalog import read_catalog
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema

NEAR = "0.10000000000000000001"
"""Another numeric than 0.1, and the same double."""

_TABLES = (
    "CREATE EXTENSION citext SCHEMA public",
    "CREATE TABLE sizes (size double precision PRIMARY KEY)",
    "CREATE TABLE codes (code numeric PRIMARY KEY)",
    "CREATE TABLE things (id int PRIMARY KEY, code double precision)",
    "CREATE TABLE thing_sizes (id int PRIMARY KEY, thing_id numeric, size numeric)",
    "CREATE TABLE people (name citext PRIMARY KEY)",
    "CREATE TABLE pets (id int PRIMARY KEY, owner citext)",
    "INSERT INTO sizes VALUES (0.1), (7)",
    f"INSERT INTO codes VALUES (0.1), ({NEAR}), (5)",
    "INSERT INTO things VALUES (1, 0.1), (2, 5), (3, NULL)",
    f"INSERT INTO thing_sizes VALUES (1, 1, 0.1), (2, 1.0, {NEAR}), (3, 2, 7), (4, 1, 8), (5, 2, 7.00)",
    "INSERT INTO people VALUES ('Bob'), ('Ann')",
    "INSERT INTO pets VALUES (1, 'bob'), (2, 'BOB'), (3, 'ann')",
)
_THINGS = """version: 1
table: things
primary_key: id
fields:
  - many_to_many: sizes
    table: sizes
    primary_key: size
    through: {table: thing_sizes, left_key: thing_id, right_key: size}
    fields: [{double: size}]
  - count: count
    table: sizes
    primary_key: size
    through: {table: thing_sizes, left_key: thing_id, right_key: size}
  - {belongs_to: code, table: codes, primary_key: code, column: code, fields: [{decimal: code}]}
"""
_PEOPLE = """version: 1
table: people
primary_key: name
fields:
  - {has_many: pets, table: pets, primary_key: id, foreign_key: owner, fields: [{integer: id}]}
"""
_INDEXES = ("CREATE INDEX ON thing_sizes (thing_id)", "CREATE INDEX ON pets (owner)")


@pytest.mark.parametrize("indexes", [(), _INDEXES])
@pytest.mark.parametrize("form", ReadStrategy)
def test_each_row_once(database: str, tmp_path: Path, form: ReadStrategy, indexes: tuple[str, ...]) -> None:
    with connect(database) as connection:
        execute(connection, "SET search_path = public")
        for statement in (*_TABLES, *indexes):
            execute(connection, statement)
    with ReadSession(database) as session:
        assert read(session, tmp_path, _THINGS, form, ["1", "2", "3"]) == {
            "1": {"sizes": [{"size": 0.1}], "count": 1, "code": {"code": 0.1}},
            "2": {"sizes": [{"size": 7}], "count": 1, "code": {"code": 5}},
            "3": {"sizes": [], "count": 0, "code": None},
        }
        assert read(session, tmp_path, _PEOPLE, form, ["BOB", "bob", "Ann", "no"]) == {
            "Bob": {"pets": [{"id": 1}, {"id": 2}]},
            "Ann": {"pets": [{"id": 3}]},
            **dict.fromkeys(("BOB", "bob", "no")),
        }


def read(
    session: ReadSession, folder: Path, schema: str, form: ReadStrategy, keys: list[str]
) -> dict[str, object]:
    """The documents by id; None where there is none."""
    path = folder / "one.schema.yml"
    path.write_text(schema)
    spec = load_schema(path, "one")
    plan = plan_document(spec, read_catalog(session, spec.tables()))
    rows = session.query(keys_statement(plan, form), [keys])
    return {id_: None if body is None else json.loads(body) for id_, body in rows}
