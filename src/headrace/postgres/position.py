"""Find the position in the log behind every commit that can be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from headrace.model import Lsn
from headrace.postgres.connection import Connection, execute
from headrace.postgres.session import database_error

_ENDS = """
SELECT CASE WHEN pg_is_in_recovery() THEN (pg_last_wal_replay_lsn() - '0/0')::bigint
            ELSE (pg_current_wal_insert_lsn() - '0/0')::bigint END,
       NOT pg_is_in_recovery() AND pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()
"""
_EMPTY_TRANSACTION = "SELECT pg_current_xact_id()"

Query = Callable[[str], list[tuple[Any, ...]]]
"""Run a statement in a transaction of its own and return its rows."""


def end_of_commits(query: Query) -> Lsn:
    """Return a position (bytes) behind every visible commit, which readers of the log soon reach.

    On a standby, this is the replayed position. On a primary the end of the log may be on disk in part: up to
    the end of a page, in the middle of a record. Readers then stop at the beginning of that record until
    another session commits. So an empty transaction is committed; the WAL writer flushes it within three of
    its rounds (`wal_writer_delay`, 0.2 s each).

    Raises:
        what `query` does.
    """
    [(end, is_unfinished)] = query(_ENDS)
    if is_unfinished:
        query(_EMPTY_TRANSACTION)
    return int(end)


def query_of(connection: Connection) -> Query:
    """Return a function that runs statements on `connection`, each in a transaction of its own.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """

    def query(sql: str) -> list[tuple[Any, ...]]:
        try:
            return execute(connection, sql)
        except psycopg.Error as error:
            raise database_error(error, connection.info.dsn) from error

    return query
