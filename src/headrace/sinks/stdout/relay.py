"""Print documents that workers write on the standard output of the driver.

Nobody sees what a worker process prints. So the driver listens, workers send operations, and what is printed
is acknowledged: one printer, one order, one sequence.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterable
from itertools import islice
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Self

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult

_BATCH_SIZE = 500
_ANSWER_SECONDS = 10.0
_FAILURES = (OSError, EOFError, AuthenticationError)


class Relay:
    """Passes what workers send to one writer, one batch after the other; a context manager.

    Args:
        writer: stays the caller's.
        host: the address of this machine that workers reach, and on which the relay listens.
    """

    def __init__(self, writer: DocumentWriter, host: str = "127.0.0.1") -> None:
        self._writer = writer
        self._lock = threading.Lock()
        # Any user of the machine can connect; only workers of the run know the token.
        self._token = secrets.token_hex(16)
        self._listener = Listener((host, 0), authkey=self._token.encode())
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="headrace relay", daemon=True)

    def options(self) -> dict[str, Any]:
        """Return the arguments of `RelayWriter`."""
        host, port = self._listener.address
        return {"host": host, "port": port, "token": self._token}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        with contextlib.suppress(*_FAILURES):
            # To close it does not end an `accept` that waits in another thread: a connection does.
            Client(self._listener.address, authkey=self._token.encode()).close()
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(*_FAILURES):
                arguments = (self._listener.accept(),)
                name = "headrace relayed"
                threading.Thread(target=self._serve, args=arguments, name=name, daemon=True).start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        with connection, contextlib.suppress(*_FAILURES):
            while True:
                connection.send(self._answer(connection.recv()))

    def _answer(self, operations: list[DocumentOperation]) -> WriteResult | HeadraceError:
        try:
            with self._lock:
                return self._writer.write(operations)
        except HeadraceError as error:
            return error
        except OSError as error:
            return HeadraceError(Kind.SINK_BUSY, f"standard output cannot be written: {error}")


class RelayWriter(DocumentWriter):
    """Sends operations to a `Relay`; the connection is opened at the first write.

    Args:
        host, port, token: as `Relay.options` returns them.
    """

    def __init__(self, host: str, port: int, token: str) -> None:
        self._address = host, port
        self._token = token
        self._connection: Connection[Any, Any] | None = None

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Send all operations; when it returns, they are printed.

        Raises:
            HeadraceError: SINK_UNREACHABLE; SINK_BUSY where they cannot be printed.
        """
        total, remaining = WriteResult(), iter(operations)
        while chunk := list(islice(remaining, _BATCH_SIZE)):
            try:
                answer = self._exchange(chunk)
            except _FAILURES as error:
                self.close()
                raise HeadraceError(
                    Kind.SINK_UNREACHABLE, f"the run does not take what is to be printed: {error}"
                ) from error
            if isinstance(answer, HeadraceError):
                raise answer
            total += answer
        return total

    def close(self) -> None:
        """Close the connection; idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, chunk: list[DocumentOperation]) -> WriteResult | HeadraceError:
        if self._connection is None:
            self._connection = Client(self._address, authkey=self._token.encode())
        self._connection.send(chunk)
        if not self._connection.poll(_ANSWER_SECONDS):
            raise TimeoutError(f"no answer within {_ANSWER_SECONDS:.0f} s")
        answer: WriteResult | HeadraceError = self._connection.recv()
        return answer
