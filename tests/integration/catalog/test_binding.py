"""Specifications are held against a real database, and suggestions load and bind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.catalog import bind, findings, list_tables, read_catalog, suggest_schema
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.schema.tree import AggregateField, ColumnField, IndexSpec, JoinField

DDL = """
CREATE EXTENSION citext;
CREATE SCHEMA sales;
CREATE TYPE tier AS ENUM ('free', 'paid');
CREATE DOMAIN code AS varchar(8);
CREATE TABLE cities (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE users (
    id bigint PRIMARY KEY, email citext UNIQUE, level tier, home_code code, bio text, tags text[],
    place point, born date, seen timestamptz, data jsonb, old json, score numeric, ratio float8,
    active bool NOT NULL, raw bytea, lat float8, lon numeric,
    city_id int REFERENCES cities, boss bigint REFERENCES users,
    twice bigint GENERATED ALWAYS AS (id * 2) STORED, "Full Name" text, "null" text, "userId" int
);
CREATE TABLE profiles (user_id bigint PRIMARY KEY REFERENCES users, motto varchar(20));
CREATE TABLE sales.orders (
    id uuid PRIMARY KEY, user_id bigint NOT NULL REFERENCES users, total numeric(10,2), at timestamp
);
CREATE INDEX ON sales.orders (user_id);
CREATE TABLE tags (id int PRIMARY KEY, name text);
CREATE TABLE user_tags (
    user_id bigint REFERENCES users, tag_id int REFERENCES tags, PRIMARY KEY (user_id, tag_id)
);
CREATE TABLE lines (b int, a int, note text, user_id bigint REFERENCES users, PRIMARY KEY (a, b));
CREATE TABLE keyless (user_id bigint REFERENCES users, note text);
CREATE VIEW people AS SELECT * FROM users;
"""

HEAD = "version: 1\ntable: users\nprimary_key: id\nfields:\n"


@pytest.fixture(scope="module")
def session(postgres: Any) -> Iterator[ReadSession]:
    url = postgres.create_database("catalog_binding")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(DDL)
    with ReadSession(url) as opened:
        yield opened


def load(folder: Path, text: str) -> IndexSpec:
    file = folder / "users.schema.yml"
    file.write_text(text)
    return load_schema(file, "users")


def errors(folder: Path, session: ReadSession, text: str) -> list[HeadraceError]:
    spec = load(folder, text)
    return bind(spec, read_catalog(session, spec.tables()))


def test_what_the_language_promises_to_read_is_read(tmp_path: Path, session: ReadSession) -> None:
    text = (
        HEAD
        + """
  - long: id
  - keyword: email
  - enum: level
  - identifier: home_code
  - text: bio
  - date: born
  - timestamp: seen
  - json: data
  - map: old
    values: text
  - decimal: score
  - double: ratio
  - boolean: active
  - binary: raw
  - geo: where
    lat: lat
    lon: lon
  - geo: point
    column: data
  - keyword: name
    column: '"Full Name"'
  - custom: cents
    column: score
    postgres: [numeric]
    opensearch: scaled_float
  - custom: labels
    column: tags
    postgres: ["text[]"]
    opensearch: keyword
  - many_to_many: tags
    table: tags
    primary_key: id
    through: {table: user_tags, left_key: user_id, right_key: tag_id}
    fields: [{text: name}]
  - has_many: lines
    table: lines
    primary_key: [b, a]
    foreign_key: user_id
    fields: [{integer: a}]
  - ids: tagIds
    table: tags
    through: {table: user_tags, left_key: user_id, right_key: tag_id}
    element_type: long
  - sum: spent
    table: orders
    schema: sales
    column: total
    value_type: decimal
    foreign_key: user_id
  - max: last
    table: orders
    schema: sales
    column: at
    value_type: timestamp
    foreign_key: user_id
"""
    )
    assert errors(tmp_path, session, text) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("  - text: boi", "no column 'boi'. Did you mean 'bio'?|no column 'boi', in `- text: boi`. Did you"),
        ("  - integer: id", "users.id is bigint and is declared as integer"),
        ("  - integer: tags", "users.tags is text[] and is declared as integer"),
        ("  - double: score", "Declare it as decimal"),
        ("  - geo: place", "users.place is point and is a point, which is json or text"),
        ("  - map: bio\n    values: text", "is a map, which is json"),
        ("  - long: id\n    transforms: [trim]", "has transforms, which are for text"),
        ("  - custom: id\n    postgres: [numeric]\n    opensearch: long", "accepts only numeric"),
        (
            "  - custom: tags\n    postgres: [text]\n    opensearch: keyword",
            '`postgres: ["text[]"]` and `opensearch: keyword`',
        ),
        (
            "  - has_many: x\n    table: orders\n    primary_key: id\n    foreign_key: f\n    fields: []",
            "the database has no table orders",
        ),
        (
            "  - has_many: x\n    table: lines\n    primary_key: a\n    foreign_key: user_id\n    fields: []",
            "(a) is no key of lines",
        ),
        (
            "  - has_many: x\n    table: people\n    primary_key: id\n    foreign_key: boss\n    fields: []",
            "people is a view: its changes are not in the log",
        ),
        (
            "  - has_many: x\n    table: users\n    primary_key: id\n    foreign_key: twice\n    fields: []",
            "users.twice is generated: the log does not carry it",
        ),
        (
            "  - has_many: x\n    table: cities\n    primary_key: id\n    foreign_key: name\n    fields: []",
            "cities.name (text) cannot be compared with users.id (bigint)",
        ),
        (
            "  - {count: x, table: cities, primary_key: id, foreign_key: name, references: email}",
            "cities.name (text) cannot be compared with users.email (public.citext)",
        ),
        (
            "  - count: x\n    table: lines\n    foreign_key: a\n    filters: [{column: noet, op: is_null}]",
            "Did you mean 'note'?",
        ),
        (
            "  - ids: x\n    table: lines\n    foreign_key: user_id\n    element_type: long",
            "key of one column",
        ),
        (
            "  - sum: x\n    table: lines\n    foreign_key: user_id\n    column: note\n    value_type: long",
            "lines.note is text and cannot be reduced by sum to long",
        ),
    ],
)
def test_each_mismatch_is_one_located_error(
    tmp_path: Path, session: ReadSession, fields: str, said: str
) -> None:
    [error] = errors(tmp_path, session, HEAD + fields + "\n")
    assert error.kind is Kind.BINDING
    assert any(part in str(error) for part in said.split("|"))
    assert "users.schema.yml:" in str(error)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("version: 1\ntable: people\nprimary_key: id\nfields: []", "people is a view"),
        ("version: 1\ntable: usres\nprimary_key: id\nfields: []", "the database has no table usres"),
        ("version: 1\ntable: users\nprimary_key: email\nfields: []", "Write `primary_key: [id]`"),
        ("version: 1\ntable: keyless\nfields: []", "has no primary key"),
        ("version: 1\ntable: users\nsoft_delete: {column: gone}\nfields: []", "no column 'gone'"),
    ],
)
def test_the_root_is_a_table_with_a_key(tmp_path: Path, session: ReadSession, head: str, said: str) -> None:
    [error] = errors(tmp_path, session, head)
    assert said in str(error)


def test_warnings_name_the_index_to_create(tmp_path: Path, session: ReadSession) -> None:
    text = HEAD + (
        "  - text: bio\n    required: true\n"
        "  - many_to_many: tags\n    table: tags\n    primary_key: id\n    fields: []\n"
        "    through: {table: user_tags, left_key: user_id, right_key: tag_id}\n"
    )
    spec = load(tmp_path, text)
    found = findings(spec, read_catalog(session, spec.tables()))
    assert [finding.level for finding in found] == ["warning", "warning"]
    assert "users.bio may be NULL, and the field is required" in str(found[0].error)
    assert 'CREATE INDEX CONCURRENTLY ON "public"."user_tags" ("tag_id");' in str(found[1].error)


def test_an_undeclared_key_is_the_tables_own(tmp_path: Path, session: ReadSession) -> None:
    assert errors(tmp_path, session, "version: 1\ntable: lines\nfields: [{text: note}]") == []


def test_every_table_with_a_key_gets_a_schema_that_binds(tmp_path: Path, session: ReadSession) -> None:
    catalog = read_catalog(session, list_tables(session))
    suggested = 0
    for name, table in catalog.tables.items():
        if table.primary_key:
            assert bind(load(tmp_path, suggest_schema(catalog, name)), catalog) == []
            suggested += 1
    assert suggested == 7


def test_a_suggestion_follows_the_foreign_keys(tmp_path: Path, session: ReadSession) -> None:
    catalog = read_catalog(session, list_tables(session))
    text = suggest_schema(catalog, TableName("public", "users"))
    spec = load(tmp_path, text)
    joins = {field.key: field.kind for field in spec.fields if isinstance(field, JoinField)}
    assert joins == {
        "city": "belongs_to",
        "users": "belongs_to",
        "lines": "has_many",
        "profiles": "has_one",
        "tags_2": "many_to_many",  # `users` has a column of that name
        "users_2": "has_many",
        "orders": "has_many",
    }
    tags = {field.column: field.tag for field in spec.fields if isinstance(field, ColumnField)}
    assert (tags["email"], tags["level"], tags["bio"], tags["Full Name"]) == (
        "keyword",
        "enum",
        "text",
        "text",
    )
    assert tags["tags"] == "keyword"
    assert "# place (point): no field type reads it" in text
    assert not any(isinstance(field, AggregateField) for field in spec.fields)


def test_a_suggestion_needs_a_table_with_a_key(session: ReadSession) -> None:
    catalog = read_catalog(session, list_tables(session))
    with pytest.raises(HeadraceError, match="Did you mean 'users'"):
        suggest_schema(catalog, TableName("public", "user"))
    with pytest.raises(HeadraceError, match="has no primary key"):
        suggest_schema(catalog, TableName("public", "keyless"))


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        ("version: 1\ntable: Widget\nfields: []", ":2:8:", """Write '"Widget"'"""),
        ("version: 1\ntable: Widgte\nfields: []", ":2:8:", "Did you mean 'Widget'?"),
        ("version: 1\ntable: crate\nfields: []", ":2:8:", "add `schema: store`"),
        (f"{HEAD}  - keyword: Shade\n    column: madeBy", ":", """Write '"madeBy"'"""),
        (
            f"{HEAD}  - count: n\n    foreign_key: user_id\n    table: Widget",
            ":7:12:",
            """Write '"Widget"'""",
        ),
    ],
)
def test_a_name_of_another_case_is_shown_as_it_is_written(
    tmp_path: Path, database: str, text: str, place: str, remedy: str
) -> None:
    """PostgreSQL folds names outside of quotes, and so do schema files; the database has `Widget`."""
    tables = (
        'CREATE TABLE "Widget" (id int PRIMARY KEY)',
        'CREATE TABLE users (id int PRIMARY KEY, "madeBy" text)',
        "CREATE SCHEMA store",
        "CREATE TABLE store.crate (id int PRIMARY KEY)",
    )
    with psycopg.connect(database, autocommit=True) as connection:
        for table in tables:
            connection.execute(table.encode())
    with ReadSession(database) as session:
        [error] = errors(tmp_path, session, text + "\n")
    assert place in error.cause
    assert remedy in error.remedy
