"""Lock a slot for one deployment, and for one reader; and a publication for one session.

An advisory lock belongs to a server session and ends with it: by a restart, by a cut network. A holder that
needs the lock for long checks again and again that it is still held, and takes it again where it is not.

The server shows a reader of a slot only while the slot is streamed, and not while its backlog is read through
a copy. So both kinds of readers also take an advisory lock, in the session that moves the slot.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import Closeable, Connection, connect, query
from headrace.postgres.quoting import literal
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.server import session_text
from headrace.postgres.server_errors import slot_in_use_by

_DEPLOYMENTS = 0x48_52_41_43  # "HRAC": the first key of the locks of deployments
_READERS = 0x48_52_52_44  # "HRRD": the first key of the locks of readers
_PUBLICATIONS = 0x48_52_50_42  # "HRPB": the first key of the locks on publications
_PUBLICATION_SECONDS = 300.0
"""How long others may extend a publication, each for up to a minute or two."""
_POLL_SECONDS = 0.1

_READER = f"""
    SELECT {session_text("s.active_pid")}
    FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
    WHERE s.active_pid IS NOT NULL AND s.slot_name =
"""  # noqa: S608 - a fixed text
_BEGAN = "extract(epoch FROM a.backend_start)::text"
_OWN_SESSION = f"SELECT a.pid, {_BEGAN} FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()"  # noqa: S608
_END_MILLISECONDS = 2000
_END_SESSION = f"""
    SELECT pg_terminate_backend(a.pid, $3) FROM pg_stat_activity a WHERE a.pid = $1 AND {_BEGAN} = $2
"""  # noqa: S608 - a fixed text


@dataclass(frozen=True, slots=True)
class LockSession:
    """A session that holds a lock.

    Attributes:
        pid: its server process.
        began: when that began (seconds since 1970, as the server prints them), because pids are reused.
        text: the session for people.
    """

    pid: int
    began: str
    text: str = field(default="", compare=False)

    def end(self, connection: Connection) -> None:
        """End the session; wait some moments for its end."""
        query(connection, _END_SESSION, (self.pid, self.began, _END_MILLISECONDS))

    def error(self, slot: str) -> HeadraceError:
        """Return the error of who needs the lock on `slot`."""
        return HeadraceError(
            Kind.SLOT_IN_USE,
            f"another Headrace works with the slot {slot!r} ({self.text})",
            "Stop it first, or give this deployment a slot of its own.",
        )


class SlotLock(Closeable):
    """The lock of one deployment on its slot; a context manager. Not for two threads at once.

    Args:
        url: the database of the slot. Advisory locks belong to a database, and so does a logical slot.
        slot: its name.

    Attributes:
        session: the session that holds the lock, or held it last.

    Raises:
        HeadraceError: from entering: SLOT_IN_USE, which names the session that holds the lock;
            CONNECTION, AUTHENTICATION, DATABASE.
    """

    def __init__(self, url: str, slot: str) -> None:
        self._url = url
        self._slot = slot
        self._connection: Connection | None = None
        self._own_sessions: set[LockSession] = set()
        self.session: LockSession | None = None

    def __enter__(self) -> Self:
        other_holder = self.lost_to()
        if other_holder is not None:
            raise other_holder
        return self

    def lost_to(self) -> HeadraceError | None:
        """Make sure that the lock is held; return the SLOT_IN_USE error where another process holds it.

        It is taken again where its session was lost. A session of this process that was cut off, and that the
        server still shows, is ended.
        """
        if self._connection is not None:
            with suppress(HeadraceError):
                # A session may be cut off without a sign: only an answer shows that it still holds the lock.
                query(self._connection, "SELECT 1")
                return None
            self.close()
        self._connection = connect(self._url, application_name=f"headrace lock {self._slot}")
        try:
            other_holder = self._take(self._connection)
        # Also for a stop: a session that nobody knows of would go on holding the lock.
        except BaseException:
            self.close()
            raise
        if other_holder is not None:
            self.close()
        return other_holder

    def was_lost(self) -> bool:
        """Return whether the lock's session has ended since the lock was first taken.

        The server may then have been restored from a backup.
        """
        # A second session of ours has taken the lock: the first one had ended.
        if self._connection is None or len(self._own_sessions) > 1:
            return True
        try:
            query(self._connection, "SELECT 1")
        except HeadraceError:
            return True
        return False

    def _take(self, connection: Connection) -> HeadraceError | None:
        # This session never pauses: the server may end it soon where nothing is acknowledged.
        query(connection, "SELECT set_config('tcp_user_timeout', '15000', false)")
        keys = _lock_keys(_DEPLOYMENTS, self._slot)
        holder = _try_lock(connection, keys)
        # A session of ours that was cut off lives on in the server until its keepalives fail.
        if holder is not None and holder in self._own_sessions:
            holder.end(connection)
            holder = _try_lock(connection, keys)
        if holder is not None:
            return holder.error(self._slot)
        [row] = query(connection, _OWN_SESSION)
        self.session = LockSession(*row)
        self._own_sessions.add(self.session)
        return None

    def close(self) -> None:
        """Release the lock; idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def advisory_lock(connection: Connection, slot: str) -> Iterator[None]:
    """Hold the lock on `slot` for a moment, in the session of `connection`.

    Raises:
        HeadraceError: SLOT_IN_USE, which names the session that holds it; CONNECTION, DATABASE.
    """
    keys = _lock_keys(_DEPLOYMENTS, slot)
    holder = _try_lock(connection, keys)
    if holder is not None:
        raise holder.error(slot)
    with _held(connection, keys):
        yield


