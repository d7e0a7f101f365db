"""How do several sessions read one moment of the database? By a snapshot that one of them holds for all.

Only who makes a slot learns which place in the log a snapshot fits exactly. Numbers of transactions that a
snapshot sees (`pg_current_snapshot()`) would not do: a standby's know nothing of what is open on the primary.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.model import Lsn
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import create_slot

_LONGEST_NAME = 63


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


@contextmanager
def positioned_snapshot(url: str, slot: str) -> Iterator[tuple[Lsn, str]]:
    """Hold a snapshot that fits a place in the log, for as long as the block runs; gives both.

    The snapshot sees all that is committed before that place (bytes) and nothing else. A temporary slot
    says so; a session takes its snapshot over, and the slot is gone before the block begins.

    Args:
        url: the database.
        slot: whose reader asks; the temporary one has a name like it.

    Raises:
        HeadraceError: what `create_slot` and a `ReadSession` raise.
    """
    mark = f"_rows_{secrets.token_hex(4)}"
    name = f"{slot[: _LONGEST_NAME - len(mark)]}{mark}"
    with create_slot(url, name, temporary=True) as made:
        session = ReadSession(url, snapshot=made.snapshot_name)
    with session:
        [(snapshot,)] = session.query("SELECT pg_export_snapshot()")
        yield made.consistent_point, str(snapshot)
