"""Is an index told to serve a comparison exactly where PostgreSQL can use it?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.assembly.lowering import plan_document
from headrace.assembly.statement import keys_statement
from headrace.catalog import Column, complete, findings, read_catalog
from headrace.catalog.comparison import as_stored, equal
from headrace.catalog.type_check import are_comparable
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.model.names import TableName
from headrace.postgres.quoting import identifier
from headrace.postgres.session import ReadSession
from headrace.resolution.paths import find_paths
from headrace.resolution.plan import path_statement
from headrace.schema.load import load_schema

TYPES = {
    **{name: name for name in "int2 int4 int8 numeric float4 float8 oid".split()},
    **{name: name for name in "text varchar bpchar name citext".split()},
    **{name: name for name in "date timestamp timestamptz time timetz".split()},
    "short": "short",
    "plain": 'text COLLATE "C"',
    "posix": 'varchar COLLATE "POSIX"',
}


TABLES = [
    "CREATE EXTENSION citext",
    "CREATE DOMAIN short AS int2",
    f"CREATE TABLE held ({', '.join(f'{identifier(name)} {kind}' for name, kind in TYPES.items())})",
    *(f"CREATE INDEX ON held ({identifier(name)})" for name in TYPES),
]


def test_an_index_is_told_to_serve_where_the_server_uses_it(postgres: EmbeddedPostgres) -> None:
    url = postgres.create_database("served_lookups")
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in TABLES:
            connection.execute(statement.encode())
        name = TableName("public", "held")
        with ReadSession(url) as session:
            columns = read_catalog(session, [name])[name].columns
        connection.execute("SET search_path = pg_catalog; SET enable_seqscan = off")
        pairs = [pair for pair in product(columns, columns) if are_comparable(*pair)]
        wrong = {}
        for ours, theirs in pairs:
            used = is_used(connection, ours, theirs)
            if used is not None and used != as_stored(ours, theirs):
                wrong[ours.name, theirs.name] = used
        assert not wrong, "\n".join(map(str, wrong.items()))


def is_used(connection: psycopg.Connection, ours: Column, theirs: Column) -> bool | None:
    """Whether a row is looked up by an index; None where there is no such comparison."""
    condition = equal(f"h.{identifier(ours.name)}", ours, f"o.{identifier(theirs.name)}", theirs)
    rows = f"SELECT FROM public.held AS h WHERE {condition} OFFSET 0"
    asked = f"EXPLAIN (COSTS OFF) SELECT FROM public.held AS o CROSS JOIN LATERAL ({rows}) AS h"
    try:
        return any("Index Cond" in line for (line,) in connection.execute(asked.encode()).fetchall())
    except psycopg.errors.UndefinedFunction:
        return None


JOINED = """
CREATE TABLE person (id int PRIMARY KEY, code text UNIQUE NOT NULL, best numeric, home varchar(9));
CREATE TABLE visit (id int PRIMARY KEY, person numeric, code text COLLATE "C" UNIQUE NOT NULL, far bigint);
CREATE TABLE pair (p numeric, v numeric, PRIMARY KEY (p, v));
CREATE INDEX ON visit (person); CREATE INDEX ON visit (far); CREATE INDEX ON pair (v);
CREATE INDEX ON person (best); CREATE INDEX ON person (home);
"""
CHUNK = "each chunk of up to 1000 documents"
LOOKUPS = [
    ("person", "has_many: x, table: visit, primary_key: id, foreign_key: far", set()),
    (
        "person",
        "has_many: x, table: visit, primary_key: id, foreign_key: person",
        {"a change reads all of person"},
    ),
    ("person", "count: x, table: visit, foreign_key: person", {"a change reads all of person"}),
    (
        "person",
        "many_to_many: x, table: visit, primary_key: id, through: {table: pair, left_key: p, right_key: v}",
        {"a change reads all of person", f"{CHUNK} reads all of visit"},
    ),
    ("person", "belongs_to: best, table: visit, primary_key: id", {f"{CHUNK} reads all of visit"}),
    ("person", "belongs_to: home, table: visit, primary_key: code", set()),
    ("person", "belongs_to: home, table: person, primary_key: code", set()),
    ("visit", "belongs_to: code, table: person, primary_key: code", {f"{CHUNK} reads all of person"}),
]


@pytest.fixture(scope="module")
def joined(postgres: EmbeddedPostgres) -> str:
    url: str = postgres.create_database("served_joins")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(JOINED)
    return url


@pytest.mark.parametrize(("root", "field", "expected"), LOOKUPS, ids=[field for _, field, _ in LOOKUPS])
def test_what_reads_a_whole_table_in_spite_of_an_index_is_told(
    joined: str, tmp_path: Path, root: str, field: str, expected: set[str]
) -> None:
    """Of both kinds of statements, and PostgreSQL's own plans are the judge."""
    rest = "" if field.startswith("count") else ", fields: [{long: id}]"
    file = tmp_path / "person.schema.yml"
    file.write_text(f"version: 1\ntable: {root}\nprimary_key: id\nfields: [{{{field}{rest}}}]\n")
    with ReadSession(joined) as session:
        declared = load_schema(file, "person")
        catalog = read_catalog(session, declared.tables())
        told = findings(declared, catalog)
        spec = complete(declared, catalog)
        for setting in ("seqscan", "hashjoin", "mergejoin", "bitmapscan"):
            session.query(f"SET enable_{setting} = off")
        plan = plan_document(spec, catalog)
        scanned = {f"{CHUNK} reads all of {table}" for table in whole(session, keys_statement(plan), 1)}
        for path in find_paths(spec, catalog):
            statement = path_statement(path)
            if statement is not None:
                found = whole(session, statement, len(path.lead))
                scanned |= {f"a change reads all of {table}" for table in found}
    assert {one.level for one in told} <= {"warning"}
    causes = [re.sub(r"each change of \w+", "a change", one.error.cause) for one in told]
    costs = [re.search(r"(?:each chunk of [^:]*|a change) reads all of \w+", cause) for cause in causes]
    assert {one[0] for one in costs if one is not None} == expected == scanned
    assert len(costs) == len(expected)


def whole(session: ReadSession, statement: str, parameters: int) -> set[str]:
    """The tables of which a statement reads more than an index leads to."""
    arrays = [["1"]] * parameters
    [(plan,)] = session.query(f"EXPLAIN (FORMAT JSON) {statement}", arrays, reusable=False)
    return set(_whole(plan[0]["Plan"]))


def _whole(node: dict[str, Any]) -> Iterator[str]:
    if "Relation Name" in node and "Index Cond" not in node:
        yield node["Relation Name"]
    for below in node.get("Plans", ()):
        yield from _whole(below)