@contextmanager
def publication_lock(connection: Connection, publication: str) -> Iterator[None]:
    """Hold a lock under which no other source creates or extends the publication.

    Queries that start at the same time would do so.

    Raises:
        HeadraceError: DATABASE, which names a session that holds it for minutes, as that of a suspended
            process; CONNECTION.
    """
    keys = _lock_keys(_PUBLICATIONS, publication)
    deadline = time.monotonic() + _PUBLICATION_SECONDS
    while (holder := _try_lock(connection, keys)) is not None:
        if time.monotonic() > deadline:
            raise HeadraceError(
                Kind.DATABASE,
                f"another query has not ended its work on the publication {publication!r} within "
                f"{_PUBLICATION_SECONDS:g} s ({holder.text})",
                "Stop it, or end its session: SELECT pg_terminate_backend(PID).",
            )
        time.sleep(_POLL_SECONDS)
    with _held(connection, keys):
        yield


@contextmanager
def _held(connection: Connection, keys: tuple[int, int]) -> Iterator[None]:
    """Release a lock at the end."""
    try:
        yield
    finally:
        if not connection.closed:
            with suppress(HeadraceError):  # a lost session has released the lock
                query(connection, "SELECT pg_advisory_unlock($1::int, $2::int)", keys)


def find_holder(connection: Connection, slot: str) -> str | None:
    """Return who holds the lock on `slot`, for people; None where it is free.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    return next((holder.text for holder in _read_holders(connection, _lock_keys(_DEPLOYMENTS, slot))), None)


def end_holders(connection: Connection, slot: str) -> None:
    """End the sessions that hold the locks on `slot`: of a deployment that is known to be gone.

    A session outlives its client where the client's machine has vanished, or is suspended.

    Raises:
        HeadraceError: SLOT_IN_USE, where one goes on; PRIVILEGE, where the role may not end it; CONNECTION,
            DATABASE.
    """
    # The deployment first: a reader that comes meanwhile finds its lock gone, and gives up.
    for keys in (_lock_keys(_DEPLOYMENTS, slot), _lock_keys(_READERS, slot)):
        for holder in _read_holders(connection, keys):
            holder.end(connection)
            if holder in _read_holders(connection, keys):
                raise holder.error(slot)


def claim_slot(connection: ReplicationConnection, slot: str, deployment: LockSession | None = None) -> None:
    """Keep every other reader away from `slot` while `connection` lives.

    Args:
        deployment: the session that must hold the lock of the deployment; None: no matter who does. It is
            looked at before, to keep out of another reader's way, and after: then either it is there, or who
            has ended it finds this claim too.

    Raises:
        HeadraceError: SLOT_IN_USE, CONNECTION, DATABASE.
    """
    _check_deployment(connection, slot, deployment)
    first, second = _lock_keys(_READERS, slot)
    # Not the waiting form: who waits would take the slot much later, behind a run that has gone on.
    [(taken,)] = connection.execute(f"SELECT pg_try_advisory_lock({first}, {second})", slot=slot)
    if taken != "t":
        holders = connection.execute(_holder_sql(first, second), slot=slot)
        raise HeadraceError(
            Kind.SLOT_IN_USE,
            f"another reader of Headrace has the slot {slot!r} "
            f"({holders[0][2] if holders else 'which has just ended'})",
            "Stop it first, or give this one a slot of its own.",
        )
    _check_deployment(connection, slot, deployment)


def _check_deployment(connection: ReplicationConnection, slot: str, deployment: LockSession | None) -> None:
    """Raise SLOT_IN_USE where another session, or none, holds the lock of the deployment."""
    if deployment is None:
        return
    holders = connection.execute(_holder_sql(*_lock_keys(_DEPLOYMENTS, slot)), slot=slot)
    # Pid and start together: the server gives out pids again.
    if not any((pid, began) == (str(deployment.pid), deployment.began) for pid, began, _ in holders):
        who = f"is held by {holders[0][2]}" if holders else "is lost"
        raise HeadraceError(
            Kind.SLOT_IN_USE,
            f"this run's lock on the slot {slot!r} {who}",
            "Nothing to do: it is taken again, or the run ends.",
        )


def with_reader(connection: ReplicationConnection, slot: str, error: HeadraceError) -> HeadraceError:
    """Return the error; for a slot in use, with the reader's pid, application and client.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    if error.kind is not Kind.SLOT_IN_USE:
        return error
    rows = connection.execute(f"{_READER} {literal(slot)}", slot=slot)
    return slot_in_use_by(rows[0][0] if rows else None, slot)


