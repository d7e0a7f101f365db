"""Export a snapshot that several sessions can read from.

Only the creation of a slot tells the exact position in the log of a snapshot. The transaction ids that a
snapshot sees (`pg_current_snapshot()`) are not enough: those of a standby do not show the primary's open
transactions.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from headrace.model.lsn import Lsn
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import create_slot

_LONGEST_NAME = 63


@contextmanager
def exported_snapshot(url: str) -> Iterator[str]:
    """Hold a snapshot of the database while the block runs; yield its id.

    Everything that it sees is flushed to the server's disk. The server keeps every row version that the
    snapshot sees, so do not hold it for longer than the reading.

    Args:
        url: the database, in any form that the `url` option takes.

    Raises:
        HeadraceError: the errors of `ReadSession`.
    """
    with ReadSession(url) as session:
        session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        [(snapshot,)] = session.query("SELECT pg_export_snapshot()")
        with ReadSession(url) as another:
            # A commit with synchronous_commit=off may be visible, and undone by a crash of the server.
            another.await_flush()
        yield str(snapshot)


@contextmanager
def positioned_snapshot(url: str, slot: str, time_limit: float = 60.0) -> Iterator[tuple[Lsn, str]]:
    """Hold a snapshot with a known position in the log while the block runs; yield position and id.

    The snapshot sees exactly what committed before that position (bytes). Both come from a temporary slot; a
    session takes over its snapshot, and the slot is dropped before the block begins.

    Args:
        url: the database.
        slot: the slot that is to be read; the temporary slot's name begins like it.
        time_limit: how long to wait for open transactions (seconds).

    Raises:
        HeadraceError: the errors of `create_slot` and `ReadSession`.
    """
    mark = f"_rows_{secrets.token_hex(4)}"
    name = f"{slot[: _LONGEST_NAME - len(mark)]}{mark}"
    with ExitStack() as held:
        with create_slot(url, name, time_limit=time_limit, temporary=True) as created:
            # Imported before the slot's connection does anything else, which ends the export.
            session = held.enter_context(ReadSession(url, snapshot=created.snapshot_name))
            created.drop()
        [(snapshot,)] = session.query("SELECT pg_export_snapshot()")
        yield created.consistent_point, str(snapshot)
