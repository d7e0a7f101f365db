"""Domains, enums, citext and arrays are read by what they really are, wherever their types live."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from headrace.assembly.assembler import Assembler
from headrace.catalog import bind, read_catalog
from headrace.catalog.checks import label_findings
from headrace.model.names import CtidRange
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema

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
        backfilled = {
            one.id: json.loads(one.body or b"") for one in assembler.assemble_range(CtidRange(0, None), 1)
        }
        assert backfilled == {
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


NAMESAKES = (
    "CREATE SCHEMA app",
    "CREATE SCHEMA other",
    "CREATE TYPE app.text AS ENUM ('z', 'a')",
    "CREATE TYPE app.date AS ENUM ('late', 'early')",
    "CREATE DOMAIN app.day AS app.date",
    "CREATE TYPE app.bool AS ENUM ('no', 'yes')",
    "CREATE TYPE app.citext AS ENUM ('x', 'y')",
    "CREATE TYPE app.numeric AS (a int, b pg_catalog.text)",
    "CREATE TYPE other.date AS ENUM ('late', 'early')",
    """CREATE TABLE app.thing (k app.text PRIMARY KEY, at app.date, day app.day, days app.date[],
                               off app.bool, c app.citext, n app.numeric,
                               above app.text, elsewhere other.date UNIQUE)""",
    """INSERT INTO app.thing VALUES
       ('z', 'late', 'late', '{early,late}', NULL, 'x', '(1,e)', NULL, 'late'),
       ('a', 'early', 'early', '{{late},{early}}', NULL, 'y', NULL, 'z', 'early')""",
)
NAMESAKE_SCHEMA = """
version: 1
table: thing
schema: app
filters: [{column: day, op: lte, value: early}, {column: c, op: in, value: [x, y]}]
soft_delete: {column: off}
fields:
  - keyword: k
  - enum: at
    variants: [late, early]
  - keyword: day
    transforms: [trim]
  - custom: days
    postgres: ["app.date[]"]
    opensearch: keyword
  - enum: c
    variants: [x, y]
  - custom: n
    postgres: [app.numeric]
    opensearch: object
  - belongs_to: above
    table: thing
    primary_key: k
    fields: [{keyword: k}, {keyword: day}]
  - has_many: below
    table: thing
    primary_key: k
    foreign_key: above
    order_by: [{column: day}]
    fields: [{keyword: k}]
  - max: last
    table: thing
    foreign_key: above
    column: day
    value_type: enum
"""


def test_a_type_of_the_users_is_not_the_built_in_one_of_its_name(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    url = make_database(NAMESAKES)
    file = tmp_path / "things.schema.yml"
    file.write_text(NAMESAKE_SCHEMA)
    spec = load_schema(file, "things")
    with ReadSession(url) as session:
        catalog = read_catalog(session, spec.tables())
        assert [error.cause for error in bind(spec, catalog)] == []
        assert label_findings(session, [spec], catalog) == []
        assembler = Assembler(session, spec, catalog)
        backfilled = {
            one.id: json.loads(one.body or b"") for one in assembler.assemble_range(CtidRange(0, None), 1)
        }
        rebuilt = {one.id: json.loads(one.body or b"") for one in assembler.assemble([("z",), ("a",)], 1)}
    common = {"at": "late", "day": "late", "days": ["early", "late"], "c": "x", "n": {"a": 1, "b": "e"}}
    top = {"k": "z", **common, "above": None, "below": [{"k": "a"}], "last": "early"}
    low = {"k": "a", "at": "early", "day": "early", "days": [["late"], ["early"]], "c": "y", "n": None}
    assert backfilled == {
        "z": top,
        "a": {**low, "above": {"k": "z", "day": "late"}, "below": [], "last": None},
    }
    assert rebuilt == backfilled


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("date: at", "Declare it as keyword or text or identifier"),
        ("boolean: off", "Declare it as keyword or text or identifier"),
        ("decimal: n", 'Write `custom: n` with `postgres: ["app.numeric"]`'),
        ("custom: at, postgres: [date], opensearch: date", "at is app.date"),
        (
            "belongs_to: elsewhere, table: thing, primary_key: k, fields: []",
            "thing.elsewhere (other.date) cannot be compared with",
        ),
        (
            "has_many: x, table: thing, primary_key: k, foreign_key: at, fields: []",
            "app.thing.at (app.date) cannot be compared with app.thing.elsewhere (other.date)",
        ),
    ],
)
def test_what_reads_a_built_in_type_reads_no_namesake(
    make_database: Callable[..., str], tmp_path: Path, field: str, said: str
) -> None:
    url = make_database(NAMESAKES)
    file = tmp_path / "things.schema.yml"
    file.write_text(f"version: 1\ntable: thing\nschema: app\nprimary_key: elsewhere\nfields: [{{{field}}}]\n")
    spec = load_schema(file, "things")
    with ReadSession(url) as session:
        errors = [str(error) for error in bind(spec, read_catalog(session, spec.tables()))]
    assert [one for one in errors if said in one], errors
