"""Read the WAL that waits for a slot faster than the server streams it.

A stream costs the server three system calls a message; a function's result set costs none. The functions that
read a slot either move it or begin at its confirmed position every time. So they read a temporary copy of the
slot: the copy may move ahead of what is applied, the slot itself may not. A COPY carries the result.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import psycopg

from headrace.errors import HeadraceError
from headrace.model.lsn import Lsn, format_lsn
from headrace.pgoutput.batch import MessageBatch
from headrace.postgres.connection import Closeable, execute, open_connection, place
from headrace.postgres.copying import copy_rows
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.replication import SETTINGS
from headrace.postgres.server_errors import sqlstate_error, whole_message

_BATCH_BYTES = 8 << 20
_FIELD = 6  # bytes before the only field of a row: the number of fields, and its size
_WORK_MEMORY = "64MB"  # a larger result goes to a temporary file on the server


class BacklogReader(Closeable):
    """Read a temporary copy of a slot in one session; not for two threads at once.

    Values have the text form of reading sessions, as on the replication connection. With `messages` it also
    reads what was written with `pg_logical_emit_message`.

    Attributes:
        server_mark: as of `WatchedConnection`.

    Raises:
        HeadraceError: what `connect` raises; NO_FREE_SLOT (no slot is free for the copy), SLOT_LOST,
            SLOT_UNKNOWN, PRIVILEGE, DATABASE.
    """

    def __init__(
        self,
        url: str,
        slot: str,
        publications: Sequence[str],
        application_name: str = "headrace",
        *,
        messages: bool = False,
    ) -> None:
        self._copy = f"headrace_copy_{secrets.token_hex(8)}"
        names = ",".join(identifier(name) for name in publications)
        # Version 1: the functions send a transaction only when it has ended.
        self._options = f"'proto_version', '1', 'publication_names', {literal(names)}"
        if messages:
            self._options += ", 'messages', 'true'"
        self._place, self._slot = place(url), slot
        self._connection = open_connection(
            url, application_name, settings={**SETTINGS, "work_mem": _WORK_MEMORY}
        )
        self.server_mark = self._connection.server_mark
        # Temporary: the copy ends with the session, also where this process is killed.
        copy = f"pg_copy_logical_replication_slot({literal(slot)}, {literal(self._copy)}, true)"
        try:
            self._query(f"SELECT 1 FROM {copy}")  # noqa: S608 (quoted)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the session, which drops the copy; idempotent."""
        self._connection.close()

    def cancel(self) -> None:
        """Cancel the read of another thread, which gets an error."""
        self._connection.cancel_statement()

    def skip(self, upto: Lsn) -> None:
        """Skip what is committed before `upto`; several times as fast as reading it.

        Raises:
            HeadraceError: as `read`.
        """
        copy, position = literal(self._copy), literal(format_lsn(upto))
        self._query(
            f"SELECT end_lsn::text FROM pg_replication_slots s, "  # noqa: S608 (quoted)
            f"LATERAL pg_replication_slot_advance(s.slot_name, {position}) "
            f"WHERE s.slot_name = {copy} AND s.confirmed_flush_lsn < {position}"
        )

    def read(self, upto: Lsn) -> Iterator[MessageBatch]:
        """Yield the plugin's messages of all unread transactions committed up to about `upto`.

        Transactions are whole. The server collects all of them before it sends the first.

        Raises:
            HeadraceError: CONNECTION, SLOT_LOST, PUBLICATION, DATABASE.
        """
        function = (
            f"pg_logical_slot_get_binary_changes({literal(self._copy)}, {literal(format_lsn(upto))}, NULL, "
            f"{self._options})"
        )
        try:
            for rows in copy_rows(self._connection, f"SELECT data FROM {function}", _BATCH_BYTES):  # noqa: S608
                # No copy of the messages: the batch only leaves out what COPY put before each.
                yield MessageBatch(rows.data, rows.begin + _FIELD, rows.end)
        except psycopg.Error as error:
            raise self._error(error) from error

    def _query(self, sql: str) -> None:
        try:
            execute(self._connection, sql)
        except psycopg.Error as error:
            raise self._error(error) from error

    def _error(self, error: psycopg.Error) -> HeadraceError:
        return sqlstate_error(error.sqlstate, whole_message(error), place=self._place, slot=self._slot)
