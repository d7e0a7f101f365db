"""How is a replication connection opened, and how do bytes of the stream go over it?

psycopg has no replication API, but its libpq layer carries the COPY_BOTH stream; TLS and everything else in
the connection string are libpq's own. Nothing here decodes.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import psycopg
from psycopg import pq

from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, format_lsn
from headrace.pgoutput import Frames
from headrace.postgres.address import address
from headrace.postgres.answer_timeout import AnswerTimeout
from headrace.postgres.connection import Connection, check_direct, open_connection, place
from headrace.postgres.password import Password
from headrace.postgres.quoting import identifier, replication_literal
from headrace.postgres.session import PINNED, WHO, pinning
from headrace.postgres.sqlstate_errors import no_room, refusal

SETTINGS = {
    **{name: value for name, value in PINNED.items() if name != "default_transaction_read_only"},
    "client_min_messages": "warning",
}
"""What is set on every session that the log is read with."""
_CANCEL_SECONDS = 5.0
_SLICE_SECONDS = 1.0
_NOT_THERE = "55000"


class ReplicationConnection:
    """One connection in replication mode: commands first, then a stream. Not for two threads at once.

    Values in the stream have the text form of reading sessions: the same settings are pinned, because the
    server renders a change's values with the settings of the connection that streams it.

    Raises:
        HeadraceError: CONNECTION, AUTHENTICATION, CONFIG; PRIVILEGE (no right to replicate); NO_FREE_SLOT
            (no walsender is free).
    """

    def __init__(
        self, url: str, application_name: str = "headrace", *, password: Password | None = None
    ) -> None:
        self.place = place(url)
        self._slot = ""
        self._streaming = False
        self._over = self._holes = False
        self._hole: str | None = None
        self._connection, self._silence = _connect(url, application_name, password)
        self._connection.add_notice_handler(self._hear)
        self._pgconn = self._connection.pgconn
        try:
            [(pid, mark)] = self.execute(WHO)
            check_direct(self._connection, int(pid or 0), url)
            self.server_mark = str(mark)
            for statement in pinning(SETTINGS):
                self.execute(statement)
        except HeadraceError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The server process that serves this connection."""
        return self._pgconn.backend_pid

    def fileno(self) -> int:
        """The socket, for select and poll.

        Raises:
            HeadraceError: CONNECTION, where it is closed.
        """
        try:
            return self._pgconn.socket
        except psycopg.OperationalError as error:
            raise self._lost(error) from error

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._connection.close()

    def execute(
        self,
        sql: str,
        *,
        slot: str = "",
        timeout: float | None = None,
        on_timeout: Callable[[], None] | None = None,
    ) -> list[tuple[str | None, ...]]:
        """Run one SQL or replication command; its rows as text.

        Args:
            sql: the command.
            slot: the slot that it is about, for messages.
            timeout: seconds; when they have passed the command is cancelled on the server.
            on_timeout: called then, before the cancelling, while the command still waits.

        Raises:
            HeadraceError: what the refusal means (`refusal`), or CONNECTION.
            TimeoutError: `timeout` has passed; the server has stopped the command.
        """
        self._slot = slot
        result = self._run(sql, timeout, on_timeout)
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise self._refused(result)
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
    ) -> None:
        """Begin the stream of `slot` at `lsn` (0: where the slot was confirmed).

        Args:
            slot: the slot.
            lsn: what is committed before it is left out.
            publications: their tables are sent.
            unfinished: a large transaction is sent in pieces while it runs (protocol version 2), in the
                place of behind its end (1).
            holes: what was changed while a publication did not exist may be left out, as PostgreSQL 18
                does; before, and without this, the stream ends there.

        Raises:
            HeadraceError: SLOT_UNKNOWN, SLOT_IN_USE, SLOT_LOST, PRIVILEGE, CONNECTION.
        """
        names = replication_literal(",".join(identifier(name) for name in publications))
        options = "proto_version '2', streaming 'on'" if unfinished else "proto_version '1'"
        self._slot = slot
        result = self._run(
            f"START_REPLICATION SLOT {identifier(slot)} LOGICAL {format_lsn(lsn)} "
            f"({options}, publication_names {names})"
        )
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._refused(result)
        self._streaming, self._holes = True, holes

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        """PostgreSQL 18 leaves out the changes that were made without the publication, and only warns."""
        if self._streaming and not self._holes and notice.sqlstate == _NOT_THERE:
            self._hole = " ".join(filter(None, (notice.message_primary, notice.message_detail)))

    def receive(self, into: Frames, size: int) -> int:
        """Append what has arrived of the stream, about `size` bytes at most, without waiting.

        Returns:
            how many bytes that is; 0 where nothing has arrived.

        Raises:
            HeadraceError: CONNECTION where the stream has ended; SLOT_LOST, PUBLICATION and others where
                the server says why. What came before is appended already.
        """
        connection, data, ends = self._pgconn, into.data, into.ends
        next_message, end = connection.get_copy_data, ends.append
        before = len(data)
        if self._over:
            raise self._ended()
        try:
            while len(data) - before < size:
                length, message = next_message(1)
                if self._hole is not None:
                    raise self._left_out(self._hole)
                if length > 0:
                    data += message
                    end(len(data))
                elif length < 0:
                    self._over = True
                    if len(data) == before:
                        raise self._ended()
                    break
                elif self._wait(0):
                    connection.consume_input()
                else:
                    break
        except psycopg.OperationalError as error:
            raise self._lost(error) from error
        return len(data) - before

    def wait(self, timeout: float) -> bool:
        """Whether something has arrived, within `timeout` seconds.

        Raises:
            HeadraceError: CONNECTION.
        """
        try:
            return self._wait(timeout)
        except psycopg.OperationalError as error:
            raise self._lost(error) from error

    def put_copy_data(self, data: bytes) -> None:
        """Send one message (feedback).

        Raises:
            HeadraceError: CONNECTION.
        """
        try:
            self._pgconn.put_copy_data(data)
            self._pgconn.flush()
        except psycopg.OperationalError as error:
            raise self._lost(error) from error

    def _run(
        self, sql: str, timeout: float | None = None, on_timeout: Callable[[], None] | None = None
    ) -> pq.abc.PGresult:
        deadline = None if timeout is None else time.monotonic() + timeout
        finished = False
        try:
            self._pgconn.send_query(sql.encode())
            if not self._await_result(deadline):
                if on_timeout is not None:
                    on_timeout()
                raise TimeoutError(f"no answer within {timeout} s")
            result = self._last_result(deadline)
            finished = True
        except psycopg.OperationalError as error:
            finished = True
            raise self._lost(error) from error
        finally:
            if not finished:  # a command left behind could still create a slot
                self._cancel()
        return result

    def _await_result(self, deadline: float | None) -> bool:
        """Whether the next result is here: libpq waits for one inside, with the interpreter's lock held."""
        silence = self._silence
        silence.begin()
        while self._pgconn.is_busy():
            left = _SLICE_SECONDS if deadline is None else deadline - time.monotonic()
            if self._wait(min(left, _SLICE_SECONDS)):
                self._pgconn.consume_input()
                silence.begin()
            elif left <= _SLICE_SECONDS and deadline is not None:
                return False
            else:
                silence.check()
        return True

    def _next_result(self, deadline: float | None = None) -> pq.abc.PGresult | None:
        if not self._await_result(deadline):
            raise HeadraceError(Kind.CONNECTION, f"{self.place} does not finish its answer")
        return self._pgconn.get_result()

    def _last_result(self, deadline: float | None) -> pq.abc.PGresult:
        last = self._next_result(deadline)
        if last is None:
            raise HeadraceError(Kind.CONNECTION, f"{self.place} gave no answer")
        streams = (pq.ExecStatus.COPY_BOTH, pq.ExecStatus.FATAL_ERROR)
        while last.status not in streams and (following := self._next_result(deadline)) is not None:
            last = following
        if last.status == pq.ExecStatus.FATAL_ERROR:
            while self._next_result(deadline) is not None:
                pass
        return last

    def _cancel(self) -> None:
        deadline = time.monotonic() + _CANCEL_SECONDS
        try:
            self._pgconn.get_cancel().cancel()
            while self._next_result(deadline) is not None:
                pass
        except (psycopg.OperationalError, HeadraceError):
            self.close()  # the connection is gone, and with it the command

    def _wait(self, timeout: float | None) -> bool:
        if timeout is not None and timeout < 0:
            timeout = 0
        poll = select.poll()
        poll.register(self._pgconn.socket, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _ended(self) -> HeadraceError:
        deadline = time.monotonic() + _CANCEL_SECONDS
        result = self._next_result(deadline)
        while result is not None and result.status == pq.ExecStatus.COPY_BOTH:
            result = self._next_result(deadline)
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return self._refused(result)
        return HeadraceError(Kind.CONNECTION, f"{self.place} ended the stream of the slot {self._slot!r}")

    def _left_out(self, said: str) -> HeadraceError:
        return refusal("42704", said, place=self.place, slot=self._slot, streaming=True)

    def _refused(self, result: pq.abc.PGresult) -> HeadraceError:
        state = _text(result.error_field(pq.DiagnosticField.SQLSTATE))
        parts = (pq.DiagnosticField.MESSAGE_PRIMARY, pq.DiagnosticField.MESSAGE_DETAIL)
        message = "; ".join(filter(None, (_text(result.error_field(part)) for part in parts)))
        return refusal(
            state,
            message or self._pgconn.get_error_message(),
            place=self.place,
            slot=self._slot,
            role=identifier(self._connection.info.user),
            streaming=self._streaming,
        )

    def _lost(self, error: psycopg.Error) -> HeadraceError:
        return refusal(None, str(error), place=self.place, slot=self._slot)


def replication_connection(
    url: str, application_name: str = "headrace", *, password: Password | None = None
) -> ReplicationConnection:
    """Open a replication connection to the database that `url` names.

    Raises:
        HeadraceError: as `ReplicationConnection`.
    """
    return ReplicationConnection(url, application_name, password=password)


def _connect(url: str, application_name: str, password: Password | None) -> tuple[Connection, AnswerTimeout]:
    try:
        connection = open_connection(url, application_name, password, {"replication": "database"})
    except HeadraceError as error:
        text = str(error.__cause__ or "").lower()
        if "max_wal_senders" in text:
            raise no_room(error.cause) from error
        if "wal sender" in text or "walsender" in text:
            role = address(url).parameters.get("user")
            named = identifier(role) if role else "the role"
            raise refusal("42501", error.cause, place=place(url), role=named) from error
        raise
    assert connection.silence is not None
    return connection, connection.silence


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
