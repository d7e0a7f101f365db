"""Read many rows into columns: ADBC turns the server's binary COPY into Arrow buffers.

No Python object stands for a row or a value. `headrace.snapshot.columns` decides which of ADBC's values are
in the promised form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import adbc_driver_manager
import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa

from headrace.errors import HeadraceError, Kind, without_values
from headrace.postgres.calls import WatchedCalls
from headrace.postgres.connection import conninfo_for_adbc, conninfo_of, keepalives
from headrace.postgres.quoting import literal
from headrace.postgres.server_errors import connection_error, statement_error
from headrace.postgres.session import PINNED, pinning

_BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"
_FAILURES = (adbc_driver_manager.Error, pa.ArrowException, OSError)  # PyArrow raises OSError too


class RowSession:
    """A read-only transaction on one connection; not for use by two threads at once.

    Its settings are those of every reading session. Use it only where a `ReadSession` has checked that no
    pooler is in between: ADBC does not expose what shows one.

    Args:
        url: the database.
        snapshot: an exported snapshot for all reads; None: the snapshot of the first statement.

    Raises:
        HeadraceError: what `connect` raises; CONTINUITY where the snapshot no longer exists; DATABASE.
    """

    def __init__(self, url: str, *, snapshot: str | None = None) -> None:
        self._url = url
        conninfo = conninfo_for_adbc(url, "headrace read")
        self._calls = WatchedCalls(lambda: conninfo_of(url, "headrace look"))
        try:
            self._connection = self._calls.run(lambda: adbc.connect(conninfo, autocommit=True))
        except (adbc_driver_manager.Error, psycopg.OperationalError) as error:
            self._calls.close()
            failure = psycopg.OperationalError(str(error))
            raise connection_error(failure, url) from None  # ADBC's own text may hold the connection string
        self._cursor = self._connection.cursor()
        try:
            [(pid,)] = self.query("SELECT pg_backend_pid()")
            self._calls.is_served_by(pid)
            for statement in pinning({**PINNED, **keepalives(url)}):
                self.query(statement)
            self.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if snapshot is not None:
                self.query(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
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
        """End the transaction and the connection; idempotent."""
        for close in (self._cursor.close, self._connection.close):
            with suppress(adbc_driver_manager.Error, psycopg.OperationalError):
                self._calls.run(close)
        self._calls.close(self._cursor, self._connection)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a small statement with `$1`-style parameters.

        Raises:
            HeadraceError: CONNECTION where the connection was lost, DATABASE or PRIVILEGE for what the server
                refuses.
        """
        try:
            return self._calls.run(lambda: self._query(sql, parameters))
        except (adbc_driver_manager.Error, psycopg.OperationalError) as error:
            raise self._error_of(error) from None

    def _query(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        self._cursor.execute(sql, tuple(parameters) or None)
        return self._cursor.fetchall() if self._cursor.description is not None else []

    def read(self, sql: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement in batches of about `batch_bytes`; memory holds one or two of them.

        Raises:
            HeadraceError: as `query`.
        """
        try:
            self._cursor.adbc_statement.set_options(**{_BATCH_BYTES: str(batch_bytes)})
            self._calls.run(lambda: self._cursor.execute(sql))
            batches = self._calls.run(lambda: iter(self._cursor.fetch_record_batch()))
            while (batch := self._calls.run(lambda: next(batches, None))) is not None:
                yield batch
        except (*_FAILURES, psycopg.OperationalError) as error:
            raise self._error_of(error) from None

    def _error_of(self, error: Exception) -> HeadraceError:
        state, text = getattr(error, "sqlstate", None), _primary_message(str(error))
        if state is None and not self._calls.lost and self._is_alive():
            return HeadraceError(
                Kind.INTERNAL,
                f"rows cannot be read: {without_values(text)}",
                detail=f"rows cannot be read: {text}",
            )
        return statement_error(state, text, self._url)

    def _is_alive(self) -> bool:
        """Return whether the server still answers on this connection, even with an error."""
        try:
            return self._calls.run(self._ping)
        except (adbc_driver_manager.Error, psycopg.OperationalError) as error:
            return getattr(error, "sqlstate", None) is not None

    def _ping(self) -> bool:
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return cursor.fetchone() is not None


def _primary_message(text: str) -> str:
    """Return the server's first line of an ADBC error, which quotes the statement too."""
    first = text.partition("\n")[0]
    return " ".join(first.partition(":  ")[2].split()) or first
