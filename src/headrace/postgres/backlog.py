"""Read the WAL that waits for a slot faster than the server streams it.

A stream costs the server three system calls a message; a function's result set costs none. The functions that
read a slot either move it or begin at its confirmed position every time. So they read a temporary copy of the
slot: the copy may move ahead of what is applied, the slot itself may not. ADBC returns the result as Arrow
buffers, without an object for each row.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import adbc_driver_manager
import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, format_lsn
from headrace.postgres.calls import WatchedCalls
from headrace.postgres.connection import conninfo_for_adbc, conninfo_of, keepalives, place
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.replication import SETTINGS
from headrace.postgres.server_errors import sqlstate_error
from headrace.postgres.session import pinning

_BATCH_BYTES = 8 << 20
_FAILURES = (adbc_driver_manager.Error, pa.ArrowException, OSError)  # PyArrow raises OSError too
_WORK_MEMORY = "64MB"  # a larger result goes to a temporary file on the server


class BacklogReader:
    """Read a temporary copy of a slot in one session; not for two threads at once.

    Values have the text form of reading sessions, as on the replication connection.

    Raises:
        HeadraceError: CONNECTION, NO_FREE_SLOT (no slot is free for the copy), SLOT_LOST, SLOT_UNKNOWN,
            PRIVILEGE, DATABASE.
    """

    def __init__(
        self, url: str, slot: str, publications: Sequence[str], application_name: str = "headrace"
    ) -> None:
        self._place = place(url)
        self._slot = slot
        self._copy = f"headrace_copy_{secrets.token_hex(8)}"
        self._publications = ",".join(identifier(name) for name in publications)
        self._calls = WatchedCalls(lambda: conninfo_of(url, "headrace look"))
        try:
            conninfo = conninfo_for_adbc(url, application_name)
            self._connection = self._calls.run(lambda: adbc.connect(conninfo, autocommit=True))
        except (adbc_driver_manager.Error, psycopg.OperationalError) as error:
            self._calls.close()
            raise self._error_of(error) from error
        self._cursor = self._connection.cursor()
        try:
            [(pid,)] = self._run("SELECT pg_backend_pid()")
            self._calls.is_served_by(pid)
            for statement in pinning({**SETTINGS, **keepalives(url), "work_mem": _WORK_MEMORY}):
                self._run(statement)
            copy = f"pg_copy_logical_replication_slot({literal(slot)}, {literal(self._copy)}, true)"
            self._run(f"SELECT 1 FROM {copy}")  # noqa: S608 (quoted)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session, which drops the copy; idempotent."""
        for close in (self._cursor.close, self._connection.close):
            with suppress(adbc_driver_manager.Error, psycopg.OperationalError):
                self._calls.run(close)
        self._calls.close(self._cursor, self._connection)

    def cancel(self) -> None:
        """Cancel the read of another thread, which gets an error."""
        with suppress(adbc_driver_manager.Error):
            self._cursor.adbc_cancel()

    def skip(self, upto: Lsn) -> None:
        """Skip what is committed before `upto`; several times as fast as reading it.

        Raises:
            HeadraceError: as `read`.
        """
        copy, place = literal(self._copy), literal(format_lsn(upto))
        self._run(
            f"SELECT end_lsn::text FROM pg_replication_slots s, "  # noqa: S608 (quoted)
            f"LATERAL pg_replication_slot_advance(s.slot_name, {place}) "
            f"WHERE s.slot_name = {copy} AND s.confirmed_flush_lsn < {place}"
        )

    def read(self, upto: Lsn) -> Iterator[pa.BinaryArray]:
        """Yield the plugin's messages of all unread transactions committed up to about `upto`.

        Transactions are whole. The server collects all of them before it sends the first.

        Raises:
            HeadraceError: CONNECTION, SLOT_LOST, PUBLICATION, DATABASE.
        """
        options = f"'proto_version', '1', 'publication_names', {literal(self._publications)}"
        function = (
            f"pg_logical_slot_get_binary_changes({literal(self._copy)}, {literal(format_lsn(upto))}, NULL, "
            f"{options})"
        )
        try:
            self._cursor.adbc_statement.set_options(
                **{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)}
            )
            self._calls.run(
                lambda: self._cursor.execute(f"SELECT data FROM {function}")  # noqa: S608 (quoted)
            )
            batches = self._calls.run(lambda: iter(self._cursor.fetch_record_batch()))
            while (batch := self._calls.run(lambda: next(batches, None))) is not None:
                yield batch.column(0)
        except (*_FAILURES, psycopg.OperationalError) as error:
            raise self._error_of(error) from error

    def _run(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            return self._calls.run(lambda: self._query(sql))
        except (adbc_driver_manager.Error, psycopg.OperationalError) as error:
            raise self._error_of(error) from error

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        self._cursor.execute(sql)
        return self._cursor.fetchall() if self._cursor.description is not None else []

    def _error_of(self, error: Exception) -> HeadraceError:
        state, text = getattr(error, "sqlstate", None), " ".join(str(error).split())
        if state is None and not self._calls.lost and self._is_alive():
            return HeadraceError(
                Kind.INTERNAL, f"the backlog of the slot {self._slot!r} cannot be read: {text}"
            )
        return sqlstate_error(state, text, place=self._place, slot=self._slot)

    def _is_alive(self) -> bool:
        """Return whether the server still answers on this connection."""
        try:
            return self._calls.run(self._ping)
        except (adbc_driver_manager.Error, psycopg.OperationalError):
            return False
        except AttributeError:  # there is no connection yet
            return False

    def _ping(self) -> bool:
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return cursor.fetchone() is not None
