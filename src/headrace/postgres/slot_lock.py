"""How is a second Headrace kept away from a slot, also while nobody streams it?

An advisory lock lives in a server session and goes with it: with a restart, with a cut network. So whoever
needs it for long asks again and again whether it is still held, and takes it anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.session import database_error

_LOCK_CLASS = 0x48_52_41_43  # "HRAC": the first key of Headrace's advisory locks
_END_MILLISECONDS = 2000

_Backend = tuple[int, str]
"""A server process: its pid and when it began, because pids come again."""


class SlotLock:
    """The lock on one slot, for as long as this is open; a context manager. Not for two threads at once.

    Args:
        url: the database of the slot. Advisory locks belong to a database, and so does a logical slot.
        slot: its name.

    Raises:
        HeadraceError: from entering and `hold`, SLOT_IN_USE with the session that has it; CONNECTION,
            AUTHENTICATION, DATABASE.
    """

    def __init__(self, url: str, slot: str) -> None:
        self._url = url
        self._slot = slot
        self._connection: Connection | None = None
        self._own: set[_Backend] = set()

    def __enter__(self) -> Self:
        self.hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def hold(self) -> None:
        """Make sure that the lock is held: at once where it is, anew where its session was lost.

        A session of our own that the server has not noticed to be cut off is ended; it is no stranger.
        """
        stranger = self.lost_to()
        if stranger is not None:
            raise stranger

    def lost_to(self) -> HeadraceError | None:
        """As `hold`; the SLOT_IN_USE of whoever has taken the lock is returned."""
        if self._connection is not None:
            with suppress(HeadraceError):
                _ask(self._connection, "SELECT 1")
                return None
            self._close()
        self._connection = connect(self._url, application_name=f"headrace lock {self._slot}")
        try:
            stranger = self._take(self._connection)
        except BaseException:
            self._close()
            raise
        if stranger is not None:
            self._close()
        return stranger

    def was_lost(self) -> bool:
        """Whether its session has ended since it was first taken: then the server may have been put back."""
        if self._connection is None or len(self._own) > 1:
            return True
        try:
            _ask(self._connection, "SELECT 1")
        except HeadraceError:
            return True
        return False

    def _take(self, connection: Connection) -> HeadraceError | None:
        _ask(connection, "SELECT set_config('idle_session_timeout', '0', false)")
        _ask(connection, "SELECT set_config('tcp_user_timeout', '15000', false)")  # it never pauses
        holder = _try_lock(connection, self._slot)
        if holder is not None and holder.backend in self._own:
            sql = """
                SELECT pg_terminate_backend(pid, $3) FROM pg_stat_activity
                WHERE pid = $1 AND backend_start::text = $2
            """
            _ask(connection, sql, *holder.backend, _END_MILLISECONDS)
            holder = _try_lock(connection, self._slot)
        if holder is not None:
            return holder.error(self._slot)
        [backend] = _ask(
            connection, "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        )
        self._own.add((backend[0], backend[1]))
        return None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def advisory_lock(connection: Connection, slot: str) -> Iterator[None]:
    """Keep a second Headrace away from `slot` for a moment, in the session of `connection`.

    Raises:
        HeadraceError: SLOT_IN_USE with the session that holds it; CONNECTION, DATABASE.
    """
    holder = _try_lock(connection, slot)
    if holder is not None:
        raise holder.error(slot)
    try:
        yield
    finally:
        if not connection.closed:
            with suppress(HeadraceError):  # a session that was lost has let go of it
                _ask(connection, "SELECT pg_advisory_unlock($1::int, $2::int)", *_keys(slot))


class _Holder:
    def __init__(self, pid: int | None, since: str, text: str) -> None:
        self.backend: _Backend = (pid or 0, since)
        self._text = text

    def error(self, slot: str) -> HeadraceError:
        return HeadraceError(
            Kind.SLOT_IN_USE,
            f"another Headrace works with the slot {slot!r} ({self._text})",
            "Stop it first, or give this deployment a slot of its own.",
        )


def _try_lock(connection: Connection, slot: str) -> _Holder | None:
    """Take the lock; who has it instead, None where it is ours now."""
    keys = _keys(slot)
    [(taken,)] = _ask(connection, "SELECT pg_try_advisory_lock($1::int, $2::int)", *keys)
    if taken:
        return None
    rows = _ask(connection, holder_sql(*keys))
    return _Holder(*rows[0]) if rows else _Holder(None, "", "which has just ended")


def holder_sql(first: int, second: int) -> str:
    """The query for who has the advisory lock of two keys: pid, when its session began, a text for people."""
    return f"""
        SELECT l.pid, coalesce(a.backend_start::text, ''),
               'pid ' || l.pid || coalesce(', ' || nullif(a.application_name, ''), '')
               || coalesce(' of ' || a.usename, '') || coalesce(', from ' || host(a.client_addr), '')
        FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.classid = {first % 2**32}::bigint::oid AND l.objid = {second % 2**32}::bigint::oid
    """  # noqa: S608 - two numbers


def _keys(slot: str) -> tuple[int, int]:
    return _LOCK_CLASS, zlib.crc32(slot.encode()) - 2**31


def _ask(connection: Connection, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    try:
        return execute(connection, sql, parameters)
    except psycopg.Error as error:
        raise database_error(error, connection.info.dsn) from error
