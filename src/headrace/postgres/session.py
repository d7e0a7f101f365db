"""Read rows so that the same data always gives the same text.

A reading session pins every setting that PostgreSQL's output depends on, and never writes.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn, format_lsn
from headrace.postgres.connection import PINNED, Closeable, execute, open_connection, place
from headrace.postgres.lock_holders import lock_error
from headrace.postgres.quoting import literal
from headrace.postgres.server_errors import database_error, other_server_error
from headrace.postgres.wal_position import SEEN, FlushedReads

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_REPLAY_SECONDS = 0.01
_REPLAYED = f"SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() < $1::pg_lsn, {SEEN}"


class ReadSession(Closeable):
    """A read-only session on one connection; but for `cancel` not for use by two threads at once.

    Args:
        url: the database.
        snapshot: an exported snapshot; with it everything is read in one transaction that sees it.
        lock_seconds: how long a statement may wait for a lock; 0: as long as it takes.

    Attributes:
        server_mark: as of `WatchedConnection`.

    Raises:
        HeadraceError: what `connect` raises; DATABASE where the snapshot no longer exists.
    """

    def __init__(self, url: str, *, snapshot: str | None = None, lock_seconds: float = 0) -> None:
        self._url = url
        self._lock_seconds = lock_seconds
        settings = {**PINNED, "lock_timeout": f"{lock_seconds * 1000:.0f}"}
        self._connection = open_connection(url, "headrace read", settings=settings)
        self.server_mark = self._connection.server_mark
        self._reads = FlushedReads(self.query)
        if snapshot is not None:
            # The first statement of the transaction: another one would take a snapshot of its own.
            self._begin(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")

    def _begin(self, *first: str) -> None:
        """Begin the transaction of all reads by these statements."""
        try:
            for statement in (_BEGIN, *first):
                self.query(statement)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._connection.close()

    def cancel(self) -> None:
        """Cancel the statement of another thread, which gets an error."""
        self._connection.cancel_statement()

    @property
    def closed(self) -> bool:
        """Whether the connection is closed or broken."""
        return self._connection.closed or self._connection.broken

    @property
    def server_version(self) -> int:
        """The server's version, as `server_version_num` counts."""
        return self._connection.info.server_version

    @property
    def in_transaction(self) -> bool:
        """Whether statements share a transaction, which an error ends for all of them."""
        return self._connection.info.transaction_status != TransactionStatus.IDLE

    def query(
        self, sql: str, parameters: Sequence[object] = (), *, reusable: bool = True
    ) -> list[tuple[Any, ...]]:
        """Return all rows of a statement with `$1`-style parameters.

        Args:
            reusable: whether its plan may serve later calls, whatever their parameters.

        Raises:
            HeadraceError: CONNECTION where the connection was lost, or a lock was not had in time; DATABASE
                for what the server refuses.
        """
        with self._refusals():
            # Parameters are sent apart from the statement: no value is ever part of SQL.
            # psycopg prepares what comes often; the server may then plan it for no values in particular.
            return execute(self._connection, sql, parameters, prepare=None if reusable else False)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Raise Headrace's errors in the place of psycopg's."""
        try:
            yield
        except psycopg.Error as error:
            raise self._error(error) from error

    def _error(self, error: psycopg.Error) -> HeadraceError:
        """Return Headrace's error; of a lock that was not had in time, with who holds it."""
        if (failed := other_server_error(error)) is not None:
            return failed
        if not isinstance(error, psycopg.errors.LockNotAvailable):
            return database_error(error, self._url)
        if not self.in_transaction:
            return lock_error(self.query, self._lock_seconds)
        with ReadSession(self._url) as other:  # the error has ended the transaction
            return lock_error(other.query, self._lock_seconds)

    def stream(
        self, sql: str, parameters: Sequence[object] = (), *, size: int = 500
    ) -> Generator[tuple[Any, ...]]:
        """Yield the rows of a statement, `size` at a time; memory holds no more than that.

        Raises:
            HeadraceError: as `query`.
        """
        with self._refusals(), self._connection.cursor() as cursor:
            yield from cursor.stream(sql.encode(), parameters or None, size=size)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Run statements under a savepoint: where one fails, a transaction that they share goes on.

        Raises:
            HeadraceError: CONNECTION, where the connection was lost.
        """
        if not self.in_transaction:
            yield
            return
        self.query("SAVEPOINT headrace")
        try:
            yield
        except HeadraceError as error:
            # A lost connection has no transaction any more.
            if error.kind is not Kind.CONNECTION:
                self.query("ROLLBACK TO SAVEPOINT headrace")
            raise
        self.query("RELEASE SAVEPOINT headrace")

    @contextmanager
    def one_snapshot(self) -> Iterator[None]:
        """Let all statements see the same moment.

        Raises:
            HeadraceError: CONNECTION, where the connection was lost.
        """
        if self.in_transaction:
            yield
            return
        self.query(_BEGIN)
        try:
            yield
        finally:
            if not self.closed:
                # Nothing was written: rolled back it ends the same, also after an error.
                self.query("ROLLBACK")

    def await_replay(self, lsn: Lsn, ending: Event | None = None) -> None:
        """Wait until a standby has replayed the log up to `lsn`; on a primary, return at once.

        A standby's own snapshots say nothing about transactions in flight on its primary (decision 0012).

        Args:
            lsn: a position (bytes).
            ending: once it is set, nobody waits any more.

        Raises:
            HeadraceError: CONNECTION, also once `ending` is set; DATABASE.
        """
        while True:
            if ending is not None and ending.is_set():
                raise HeadraceError(Kind.CONNECTION, "the run is ending")
            [(behind, *seen)] = self.query(_REPLAYED, (format_lsn(lsn),))
            if not behind:
                break
            time.sleep(_REPLAY_SECONDS)
        if not self.in_transaction:
            self._reads.note(*seen)  # now the log is mostly flushed; reads write to it

    def await_flush(self) -> None:
        """Wait until every commit that has been read is on disk: a crash undoes none of them.

        Where statements share a transaction it returns at once: the session that exported the snapshot has
        waited.

        Raises:
            HeadraceError: CONNECTION, DATABASE: the caller has to read again.
        """
        if not self.in_transaction:
            self._reads.wait()


class KeptSession(Closeable):
    """A reading session that is opened when it is needed, and again where it was lost; used from one thread.

    Args:
        url, lock_seconds: as of `ReadSession`.
    """

    def __init__(self, url: str, *, lock_seconds: float = 0) -> None:
        self._url = url
        self._lock_seconds = lock_seconds
        self._session: ReadSession | None = None

    def get(self) -> ReadSession:
        """Return the session; open it if needed.

        Raises:
            HeadraceError: as `ReadSession`.
        """
        if self._session is None or self._session.closed:
            self._session = ReadSession(self._url, lock_seconds=self._lock_seconds)
        return self._session

    def close(self) -> None:
        """Close the session, if there is one; a later `get` opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None


def check_same_server(mark: str, other: str, url: str) -> None:
    """Refuse a stream and reads from two servers: a read might miss what the stream sent.

    Args:
        mark: `server_mark` of one connection.
        other: `server_mark` of another connection.
        url: the connection string of both.

    Raises:
        HeadraceError: CONNECTION, which is retryable during a failover.
    """
    if mark != other:
        raise HeadraceError(
            Kind.CONNECTION,
            f"two connections to {place(url)} lead to two servers",
            "Name one server, or several hosts with target_session_attrs=primary; an address that balances "
            "between servers cannot be used.",
        )
