"""Read many rows as columns, by a binary COPY."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import psycopg
import pyarrow as pa
from psycopg import generators, pq
from psycopg.abc import PQGen
from psycopg.waiting import Wait

from headrace.errors import HeadraceError, Kind
from headrace.model.value_type import numeric_type
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.copied import (
    HEADER,
    NUMERIC,
    TRAILER,
    CopiedColumn,
    decimal_digits,
    decode_copied,
    is_decoded,
)
from headrace.pgoutput.frames import Frames
from headrace.postgres.answer_timeout import WatchedConnection
from headrace.postgres.session import ReadSession


class RowSession(ReadSession):
    """A read-only transaction that reads many rows into columns; not for two threads at once.

    Args:
        url: the database.
        snapshot: an exported snapshot for all reads; None: the snapshot of the first statement.
        lock_seconds: as of `ReadSession`.

    Raises:
        HeadraceError: as `ReadSession`.
    """

    def __init__(self, url: str, *, snapshot: str | None = None, lock_seconds: float = 0) -> None:
        super().__init__(url, snapshot=snapshot, lock_seconds=lock_seconds)
        if snapshot is None:
            self._begin()

    def read(self, sql: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a SELECT in batches of about `batch_bytes`; memory holds one or two of them.

        Its columns are typed as `headrace.pgoutput.copied` decodes them; other types are selected as text.
        A reader that stops early closes the session.

        Raises:
            HeadraceError: as `query`; PROTOCOL, VALUE.
        """
        columns = self._describe(sql)
        with self._refusals():
            for rows in copy_rows(self._connection, sql, batch_bytes):
                yield decode_copied(rows, columns)

    def _describe(self, sql: str) -> list[CopiedColumn]:
        """Return the columns, whose types stay what they are: the transaction has locked the table now."""
        with self._refusals():
            # COPY describes no types; the same statement without rows does.
            cursor = self._connection.execute(f"{sql} LIMIT 0".encode(), prepare=False)
        result = cursor.pgresult
        columns = []
        for index, found in enumerate(cursor.description or ()):
            digits = None
            if result is not None and found.type_code == NUMERIC:
                digits = decimal_digits(numeric_type(result.fmod(index)))
            if not is_decoded(found.type_code, digits):
                raise HeadraceError(
                    Kind.INTERNAL,
                    f"the column {found.name} is of a type ({found.type_code}) that is read as text only",
                )
            columns.append(CopiedColumn(found.name, found.type_code, digits))
        return columns


def copy_rows(connection: WatchedConnection, sql: str, size: int) -> Generator[MessageBatch]:
    """Yield the rows of a SELECT in binary form, about `size` bytes of them at a time.

    psycopg's own COPY makes several objects for each row and waits after each; here a row costs one call of
    libpq.

    Raises:
        psycopg.Error: as of a statement. The connection is closed where the caller stops early.
    """
    server = connection.pgconn
    is_copying = True
    try:
        server.send_query(f"COPY ({sql}) TO STDOUT (FORMAT binary)".encode())
        _check_results(connection)
        skipped = len(HEADER)  # it is a part of the first message
        while is_copying:
            rows = Frames()
            is_copying = connection.wait(_receive(server, rows, size))
            if not is_copying:
                _check_results(connection)
            batch = MessageBatch.within(rows.data, rows.ends)
            batch.begin[:1] += skipped
            skipped = 0
            # The server sends the trailer as a message of its own.
            if len(batch) and batch.payload(len(batch) - 1) == TRAILER:
                batch = batch.slice(0, len(batch) - 1)
            if len(batch):
                yield batch
    except psycopg.Error:
        is_copying = False
        raise
    finally:
        # A COPY that is not read to its end cannot be left: only closing the connection ends it.
        if is_copying:
            connection.close()


def _check_results(connection: WatchedConnection) -> None:
    """Wait for what a command returns, up to the beginning of a COPY."""
    for result in connection.wait(generators.execute(connection.pgconn)):
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)


def _receive(server: pq.abc.PGconn, into: Frames, size: int) -> PQGen[bool]:
    """Append messages until there are `size` bytes; return whether there may be more."""
    data, next_message, end = into.data, server.get_copy_data, into.ends.append
    total = 0
    while total < size:
        length, message = next_message(1)
        if length > 0:
            data += message
            total += length
            end(total)
        elif length < 0:
            return False
        else:
            # psycopg's waiting, which checks for silence and lets other threads run.
            while not (yield Wait.R):
                pass
            server.consume_input()
    return True
