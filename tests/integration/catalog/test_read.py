"""The catalog is read as it is, from a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headrace.catalog import Catalog, list_tables, read_catalog
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession

DDL = """
CREATE EXTENSION citext;
CREATE SCHEMA other;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN short_text AS varchar(10) NOT NULL;
CREATE DOMAIN shorter AS short_text CHECK (length(VALUE) < 5);
CREATE TABLE types (
    id bigint PRIMARY KEY, price numeric(10,2), mail citext, feeling mood, feelings mood[], label shorter,
    labels shorter[], doubled numeric GENERATED ALWAYS AS (price * 2) STORED, gone int
);
ALTER TABLE types DROP COLUMN gone;
CREATE TABLE other."Mixed Case" ("Id" int, "A" int NOT NULL, "B" int NOT NULL, PRIMARY KEY ("B", "Id"));
CREATE TABLE child (
    id int PRIMARY KEY DEFERRABLE, parent_b int, parent_id int, code text NOT NULL, note text,
    FOREIGN KEY (parent_b, parent_id) REFERENCES other."Mixed Case" ("B", "Id")
);
CREATE INDEX child_parent ON child (parent_b, parent_id);
CREATE UNIQUE INDEX child_code ON child (code);
CREATE UNIQUE INDEX child_note ON child (note);
CREATE UNIQUE INDEX child_partial ON child (code) WHERE id > 5;
CREATE UNIQUE INDEX child_lower ON child (code, lower(note));
CREATE INDEX child_gin ON child USING gin (to_tsvector('simple', note));
CREATE TABLE whole (a int, b int, c int GENERATED ALWAYS AS (a) STORED);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE silent (a int PRIMARY KEY);
ALTER TABLE silent REPLICA IDENTITY NOTHING;
CREATE TABLE picked (a int PRIMARY KEY, b int NOT NULL, c int NOT NULL);
CREATE UNIQUE INDEX picked_index ON picked (c, b);
ALTER TABLE picked REPLICA IDENTITY USING INDEX picked_index;
CREATE TABLE events (id int, at date, what text, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')
    PARTITION BY RANGE (at);
CREATE TABLE other.events_3 PARTITION OF events_2 FOR VALUES FROM ('2025-01-01') TO ('2025-06-01');
CREATE TABLE to_events (
    id int PRIMARY KEY, at date, event int, FOREIGN KEY (at, event) REFERENCES events (at, id)
);
CREATE VIEW seen AS SELECT id, code FROM child;
CREATE MATERIALIZED VIEW kept AS SELECT id FROM child;
"""


def public(name: str) -> TableName:
    return TableName("public", name)


MIXED = TableName("other", "Mixed Case")


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    found: str = postgres.create_database("catalog_read")
    with psycopg.connect(found, autocommit=True) as connection:
        connection.execute(DDL)
    return found


@pytest.fixture(scope="module")
def session(url: str) -> Iterator[ReadSession]:
    with ReadSession(url) as opened:
        yield opened


@pytest.fixture(scope="module")
def catalog(session: ReadSession) -> Catalog:
    names = ["types", "child", "whole", "silent", "picked", "events", "to_events", "seen", "kept", "absent"]
    return read_catalog(session, [MIXED, *map(public, names)])


def test_a_missing_table_is_absent(catalog: Catalog) -> None:
    assert public("absent") not in catalog
    assert len(catalog.tables) == 10


def test_nothing_asked_nothing_found(session: ReadSession) -> None:
    assert read_catalog(session, []).tables == {}


@pytest.mark.parametrize(
    ("name", "base_type", "category", "shown"),
    [
        ("id", "int8", "N", "bigint"),
        ("price", "numeric", "N", "numeric(10,2)"),
        ("mail", "citext", "S", "public.citext"),
        ("feeling", "public.mood", "E", "public.mood"),
        ("feelings", "_public.mood", "A", "public.mood[]"),
        ("label", "varchar", "S", "public.shorter"),
        ("labels", "_varchar", "A", "public.shorter[]"),
    ],
)
def test_types_are_followed_to_their_base(
    catalog: Catalog, name: str, base_type: str, category: str, shown: str
) -> None:
    column = catalog[public("types")].column(name)
    assert column is not None
    assert (column.base_type, column.category, column.type) == (base_type, category, shown)


def test_columns_are_in_table_order_without_dropped_ones(catalog: Catalog) -> None:
    table = catalog[public("types")]
    assert [column.name for column in table.columns] == [
        "id", "price", "mail", "feeling", "feelings", "label", "labels", "doubled",
    ]  # fmt: skip
    assert [column.name for column in table.columns if column.generated] == ["doubled"]
    assert [column.name for column in table.columns if column.not_null] == ["id"]


def test_a_composite_key_is_in_key_order_and_keeps_its_case(catalog: Catalog) -> None:
    assert catalog[MIXED].primary_key == ("B", "Id")


def test_unique_keys_leave_partial_and_expression_indexes_out(catalog: Catalog) -> None:
    keys = {
        key.index: (key.columns, key.primary, key.not_null) for key in catalog[public("child")].unique_keys
    }
    assert keys == {
        "child_pkey": (("id",), True, True),
        "child_code": (("code",), False, True),
        "child_note": (("note",), False, False),
    }


def test_indexes_that_serve_an_equality(catalog: Catalog) -> None:
    assert set(catalog[public("child")].indexed) == {
        ("id",), ("parent_b", "parent_id"), ("code",), ("note",),
    }  # fmt: skip


def test_foreign_keys_pair_their_columns(catalog: Catalog) -> None:
    [key] = catalog[public("child")].foreign_keys
    assert (key.columns, key.target, key.target_columns) == (("parent_b", "parent_id"), MIXED, ("B", "Id"))


def test_a_foreign_key_to_a_partitioned_table_stands_once(catalog: Catalog) -> None:
    [key] = catalog[public("to_events")].foreign_keys
    assert key.target == public("events")


@pytest.mark.parametrize(
    ("table", "kind", "columns"),
    [
        ("types", "default", ("id",)),
        ("child", "default", ()),
        ("whole", "full", ("a", "b")),
        ("silent", "nothing", ()),
        ("picked", "index", ("c", "b")),
        ("events", "default", ("at", "id")),
    ],
)
def test_replica_identities(catalog: Catalog, table: str, kind: str, columns: tuple[str, ...]) -> None:
    """A deferrable key is no replica identity: its table's old tuples carry nothing."""
    found = catalog[public(table)]
    assert (found.replica_identity, found.identity_columns) == (kind, columns)


def test_partitions_are_the_leaves(catalog: Catalog) -> None:
    events = catalog[public("events")]
    assert events.kind == "p"
    assert set(events.partitions) == {public("events_1"), TableName("other", "events_3")}


def test_leaves_that_differ_carry_what_is_common(url: str, session: ReadSession) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE events_1 REPLICA IDENTITY FULL")
        table = read_catalog(session, [public("events")])[public("events")]
        connection.execute("ALTER TABLE other.events_3 REPLICA IDENTITY NOTHING")
        silent = read_catalog(session, [public("events")])[public("events")]
        connection.execute("ALTER TABLE events_1 REPLICA IDENTITY DEFAULT")
        connection.execute("ALTER TABLE other.events_3 REPLICA IDENTITY DEFAULT")
    assert (table.replica_identity, set(table.identity_columns)) == ("index", {"at", "id"})
    assert (silent.replica_identity, silent.identity_columns) == ("nothing", ())


def test_views_have_columns_and_no_key(catalog: Catalog) -> None:
    seen = catalog[public("seen")]
    assert (seen.kind, seen.primary_key, [column.name for column in seen.columns]) == (
        "v",
        (),
        ["id", "code"],
    )
    assert catalog[public("kept")].kind == "m"


def test_every_permanent_table_is_listed_without_partitions(session: ReadSession) -> None:
    names = list_tables(session)
    assert MIXED in names
    assert public("events") in names
    assert public("events_1") not in names
    assert public("seen") not in names


def test_a_not_null_that_was_never_checked_does_not_count(url: str, session: ReadSession) -> None:
    """PostgreSQL 18 takes NOT NULL … NOT VALID: the rows that are there may hold NULL."""
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.info.server_version < 180000:
            pytest.skip("this server checks every NOT NULL at once")
        connection.execute("CREATE TABLE trusted (a int UNIQUE, v int GENERATED ALWAYS AS (a + 1) VIRTUAL)")
        connection.execute("ALTER TABLE trusted ADD CONSTRAINT checked NOT NULL a NOT VALID")
        [before] = read_catalog(session, [public("trusted")]).tables.values()
        connection.execute("ALTER TABLE trusted VALIDATE CONSTRAINT checked")
        [after] = read_catalog(session, [public("trusted")]).tables.values()
    assert [key.not_null for key in (*before.unique_keys, *after.unique_keys)] == [False, True]
    assert [column.generated for column in after.columns] == [False, True]
