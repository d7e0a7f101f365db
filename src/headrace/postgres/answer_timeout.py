"""How long is an answer waited for? As long as the server works on it, and no longer.

A statement may run for hours, and a box between us and the server may keep a connection open that it
forwards nothing of any more: both are silent, and TCP finds nothing wrong with either. So after some silence
the server is asked, over a new connection, what its process does.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from headrace.errors import HeadraceError

SILENCE_SECONDS = 30.0
_UNKNOWN_SECONDS = 120.0  # ADBC reads all types of the database before a statement of ours
_AGAIN_SECONDS = 5.0  # what the server had sent a moment before it was asked is here by then
_ANSWER_SECONDS = 10.0
_MOST_FAILURES = 2
_FATAL = "FATAL:"

_STATE = """
SELECT state IN ('active', 'disabled') AND coalesce(wait_event, '') <> 'ClientRead'
       AND (%(writes)s OR coalesce(wait_event, '') <> 'ClientWrite')
FROM pg_stat_activity WHERE pid = %(pid)s
"""

_Result = TypeVar("_Result")


class AnswerTimeout:
    """Judges the silence of one server process; used from one thread.

    Args:
        conninfo: asked for the string with which to ask; a password may have changed.
        write_seconds: for so long a server that waits until we take more is at work: where only the end of a
            call is heard, and not what comes meanwhile.

    Attributes:
        pid: the process; None: not known yet, and then any long silence is too long.
    """

    def __init__(self, conninfo: Callable[[], str], write_seconds: float = 0.0) -> None:
        self._conninfo = conninfo
        self._write_seconds = write_seconds
        self._idle = self._failures = 0
        self._begun = self._next = 0.0
        self.pid: int | None = None

    def begin(self) -> None:
        """Something was heard, or is waited for from now on."""
        self._idle = self._failures = 0
        self._begun = time.monotonic()
        self._next = self._begun + SILENCE_SECONDS

    def check(self) -> None:
        """While nothing is heard: whether to wait on; asks the server now and then.

        Raises:
            psycopg.OperationalError: no answer can come any more.
        """
        now = time.monotonic()
        if self.pid is None and now > self._begun + _UNKNOWN_SECONDS:
            raise psycopg.OperationalError(f"no answer within {_UNKNOWN_SECONDS:.0f} s")
        if self.pid is None or now < self._next:
            return
        try:
            works = self._works()
        except (psycopg.Error, HeadraceError) as error:
            if _FATAL in str(error):  # it is there, and has no room for a question
                works = True
            else:
                self._failures += 1
                works = self._failures < _MOST_FAILURES
        else:
            self._failures = 0
        self._idle = 0 if works else self._idle + 1
        if self._idle > 1 or self._failures >= _MOST_FAILURES:
            raise psycopg.OperationalError(
                "the server does not work on the statement, and its answer has not come: the connection is "
                "open and forwards nothing"
            )
        self._next = time.monotonic() + (_AGAIN_SECONDS if self._idle else SILENCE_SECONDS)

    def _works(self) -> bool:
        with _Short.connect(self._conninfo(), autocommit=True) as connection:
            writes = time.monotonic() < self._begun + self._write_seconds
            found = connection.execute(_STATE, {"pid": self.pid, "writes": writes}).fetchone()
        return found is not None and bool(found[0])


class _Short(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does not wait long."""

    def wait(self, gen: Any, *args: Any, **named: Any) -> Any:
        deadline = time.monotonic() + _ANSWER_SECONDS

        def check() -> None:
            if time.monotonic() > deadline:
                raise psycopg.OperationalError(f"no answer within {_ANSWER_SECONDS:.0f} s")

        return super().wait(_checked(gen, check, lambda: None), *args, **named)


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits for an answer only as long as the server works on it.

    Attributes:
        silence: judges it; None: it waits for ever.
    """

    silence: AnswerTimeout | None = None

    def wait(self, gen: Any, *args: Any, **named: Any) -> Any:
        """As psycopg's; a connection that nothing can come from any more is broken behind it."""
        silence = self.silence
        if silence is None:
            return super().wait(gen, *args, **named)
        silence.begin()
        lost: list[psycopg.OperationalError] = []

        def check() -> None:
            try:
                silence.check()
            except psycopg.OperationalError as error:
                lost.append(error)
                hang_up(self.pgconn.socket)  # libpq finds the end of the stream, and tidies up

        try:
            return super().wait(_checked(gen, check, silence.begin), *args, **named)
        except psycopg.OperationalError:
            if lost:
                raise lost[0] from None
            raise

    def is_served_by(self, pid: int) -> None:
        """Judge silence by what the process `pid` does."""
        if self.silence is not None:
            self.silence.pid = pid


def hang_up(descriptor: int) -> None:
    """End a socket's connection for whoever reads from it; the descriptor stays its owner's."""
    with socket.socket(fileno=os.dup(descriptor)) as shared, suppress(OSError):
        shared.shutdown(socket.SHUT_RDWR)


def _checked(
    gen: Generator[Any, Any, _Result], check: Callable[[], None], heard: Callable[[], None]
) -> Generator[Any, Any, _Result]:
    """The generator `gen` of psycopg; `check` is called while nothing is ready, else `heard`."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                heard()
            else:
                check()
            wanted = gen.send(ready)
    except StopIteration as done:
        result: _Result = done.value
        return result
