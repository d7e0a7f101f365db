"""Is what a publication sends read as the server tells it, and without waiting for anybody's lock?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.catalog.partitions import read_leaves
from headrace.catalog.read import read_catalog
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.publication import read_column_lists, read_publication, read_published_roots
from headrace.postgres.publication_filters import read_filters
from headrace.postgres.session import ReadSession
from support import followed_mirror
from support.servers import BINARIES, short_lived_server, skip_without

TABLES = (
    "CREATE SCHEMA other",
    "CREATE TABLE plain (id int PRIMARY KEY, v text, gone int, twice int GENERATED ALWAYS AS (id) STORED)",
    "ALTER TABLE plain DROP COLUMN gone",
    "CREATE TABLE other.plain (id int PRIMARY KEY)",
    "CREATE UNLOGGED TABLE other.unlogged (id int PRIMARY KEY)",
    "CREATE TABLE columnless ()",
    "CREATE TABLE parent (id int PRIMARY KEY)",
    "CREATE TABLE child (more int) INHERITS (parent)",
    "CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE other.high PARTITION OF parted FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)",
    "CREATE TABLE highest PARTITION OF other.high FOR VALUES FROM (15) TO (20)",
    "CREATE TABLE empty (id int PRIMARY KEY) PARTITION BY RANGE (id)",
)
PUBLICATIONS = (
    "",
    "FOR ALL TABLES",
    "FOR TABLE plain, parent, parted",
    "FOR TABLE plain, low, other.high, empty",
    "FOR TABLE parted, low",
    "FOR TABLE plain (id), highest (id)",
    "FOR TABLE plain WHERE (id > 3), highest (id) WHERE (id > 16)",
    "FOR TABLES IN SCHEMA other",
    "FOR TABLES IN SCHEMA other, public",
    "FOR TABLES IN SCHEMA other, TABLE plain",
)
PARTED, PLAIN = TableName("public", "parted"), TableName("public", "plain")


@pytest.fixture(scope="module", params=BINARIES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    skip_without(request.param)
    with short_lived_server(binaries=BINARIES[request.param]()) as server:
        url = server.create_database("published")
        followed_mirror.run(url, *TABLES)
        yield url


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with connect(url) as connection:
        yield connection


@pytest.mark.parametrize("via_root", [False, True])
@pytest.mark.parametrize("what", PUBLICATIONS)
def test_it_is_what_the_view_of_the_server_tells(
    url: str, connection: Connection, what: str, *, via_root: bool
) -> None:
    execute(connection, f"CREATE PUBLICATION p {what} WITH (publish_via_partition_root = {via_root})")
    try:
        expected = {
            (schema, table): (frozenset(columns), filtered)
            for schema, table, columns, filtered in execute(
                connection,
                # The view of 15 names stored generated columns too, which no server before 18 sends.
                "SELECT schemaname::text, tablename::text, ARRAY(SELECT name FROM unnest(attnames) name "
                "WHERE current_setting('server_version_num')::int >= 180000 OR name <> 'twice')::text[], "
                "rowfilter IS NOT NULL FROM pg_publication_tables WHERE pubname = 'p'",
            )
        }
        found = read_publication(connection, "p")
        assert found is not None
        assert {
            (name.schema, name.name): (table.columns, table.row_filter)
            for name, table in found.tables.items()
        } == expected
        with ReadSession(url) as session:
            roots = {root_of(connection, *name) for name in expected}
            assert read_published_roots(session, "p") == tuple(sorted(roots))
            assert read_column_lists(session, "p").keys() == roots
    finally:
        execute(connection, "DROP PUBLICATION p")


def root_of(connection: Connection, schema: str, table: str) -> TableName:
    [name] = execute(
        connection,
        "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
        "WHERE c.oid = (SELECT coalesce(pg_partition_root(oid), oid) FROM pg_class "
        "WHERE relname = $2 AND relnamespace = $1::regnamespace)",
        (schema, table),
    )
    return TableName(*name)


def test_no_lock_on_a_table_or_a_partition_is_waited_for(url: str, connection: Connection) -> None:
    """From PostgreSQL 16 on the view waits for each of the publication's tables."""
    execute(connection, "CREATE PUBLICATION locked FOR TABLE plain, parted")
    with connect(url, autocommit=False) as holder, ReadSession(url, lock_seconds=0.5) as session:
        execute(holder, "LOCK TABLE plain, parted IN ACCESS EXCLUSIVE MODE")  # and its partitions
        execute(connection, "SET lock_timeout = 500")
        found = read_publication(connection, "locked")
        assert found is not None
        assert {name.name for name in found.tables} == {"plain", "low", "highest"}
        assert read_filters(connection, "locked", found.tables) == {}
        assert read_published_roots(session, "locked") == (PARTED, PLAIN)
        assert read_column_lists(session, "locked")[PARTED] == {"id", "v"}
        table = read_catalog(session, [PARTED]).tables[PARTED]
        assert {name.name for name in table.partitions} == {"low", "highest"}
        assert len(read_leaves(session, PARTED)) == len(table.partitions)
        assert read_leaves(session, PLAIN) == set()
    execute(connection, "DROP PUBLICATION locked")
