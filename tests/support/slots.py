"""Slots: prepared as a source prepares them, lost, and dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.embedded.processes import until
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.provision import prepare_slot
from headrace.postgres.publication_filters import PublicationRequirements, Selections
from headrace.postgres.slot import drop_slot


def ensure_slot(
    url: str,
    *,
    slot: str,
    publication: str,
    tables: Sequence[TableName],
    create: bool,
    selections: Selections | None = None,
) -> Lsn:
    """Prepare a slot, with only `selections` required; return its confirmed position."""
    return prepare_slot(
        url,
        slot=slot,
        publication=publication,
        tables=tables,
        create=create,
        requirements={
            table: PublicationRequirements(selection=selection)
            for table, selection in (selections or {}).items()
        },
    ).confirmed


@contextmanager
def prepared_database(url: str, *statements: str) -> Iterator[str]:
    """Prepare a database by statements, each in a transaction of its own, and drop its slots at the end."""
    with connect(url) as connection:
        for statement in statements:
            execute(connection, statement)
    yield url
    drop_slots(url)


def drop_slots(url: str) -> None:
    """Drop every slot of a database, also of a killed reader that PostgreSQL has not noticed yet."""
    with connect(url) as connection:
        for (slot,) in execute(connection, _OF_DATABASE):
            drop_slot(connection, slot, timeout=60)


def await_free(url: str, slot: str) -> None:
    """Wait until nobody reads a slot: a reader that has ended lets go of it a moment later."""
    with connect(url) as connection:
        assert until(lambda: not execute(connection, _READ, (slot,)), 60)


_READ = "SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active"
_OF_DATABASE = "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()"

KEEPS_LITTLE = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
"""Settings of a server that soon removes the log of a slot."""


def lose_slots(url: str) -> None:
    """Write so much on a server that keeps little that its slots are lost."""
    with connect(url) as connection:
        execute(connection, "CREATE TABLE t (id int)")
        for _ in range(4):
            execute(connection, "INSERT INTO t SELECT generate_series(1, 1000)")
            execute(connection, "SELECT pg_switch_wal()")
        execute(connection, "CHECKPOINT")
