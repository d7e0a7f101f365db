"""Open ADBC connections, which turn a binary COPY into Arrow buffers, and bound every wait on them.

ADBC exposes neither its socket nor its wait. So its calls run in a thread of their own. A call whose answer
cannot come any more is abandoned with its thread and its connection, which end with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

import adbc_driver_manager
import adbc_driver_postgresql.dbapi
import psycopg
import pyarrow as pa

from headrace.errors import HeadraceError, Kind, without_values
from headrace.postgres.answer_timeout import AnswerTimeout
from headrace.postgres.connection import (
    PINNED,
    Closeable,
    conninfo_for_adbc,
    conninfo_of,
    keepalives,
    pin_statements,
)
from headrace.postgres.quoting import literal
from headrace.postgres.server_errors import connection_error, statement_error

_SLICE_SECONDS = 1.0
_WRITE_SECONDS = 600.0
"""How long the server may send during one call: what has arrived is not visible before the call ends."""
_BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"
_REFUSED = (adbc_driver_manager.Error, psycopg.OperationalError)
_FAILED = (*_REFUSED, pa.ArrowException, OSError)  # PyArrow raises OSError too

_ABANDONED: list[object] = []

_Result = TypeVar("_Result")

StatementErrors = Callable[[str | None, str], HeadraceError]
"""Return the error for a SQLSTATE (None: the connection was lost) and the driver's whole text."""


class AdbcConnection(Closeable):
    """One connection of ADBC; not for two threads at once, except `cancel`.

    Use it only where another connection has checked that no pooler is in between: ADBC does not expose what
    shows one.

    Args:
        url: the database.
        application_name: the name where `url` has none.
        settings: the session's settings; those that end it with its host are added.
        error_of: makes the errors of statements.

    Raises:
        HeadraceError: what `connect` raises.
    """

    def __init__(
        self, url: str, application_name: str, settings: Mapping[str, str], error_of: StatementErrors
    ) -> None:
        self._error_of = error_of
        conninfo = conninfo_for_adbc(url, application_name)
        self._calls = _WatchedCalls(lambda: conninfo_of(url, "headrace look"))
        try:
            self._connection = self._calls.run(
                lambda: adbc_driver_postgresql.dbapi.connect(conninfo, autocommit=True)
            )
        except _REFUSED as error:
            self._calls.close()
            raise connection_error(error, url) from None  # ADBC's own text may hold the connection string
        self._cursor = self._connection.cursor()
        try:
            [(pid,)] = self.query("SELECT pg_backend_pid()")
            self._calls.is_served_by(pid)
            for statement in pin_statements({**settings, **keepalives(url)}):
                self.query(statement)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the session, and with it its transaction; idempotent."""
        for close in (self._cursor.close, self._connection.close):
            with suppress(*_REFUSED):
                self._calls.run(close)
        self._calls.close(self._cursor, self._connection)

    def cancel(self) -> None:
        """Cancel the statement of another thread, which gets an error."""
        with suppress(adbc_driver_manager.Error):
            self._cursor.adbc_cancel()

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a small statement with `$1`-style parameters.

        Raises:
            HeadraceError: CONNECTION where the connection was lost; what `error_of` returns for what the
                server refuses.
        """
        try:
            return self._calls.run(lambda: self._query(sql, parameters))
        except _REFUSED as error:
            raise self._statement_error(error) from None

    def _query(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        self._cursor.execute(sql, tuple(parameters) or None)
        return self._cursor.fetchall() if self._cursor.description is not None else []

    def read(self, sql: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement in batches of about `batch_bytes`; memory holds one or two of them.

        Raises:
            HeadraceError: as `query`; INTERNAL where the driver cannot read the rows.
        """
        try:
            self._cursor.adbc_statement.set_options(**{_BATCH_BYTES: str(batch_bytes)})
            self._calls.run(lambda: self._cursor.execute(sql))
            batches = self._calls.run(lambda: iter(self._cursor.fetch_record_batch()))
            while (batch := self._calls.run(lambda: next(batches, None))) is not None:
                yield batch
        except _FAILED as error:
            raise self._statement_error(error) from None

    def _statement_error(self, error: Exception) -> HeadraceError:
        state, text = getattr(error, "sqlstate", None), str(error)
        if state is None and not self._calls.lost and self._is_alive():
            text = primary_message(text)
            return HeadraceError(
                Kind.INTERNAL,
                f"rows cannot be read: {without_values(text)}",
                detail=f"rows cannot be read: {text}",
            )
        return self._error_of(state, text)

    def _is_alive(self) -> bool:
        """Return whether the server still answers on this connection, even with an error."""
        try:
            return self._calls.run(self._ping)
        except _REFUSED as error:
            return getattr(error, "sqlstate", None) is not None

    def _ping(self) -> bool:
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return cursor.fetchone() is not None


class RowSession(AdbcConnection):
    """A read-only transaction that reads many rows into columns.

    Its settings are those of every reading session. No Python object stands for a row or a value;
    `headrace.snapshot.reading` decides which of ADBC's values are in the promised form.

    Args:
        url: the database.
        snapshot: an exported snapshot for all reads; None: the snapshot of the first statement.

    Raises:
        HeadraceError: what `connect` raises; CONTINUITY where the snapshot no longer exists; DATABASE.
    """

    def __init__(self, url: str, *, snapshot: str | None = None) -> None:
        super().__init__(
            url,
            "headrace read",
            PINNED,
            lambda state, text: statement_error(state, primary_message(text), url),
        )
        try:
            self.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if snapshot is not None:
                self.query(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
        except BaseException:
            self.close()
            raise


def primary_message(text: str) -> str:
    """Return the server's first line of an ADBC error, which quotes the statement too."""
    first = text.partition("\n")[0]
    return " ".join(first.partition(":  ")[2].split()) or first


class _WatchedCalls:
    """Run the calls of one connection, one after the other; not for two threads at once.

    Args:
        conninfo: as `AnswerTimeout`.

    Attributes:
        lost: whether a call was abandoned; no other can run.
    """

    def __init__(self, conninfo: Callable[[], str]) -> None:
        self.lost = False
        self._silence = AnswerTimeout(conninfo, _WRITE_SECONDS)
        self._closed = False
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], object]] | None] = SimpleQueue()
        threading.Thread(target=self._run_calls, name="headrace calls", daemon=True).start()

    def is_served_by(self, pid: int) -> None:
        """Set the server process whose activity decides how long to wait."""
        self._silence.pid = pid

    def run(self, call: Callable[[], _Result]) -> _Result:
        """Run `call` and return its result.

        Raises:
            psycopg.OperationalError: no answer can come any more. Errors of `call` pass through.
        """
        if self.lost or self._closed:
            raise psycopg.OperationalError("the connection was given up")
        future: Future[_Result] = Future()
        self._calls.put((future, call))
        self._silence.begin()
        while not wait([future], _SLICE_SECONDS).done:
            try:
                self._silence.check()
            except psycopg.OperationalError:
                self.lost = True
                raise
        return future.result()

    def close(self, *used: object) -> None:
        """End the thread after its last call.

        Args:
            used: what the calls use. It is kept alive where a call was abandoned, because that call still
                uses it.
        """
        self._calls.put(None)
        self._closed = True
        if self.lost:
            _ABANDONED.append(used)

    def _run_calls(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised to the caller
                future.set_exception(error)
            del item, future, call
