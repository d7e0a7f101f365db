"""Read the fingerprint of the catalog at one moment: what documents depend on there."""

from __future__ import annotations

from headrace.catalog.fingerprint import Fingerprint, table_print
from headrace.catalog.usage import Usage
from headrace.model.names import TableName, name_arrays
from headrace.postgres.publication import PARTS_SINCE
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql


def read_fingerprint(session: ReadSession, usage: Usage, publication: str) -> Fingerprint:
    """Read what `usage` depends on now.

    The query runs before and after the log's position is read, until both results are the same.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    before = read_once(session, usage, publication)
    while True:
        [(position,)] = session.query(POSITION)
        # Same before and after the position was read: so it held at that position.
        after = read_once(session, usage, publication)
        if after == before:
            return Fingerprint(after.tables, after.publication, int(position), before.ended)
        before = after


def read_once(
    session: ReadSession, usage: Usage, publication: str, *, with_expressions: bool = True
) -> Fingerprint:
    """Read what `usage` depends on now, without a position of the log.

    Args:
        session: of the database.
        usage: the tables and columns.
        publication: what publishes them.
        with_expressions: whether `inside` has the expressions of generated columns: the server shows one only
            while nobody has locked its table. `versions` tells without a lock that one was altered.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    names = sorted(usage)
    columns = [(name, column) for name in names for column in sorted(usage[name])]
    # Before the rest: what ends meanwhile counts as not ended, which is on the safe side.
    [(ended,)] = session.query(_BEFORE)
    sql = _TABLES.replace("/*schemas*/", _SCHEMA_MEMBERS if session.server_version >= PARTS_SINCE else "")
    tables_of_columns, names_of_columns = [name for name, _ in columns], [column for _, column in columns]
    arrays = (*name_arrays(names), *name_arrays(tables_of_columns), names_of_columns)
    rows = session.query(sql, (*arrays, publication, with_expressions))
    publications = session.query(_PUBLICATION, (publication,))
    return Fingerprint(
        {TableName(schema, name): table_print(table) for schema, name, table in rows},
        tuple(publications[0]) if publications else None,
        ended=int(ended),
    )


POSITION = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END
        - '0/0')::bigint
"""
"""Reads a position in the log (bytes) after all that was seen before."""

_BEFORE = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"

_PUBLICATION = read_sql(__package__, "publication_fingerprint")

_SCHEMA_MEMBERS = """
    UNION ALL
    SELECT s.oid::bigint, NULL, false, s.xmin::text::bigint
    FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
    WHERE p.pubname = $6 AND s.pnnspid IN (SELECT i.relnamespace FROM tree t JOIN pg_class i ON i.oid = t.oid
                                           WHERE t.root = r.oid)
"""

_TABLES = read_sql(__package__, "table_fingerprints")
