"""Open replication connections, and read and write the bytes of the stream.

psycopg has no replication API, but its libpq layer carries the COPY_BOTH stream. TLS and everything else in
the connection string are handled by libpq. This module decodes nothing.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import psycopg
from psycopg import generators, pq

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn, format_lsn
from headrace.postgres.address import parse_address
from headrace.postgres.answer_timeout import WatchedConnection, checked
from headrace.postgres.connection import PINNED, Closeable, open_connection, place
from headrace.postgres.error_classes import ErrorClass, classify
from headrace.postgres.quoting import identifier, replication_literal
from headrace.postgres.server_errors import no_free_slot, sqlstate_error, whole_message

if TYPE_CHECKING:  # the commands that read no stream start sooner without it
    from headrace.pgoutput.frames import Frames

SETTINGS = {
    **{name: value for name, value in PINNED.items() if name != "default_transaction_read_only"},
    # A role may have `error` here: the warning of a missing publication must come.
    "client_min_messages": "warning",
}
"""The settings of every session that reads the log."""
_CANCEL_SECONDS = 5.0
_OBJECT_NOT_IN_PREREQUISITE_STATE = "55000"


class ReplicationConnection(Closeable):
    """A connection in replication mode: commands first, then a stream. Not for two threads at once.

    Values in the stream have the text form of reading sessions: the same settings are pinned, because the
    server renders a change's values with the settings of the connection that streams it.

    Raises:
        HeadraceError: CONNECTION, AUTHENTICATION, CONFIG; PRIVILEGE (no right to replicate); NO_FREE_SLOT (no
            walsender is free).
    """

    def __init__(self, url: str, application_name: str = "headrace") -> None:
        self.place = place(url)
        self._slot = ""
        self._streaming = False
        self._skips_missing = False
        self._end: HeadraceError | None = None
        # A notice handler must not raise: libpq is in the middle of a message.
        self._missing_publication: str | None = None
        self._connection = _connect(url, application_name)
        self.server_mark = self._connection.server_mark
        self._connection.add_notice_handler(self._on_notice)
        self._pgconn = self._connection.pgconn

    @property
    def pid(self) -> int:
        """The server process that serves this connection."""
        return self._pgconn.backend_pid

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._connection.close()

    def execute(
        self,
        sql: str,
        *,
        slot: str = "",
        timeout: float | None = None,
        on_timeout: Callable[[], None] = lambda: None,
    ) -> list[tuple[str | None, ...]]:
        """Run one SQL or replication command and return its rows as text.

        Args:
            sql: the command.
            slot: the slot that the command is about, for messages.
            timeout: seconds; when they have passed the command is cancelled on the server.
            on_timeout: called at the timeout, before the command is cancelled, while it still waits.

        Raises:
            HeadraceError: as `sqlstate_error` decides, or CONNECTION.
            TimeoutError: `timeout` has passed; the server has stopped the command.
        """
        self._slot = slot
        result = self._run(sql, timeout, on_timeout)
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise self._error_of(result)
        return [
            tuple(_text(result.get_value(row, column)) for column in range(result.nfields))
            for row in range(result.ntuples)
        ]

    def start(
        self,
        slot: str,
        lsn: Lsn,
        publications: Sequence[str],
        *,
        unfinished: bool = False,
        holes: bool = False,
        messages: bool = False,
    ) -> None:
        """Start the stream of `slot` at `lsn` (0: where the slot was confirmed).

        Args:
            slot: the slot.
            lsn: transactions that are committed before it are left out.
            publications: the publications whose tables are sent.
            unfinished: whether a large transaction is streamed while it runs (protocol version 2), and not
                only after its end (version 1).
            holes: whether changes that were made while a publication did not exist may be left out, as
                PostgreSQL 18 does. Without this, and before 18, the stream ends at them.
            messages: whether what was written with `pg_logical_emit_message` is sent, of every prefix.

        Raises:
            HeadraceError: SLOT_UNKNOWN, SLOT_IN_USE, SLOT_LOST, PRIVILEGE, CONNECTION.
        """
        names = replication_literal(",".join(identifier(name) for name in publications))
        # Version 1 is all that is needed without streaming; 2 is known from PostgreSQL 14 on.
        options = "proto_version '2', streaming 'on'" if unfinished else "proto_version '1'"
        if messages:
            options += ", messages 'true'"
        self._slot = slot
        result = self._run(
            f"START_REPLICATION SLOT {identifier(slot)} LOGICAL {format_lsn(lsn)} "
            f"({options}, publication_names {names})"
        )
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._error_of(result)
        self._streaming, self._skips_missing = True, holes

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        """Note the warning with which PostgreSQL 18 leaves out changes made without the publication."""
        if not self._streaming or self._skips_missing or notice.sqlstate != _OBJECT_NOT_IN_PREREQUISITE_STATE:
            return
        text = " ".join(filter(None, (notice.message_primary, notice.message_detail)))
        # With the same state the server says that it waits for a standby.
        if classify(notice.sqlstate, text) is ErrorClass.REFUSED:
            self._missing_publication = text

    def receive(self, into: Frames, size: int) -> int:
        """Append what has arrived of the stream, about `size` bytes at most, without waiting.

        Returns:
            how many bytes were appended; 0 where nothing has arrived.

        Raises:
            HeadraceError: CONNECTION where the stream has ended; SLOT_LOST, PUBLICATION and others where the
                server says why. Earlier data is appended already, and returned first.
        """
        connection, data, ends = self._pgconn, into.data, into.ends
        next_message, end = connection.get_copy_data, ends.append
        before = len(data)
        self._raise_end()
        try:
            while len(data) - before < size:
                # 1: do not wait. libpq's own wait would hold the interpreter's lock.
                length, message = next_message(1)
                if self._missing_publication is not None:
                    missing = self._missing_publication
                    raise sqlstate_error("42704", missing, place=self.place, slot=self._slot, streaming=True)
                if length > 0:
                    data += message
                    end(len(data))
                elif length < 0:
                    # Raised by the next call: what came before the end is handed on first.
                    self._end = self._end_error()
                    break
                elif self.wait(0):
                    connection.consume_input()
                else:
                    break
        except psycopg.OperationalError as error:
            raise self._connection_lost(error) from error
        if len(data) == before:
            self._raise_end()
        return len(data) - before

    def wait(self, timeout: float) -> bool:
        """Wait until something has arrived, at most `timeout` seconds; return whether it has.

        Raises:
            HeadraceError: CONNECTION.
        """
        try:
            # Not `select`: a process with more than 1024 open files has descriptors that it cannot take.
            poll = select.poll()
            poll.register(self._pgconn.socket, select.POLLIN)
            return bool(poll.poll(timeout * 1000))
        except psycopg.OperationalError as error:
            raise self._connection_lost(error) from error

    def put_copy_data(self, data: bytes) -> None:
        """Send one message (feedback).

        Raises:
            HeadraceError: CONNECTION; where the stream has ended, the error that it ended with.
        """
        self._raise_end()  # libpq would only say that nothing is copied any more
        try:
            self._pgconn.put_copy_data(data)
            # A status is a few bytes, which fit into the socket's buffer.
            self._pgconn.flush()
        except psycopg.OperationalError as error:
            raise self._connection_lost(error) from error

    def _run(
        self, sql: str, timeout: float | None = None, on_timeout: Callable[[], None] = lambda: None
    ) -> pq.abc.PGresult:
        deadline = math.inf if timeout is None else time.monotonic() + timeout

        def check() -> None:
            if time.monotonic() > deadline:
                on_timeout()
                raise TimeoutError(f"no answer within {timeout} s")

        try:
            self._pgconn.send_query(sql.encode())
            results: list[pq.abc.PGresult] = self._connection.wait(
                checked(generators.execute(self._pgconn), check)
            )
        except psycopg.OperationalError as error:
            raise self._connection_lost(error) from error
        except BaseException:
            self._cancel()  # an abandoned command could still create a slot
            raise
        if not results:
            raise HeadraceError(Kind.CONNECTION, f"{self.place} gave no answer")
        # A statement list has a result for each statement; the last one is its answer.
        return results[-1]

    def _cancel(self) -> None:
        try:
            # CREATE_REPLICATION_SLOT may wait for hours for open transactions; closing the socket does not
            # end it.
            self._connection.cancel_safe(timeout=_CANCEL_SECONDS)
            self._connection.wait(generators.fetch_many(self._pgconn))
        except psycopg.Error:
            self.close()  # the connection is gone, and with it the command

    def _raise_end(self) -> None:
        if self._end is not None:
            raise self._end

    def _end_error(self) -> HeadraceError:
        for result in self._connection.wait(generators.fetch_many(self._pgconn)):
            if result.status == pq.ExecStatus.FATAL_ERROR:
                return self._error_of(result)
        return HeadraceError(Kind.CONNECTION, f"{self.place} ended the stream of the slot {self._slot!r}")

    def _error_of(self, result: pq.abc.PGresult) -> HeadraceError:
        error = psycopg.errors.error_from_result(result)
        return sqlstate_error(
            error.diag.sqlstate,
            whole_message(error),
            place=self.place,
            slot=self._slot,
            role=identifier(self._connection.info.user),
            streaming=self._streaming,
            context=error.diag.context or "",
        )

    def _connection_lost(self, error: psycopg.Error) -> HeadraceError:
        return sqlstate_error(None, str(error), place=self.place, slot=self._slot)


def _connect(url: str, application_name: str) -> WatchedConnection:
    try:
        return open_connection(
            url, application_name, parameters={"replication": "database"}, settings=SETTINGS
        )
    except HeadraceError as error:
        text = str(error.__cause__ or "").lower()
        # A refused connection has no SQLSTATE in libpq, only a text.
        if "max_wal_senders" in text:
            raise no_free_slot(error.cause) from error
        if "wal sender" in text or "walsender" in text:
            role = parse_address(url).parameters.get("user")
            named = identifier(role) if role else "the role"
            raise sqlstate_error("42501", error.cause, place=place(url), role=named) from error
        raise


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
