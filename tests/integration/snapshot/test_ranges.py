"""Ranges of a real table hold each row once, and a rewrite is noticed."""

from __future__ import annotations

import psycopg
import pytest

from headrace.catalog import read_catalog
from headrace.catalog.table import Table
from headrace.errors import HeadraceError, Kind
from headrace.model.names import CtidRange, TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import create_slot, drop_slot
from headrace.snapshot.planning import plan_ranges, plan_tables
from headrace.snapshot.ranges import check_filenode

NAME = TableName('My "Shop', 'Big "one"')


FILL = f"INSERT INTO {quoted(NAME)} SELECT i, repeat('x', 200) FROM generate_series($1::int, $2::int) i"


@pytest.fixture
def big(database: str) -> str:
    with connect(database) as connection:
        execute(connection, 'CREATE SCHEMA "My ""Shop"')
        execute(connection, f"CREATE TABLE {quoted(NAME)} (id int PRIMARY KEY, pad text)")
        execute(connection, FILL, (1, 5000))
    return database


def described(session: ReadSession, name: TableName) -> Table:
    return read_catalog(session, [name])[name]


def rows(session: ReadSession, part: CtidRange) -> list[int]:
    assert part.table is not None
    end = "" if part.last_block is None else f"AND ctid < '({part.last_block + 1},0)'"
    sql = f"SELECT id FROM {quoted(part.table)} WHERE ctid >= '({part.first_block},0)' {end}"
    return [row[0] for row in session.query(sql)]


def test_every_row_stands_in_one_range_also_those_that_came_later(big: str) -> None:
    with ReadSession(big) as session, connect(big) as writer:
        parts = plan_ranges(session, described(session, NAME), 128 << 10)
        assert len(parts) > 5
        execute(writer, FILL, (5001, 6000))
        found = [one for part in parts for one in rows(session, part)]
        assert sorted(found) == list(range(1, 6001))
        for part in parts:
            check_filenode(session, part)


def test_an_empty_table_is_one_range_and_partitions_have_their_own(database: str) -> None:
    with ReadSession(database) as session, connect(database) as writer:
        execute(writer, "CREATE TABLE empty (id int PRIMARY KEY)")
        [part] = plan_ranges(session, described(session, TableName("public", "empty")), 1)
        assert (part.first_block, part.last_block) == (0, None)
        execute(writer, "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY LIST (id)")
        name = TableName("public", "parted")
        assert plan_ranges(session, described(session, name), 1) == []
        for one in (1, 2):
            execute(writer, f'CREATE TABLE "P {one}" PARTITION OF parted FOR VALUES IN ({one})')
        parts = plan_ranges(session, described(session, name), 1)
        assert [part.table for part in parts] == [TableName("public", "P 1"), TableName("public", "P 2")]


def test_a_rewritten_table_is_noticed(big: str) -> None:
    with ReadSession(big) as session, connect(big) as writer:
        part = plan_ranges(session, described(session, NAME), 128 << 10)[0]
        execute(writer, f"VACUUM FULL {quoted(NAME)}")
        with pytest.raises(HeadraceError, match="rewritten") as caught:
            check_filenode(session, part)
        assert caught.value.kind is Kind.CONTINUITY
        table = described(session, NAME)
        part = plan_ranges(session, table, 128 << 10)[0]
        check_filenode(session, part)
        execute(writer, f"DROP TABLE {quoted(NAME)}")
        with pytest.raises(HeadraceError, match="dropped"):
            check_filenode(session, part)
        with pytest.raises(HeadraceError) as caught:
            plan_ranges(session, table, 1)
        assert caught.value.kind is Kind.BINDING


def test_the_check_under_a_snapshot_holds_the_table_until_its_rows_are_read(big: str) -> None:
    with (
        create_slot(big, "s_ranges") as slot,
        ReadSession(big, snapshot=slot.snapshot_name) as session,
        connect(big) as writer,
    ):
        part = plan_ranges(session, described(session, NAME), 128 << 10)[0]
        check_filenode(session, part)
        execute(writer, "SET lock_timeout = 200")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            execute(writer, f"VACUUM FULL {quoted(NAME)}")
    with connect(big) as connection:
        drop_slot(connection, "s_ranges")


@pytest.mark.parametrize(
    ("sql", "what"),
    [("DROP TABLE one", "dropped"), ("TRUNCATE one", "rewritten")],
    ids=["dropped", "emptied"],
)
@pytest.mark.parametrize("role", ["", "SET ROLE only_the_parent"], ids=["its owner", "who may not read it"])
def test_a_partition_whose_rows_have_gone_since_the_snapshot_is_told(
    database: str, sql: str, what: str, role: str
) -> None:
    """Whoever reads the table as a whole would read the partitions of today."""
    name = TableName("public", "parted")
    with connect(database) as writer:
        for statement in (
            "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY LIST (id)",
            "CREATE TABLE one PARTITION OF parted FOR VALUES IN (1)",
            "CREATE TABLE another PARTITION OF parted FOR VALUES IN (2)",
            "INSERT INTO parted VALUES (1), (2)",
            "CREATE ROLE only_the_parent",
            "GRANT SELECT ON parted TO only_the_parent",
        ):
            execute(writer, statement)
        try:
            with (
                create_slot(database, "s_gone") as slot,
                ReadSession(database, snapshot=slot.snapshot_name) as session,
            ):
                execute(writer, sql)
                if role:
                    session.query(role)
                with pytest.raises(HeadraceError, match=f"the table one was {what}") as caught:
                    plan_tables(session, [name])
            assert caught.value.kind is Kind.CONTINUITY
        finally:
            drop_slot(writer, "s_gone")
            execute(writer, "DROP OWNED BY only_the_parent")
            execute(writer, "DROP ROLE only_the_parent")
