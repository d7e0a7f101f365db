"""How do several sessions read one moment of the database? By a snapshot that one of them holds for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.postgres.session import ReadSession


@contextmanager
def exported_snapshot(url: str) -> Iterator[str]:
    """Hold a snapshot of the database for as long as the block runs; gives its id.

    All that it sees is on the server's disk.

    The server keeps every row version that the snapshot sees: do not hold it for longer than the reading.

    Args:
        url: the database, in any form that the `url` option takes.

    Raises:
        HeadraceError: what a `ReadSession` raises.
    """
    with ReadSession(url) as session:
        session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        [(snapshot,)] = session.query("SELECT pg_export_snapshot()")
        with ReadSession(url) as another:
            another.await_flush()
        yield str(snapshot)
