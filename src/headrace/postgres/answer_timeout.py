"""Wait for an answer as long as the server works on it, and no longer.

A statement may run for hours. A proxy between the client and the server may keep a connection open and
forward nothing. Both are silent, and TCP detects neither. So after some silence the server is asked, over a
new connection, what its process does.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.pq import ConnStatus

from headrace.errors import HeadraceError

SILENCE_SECONDS = 30.0
_RECHECK_SECONDS = 5.0  # what the server sent just before it was asked has arrived by then
_QUERY_SECONDS = 10.0
_CANCEL_SECONDS = 5.0
_FATAL = "FATAL:"

# `disabled` is the state where track_activities is off: nothing tells then that the server is idle.
_STATE = """
SELECT state IN ('active', 'disabled') AND coalesce(wait_event, '') NOT IN ('ClientRead', 'ClientWrite')
FROM pg_stat_activity WHERE pid = %(pid)s
"""

_Result = TypeVar("_Result")


class AnswerTimeout:
    """Decide when to give up waiting for one server process. Used from one thread.

    Args:
        conninfo: returns the connection string for the check; called each time, as a password may have
            changed.
        pid: the server process.
    """

    def __init__(self, conninfo: Callable[[], str], pid: int) -> None:
        self._conninfo = conninfo
        self._pid = pid
        self._doubts = 0
        self._check_at = 0.0

    def begin(self) -> None:
        """Restart the clock: data has arrived, or a wait begins."""
        self._doubts = 0
        self._check_at = time.monotonic() + SILENCE_SECONDS

    def check(self) -> None:
        """Check a silent connection; ask the server now and then what its process does.

        Raises:
            psycopg.OperationalError: no answer can come any more.
        """
        if time.monotonic() < self._check_at:
            return
        try:
            is_working = self._is_working()
        except HeadraceError:
            is_working = None  # no password to ask with: that says nothing of the server
        except psycopg.Error as error:
            is_working = _FATAL in str(error)  # the server is there, and has no free connection
        # Twice: an answer may have been sent between the question and the look, and a question may be lost.
        if is_working is not None:
            self._doubts = 0 if is_working else self._doubts + 1
        if self._doubts > 1:
            raise psycopg.OperationalError(
                "the server does not work on the statement, and its answer has not come: the connection is "
                "open and forwards nothing"
            )
        self._check_at = time.monotonic() + (_RECHECK_SECONDS if self._doubts else SILENCE_SECONDS)

    def _is_working(self) -> bool:
        with _ShortWaitConnection.connect(self._conninfo(), autocommit=True) as connection:
            found = connection.execute(_STATE, {"pid": self._pid}).fetchone()
        return found is not None and bool(found[0])


class _ShortWaitConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits a few seconds for an answer."""

    def wait(self, gen: Any, *args: Any, **named: Any) -> Any:
        deadline = time.monotonic() + _QUERY_SECONDS

        def check() -> None:
            if time.monotonic() > deadline:
                raise psycopg.OperationalError(f"no answer within {_QUERY_SECONDS:.0f} s")

        return super().wait(checked(gen, check), *args, **named)


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits for an answer only as long as the server works on it.

    Attributes:
        silence: decides when to give up; None, until the session has begun: it waits for ever.
        server_mark: when the server was started (s since 1970, as text): equal for all connections to one run
            of one server, and for no others.
    """

    silence: AnswerTimeout | None = None
    server_mark: str = ""

    def cancel_statement(self) -> None:
        """Cancel the statement that another thread waits for, which gets an error; do nothing without one."""
        with suppress(psycopg.Error):
            # The other way to cancel holds the interpreter's lock until the server answers.
            self.cancel_safe(timeout=_CANCEL_SECONDS)

    def wait(self, gen: Any, *args: Any, **named: Any) -> Any:
        """Wait as psycopg does, but break a connection on which no answer can come any more.

        Also one that an error leaves in the middle of a statement: it takes no other, and psycopg does not
        count it as broken.
        """
        lost: list[psycopg.OperationalError] = []
        if (silence := self.silence) is not None:

            def check() -> None:
                try:
                    silence.check()
                except psycopg.OperationalError as error:
                    # An error from here would leave libpq in the middle of a message.
                    lost.append(error)
                    hang_up(self.pgconn.socket)  # libpq sees the end of the stream, and cleans up

            silence.begin()
            gen = checked(gen, check, silence.begin)
        try:
            return super().wait(gen, *args, **named)
        except psycopg.OperationalError as error:
            if lost or error.sqlstate is None:  # not an answer of the server
                self._break()
            if lost:
                raise lost[0] from None
            raise

    def _break(self) -> None:
        """Let libpq find the end of the stream, as where the server has gone."""
        with suppress(psycopg.OperationalError):  # it has been found
            hang_up(self.pgconn.socket)
            while self.pgconn.status != ConnStatus.BAD:
                self.pgconn.consume_input()


def hang_up(descriptor: int) -> None:
    """Shut a socket's connection down for its reader; the descriptor stays its owner's."""
    # A socket object closes its descriptor at the end: it gets one of its own.
    with socket.socket(fileno=os.dup(descriptor)) as shared, suppress(OSError):
        shared.shutdown(socket.SHUT_RDWR)


def checked(
    gen: Generator[Any, Any, _Result], check: Callable[[], None], on_data: Callable[[], None] = lambda: None
) -> Generator[Any, Any, _Result]:
    """Run the generator `gen` of psycopg; call `check` while nothing is ready, else `on_data`."""
    try:
        wait_for = next(gen)
        while True:
            ready = yield wait_for
            if ready:
                on_data()
            else:
                check()
            wait_for = gen.send(ready)
    except StopIteration as done:
        result: _Result = done.value
        return result