def advance_claimed(connection: ReplicationConnection, slot: str, lsn: str) -> None:
    """Confirm everything before `lsn` on a slot that `connection` has claimed and does not stream.

    Raises:
        HeadraceError: SLOT_IN_USE, SLOT_LOST, SLOT_UNKNOWN, CONNECTION, DATABASE.
    """
    connection.execute(
        f"SELECT pg_replication_slot_advance({literal(slot)}, {literal(lsn)}::pg_lsn)", slot=slot
    )


def _read_holders(connection: Connection, keys: tuple[int, int]) -> list[LockSession]:
    return [LockSession(*row) for row in query(connection, _holder_sql(*keys))]


def _try_lock(connection: Connection, keys: tuple[int, int]) -> LockSession | None:
    """Take the lock; return its holder, or None where this session has it now."""
    [(taken,)] = query(connection, "SELECT pg_try_advisory_lock($1::int, $2::int)", keys)
    if taken:
        return None
    return next(iter(_read_holders(connection, keys)), LockSession(0, "", "which has just ended"))


def _holder_sql(first: int, second: int) -> str:
    """Return the query for the holder of the advisory lock of two keys.

    Its row: the pid, when the session began, as in `LockSession`, and a text for people.
    """
    # pg_locks shows keys as unsigned oids; objsubid is 2 for a lock of two keys, 1 for one of 64 bits.
    return f"""
        SELECT l.pid, coalesce({_BEGAN}, ''), {session_text("l.pid")}
        FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.classid = {first % 2**32}::bigint::oid AND l.objid = {second % 2**32}::bigint::oid
    """  # noqa: S608 - two numbers


def _lock_keys(lock_class: int, name: str) -> tuple[int, int]:
    # Two 32-bit keys: other programs lock by one 64-bit key, or by the first key of their own.
    return lock_class, zlib.crc32(name.encode()) - 2**31
