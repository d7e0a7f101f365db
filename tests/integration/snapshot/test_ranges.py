"""Ranges of a real table hold each row once, and a rewrite is noticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model import CtidRange, TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession
from headrace.snapshot import check_filenode, plan_ranges
from integration.postgres.conftest import Server

NAME = TableName('My "Shop', 'Big "one"')


@pytest.fixture(scope="module")
def big() -> Iterator[str]:
    server = Server()
    with connect(server.url) as connection:
        execute(connection, 'CREATE SCHEMA "My ""Shop"')
        execute(connection, f"CREATE TABLE {quoted(NAME)} (id int PRIMARY KEY, pad text)")
        execute(
            connection,
            f"INSERT INTO {quoted(NAME)} SELECT i, repeat('x', 200) FROM generate_series(1, 5000) i",
        )
        execute(connection, "CREATE TABLE empty (id int)")
    yield server.url
    server.stop()


def rows(session: ReadSession, part: CtidRange) -> list[int]:
    sql = f"SELECT id FROM {quoted(part.table)} WHERE ctid >= $1::tid AND ($2::tid IS NULL OR ctid < $2::tid)"
    return [row[0] for row in session.query(sql, (part.lower, part.upper))]


def test_every_row_stands_in_one_range_also_those_that_came_later(big: str) -> None:
    with ReadSession(big) as session, connect(big) as writer:
        parts = plan_ranges(session, [NAME, TableName("public", "empty")], 128 << 10)
        assert len(parts) > 5
        assert parts[-1] == CtidRange(TableName("public", "empty"), 0, None, parts[-1].filenode)
        execute(
            writer,
            f"INSERT INTO {quoted(NAME)} SELECT i, repeat('x', 200) FROM generate_series(5001, 6000) i",
        )
        found = [one for part in parts for one in rows(session, part)]
        assert sorted(found) == list(range(1, 6001))
        for part in parts:
            check_filenode(session, part)


def test_a_rewritten_table_is_noticed(big: str) -> None:
    with ReadSession(big) as session, connect(big) as writer:
        part = plan_ranges(session, [NAME], 128 << 10)[0]
        execute(writer, f"VACUUM FULL {quoted(NAME)}")
        with pytest.raises(HeadraceError, match="rewritten") as caught:
            check_filenode(session, part)
        assert caught.value.kind is Kind.CONTINUITY
        part = plan_ranges(session, [NAME], 128 << 10)[0]
        check_filenode(session, part)
        execute(writer, "CREATE TABLE gone (id int)")
        [gone] = plan_ranges(session, [TableName("public", "gone")], 1)
        execute(writer, "DROP TABLE gone")
        with pytest.raises(HeadraceError, match="dropped"):
            check_filenode(session, gone)


def test_what_has_no_file_is_refused(big: str) -> None:
    with ReadSession(big) as session, pytest.raises(HeadraceError) as caught:
        plan_ranges(session, [TableName("public", "absent")], 1)
    assert caught.value.kind is Kind.BINDING
