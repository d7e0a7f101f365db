"""Domains, enums, citext and arrays are read by what they really are, wherever their types live."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg

from headrace.assembly import Assembler
from headrace.catalog import bind, read_catalog
from headrace.model import CtidRange
from headrace.postgres.session import ReadSession
from headrace.spec import load_schema

TABLES = (
    "CREATE SCHEMA ext",
    "CREATE SCHEMA app",
    "CREATE EXTENSION citext SCHEMA ext",
    "CREATE TYPE app.mood AS ENUM ('sad', 'ok', 'glad')",
    "CREATE DOMAIN app.handle AS ext.citext",
    "CREATE DOMAIN app.nick AS app.handle CHECK (VALUE <> '')",
    "CREATE DOMAIN app.feeling AS app.mood",
    "CREATE DOMAIN app.words AS text[]",
    "CREATE DOMAIN app.cents AS numeric(12,2)",
    """CREATE TABLE app.member (name app.nick PRIMARY KEY, mood app.feeling, words app.words, due app.cents,
                                friend app.handle)""",
    """INSERT INTO app.member VALUES ('Ann', 'glad', '{a,"b c"}', 1.5, 'BOB'), ('Cid', 'sad', '{}', 0, 'Ann'),
                                     ('Bob', 'ok', NULL, NULL, 'ann')""",
)
SCHEMA = """
version: 1
table: member
schema: app
filters: [{column: mood, op: gte, value: ok}, {column: name, op: neq, value: CID}]
fields:
  - keyword: name
  - enum: mood
    variants: [sad, ok, glad]
  - custom: words
    postgres: ["text[]"]
    opensearch: keyword
  - decimal: due
  - belongs_to: friend
    table: member
    primary_key: name
    fields: [{keyword: name}]
  - has_many: fans
    table: member
    primary_key: name
    foreign_key: friend
    order_by: [{column: mood}]
    fields: [{keyword: name}]
  - max: last
    table: member
    foreign_key: friend
    column: name
    value_type: keyword
  - min: saddest
    table: member
    foreign_key: friend
    column: mood
    value_type: enum
"""


def test_a_type_is_what_its_domains_are_made_of(make_database: Callable[..., str], tmp_path: Path) -> None:
    url = make_database(TABLES)
    file = tmp_path / "members.schema.yml"
    file.write_text(SCHEMA)
    spec = load_schema(file, "members")
    with ReadSession(url) as session:
        catalog = read_catalog(session, spec.tables())
        assert [error.cause for error in bind(spec, catalog)] == []
        assembler = Assembler(session, spec, catalog)
        seeded = {
            one.id: json.loads(one.body or b"") for one in assembler.assemble_range(CtidRange(0, None), 1)
        }
        assert seeded == {
            "Ann": {
                "name": "Ann",
                "mood": "glad",
                "words": ["a", "b c"],
                "due": 1.5,
                "friend": {"name": "Bob"},
                "fans": [{"name": "Cid"}, {"name": "Bob"}],
                "last": "Cid",
                "saddest": "sad",
            },
            "Bob": {
                "name": "Bob",
                "mood": "ok",
                "words": None,
                "due": None,
                "friend": {"name": "Ann"},
                "fans": [{"name": "Ann"}],
                "last": "Ann",
                "saddest": "glad",
            },
        }
        rebuilt = {one.id: one.body is not None for one in assembler.assemble([("BOB",), ("cid",)], 1)}
        assert rebuilt == {"BOB": False, "Bob": True, "cid": False, "Cid": False}
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE app.member SET friend = NULL WHERE name = 'Cid'")
        [ann] = assembler.assemble([("Ann",)], 1)
    assert json.loads(ann.body or b"")["fans"] == [{"name": "Bob"}]
