"""Print documents that workers write on the standard output of the driver.

Nobody sees what a worker process prints. So the driver listens, workers send operations, and what is printed
is acknowledged: one printer, one order, one sequence.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Iterable
from io import BufferedRWPair
from itertools import islice
from typing import Any, Self

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult

_BATCH_SIZE = 500
_ANSWER_SECONDS = 10.0
_LONGEST_TOKEN = 64
_PAUSE_SECONDS = 0.1


class Relay:
    """Passes what workers send to one writer, one batch after the other; a context manager.

    Args:
        writer: stays the caller's.
        host: the address of this machine that workers reach, and on which the relay listens.
    """

    def __init__(self, writer: DocumentWriter, host: str = "127.0.0.1") -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._token = secrets.token_hex(16)
        self._ending = threading.Event()
        self._socket = socket.create_server((host, 0))
        self._thread = threading.Thread(target=self._accept, name="headrace relay", daemon=True)

    def options(self) -> dict[str, Any]:
        """Return the arguments of `RelayWriter`."""
        host, port = self._socket.getsockname()[:2]
        return {"host": host, "port": port, "token": self._token}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        with contextlib.suppress(OSError):
            # To close it does not end an `accept` that waits in another thread.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._ending.wait(_PAUSE_SECONDS):
                    return
                continue  # as where the process has no file left for another connection
            name = "headrace relayed"
            threading.Thread(target=self._serve, args=(connection,), name=name, daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as stream, contextlib.suppress(OSError, ValueError):
            connection.settimeout(_ANSWER_SECONDS)
            token = stream.readline(_LONGEST_TOKEN).strip()
            # Any user of the machine can connect; only workers of the run know the token.
            if not hmac.compare_digest(token, self._token.encode()):
                return
            connection.settimeout(None)  # a worker may have nothing to write for hours
            while (operations := _receive(stream)) is not None:
                stream.write(json.dumps(self._answer(operations)).encode() + b"\n")
                stream.flush()

    def _answer(self, operations: list[DocumentOperation]) -> dict[str, Any]:
        try:
            with self._lock:
                result = self._writer.write(operations)
        except HeadraceError as error:
            return {"error": [error.kind.name, error.cause, error.remedy]}
        except Exception as error:  # noqa: BLE001 - also a letter that it lacks, or a number of too many digits
            return {"error": [Kind.SINK_BUSY.name, f"standard output cannot be written: {error}", ""]}
        return {"upserted": result.upserted, "deleted": result.deleted, "bytes": result.bytes}


class RelayWriter(DocumentWriter):
    """Sends operations to a `Relay`; the connection is opened at the first write.

    Args:
        host, port, token: as `Relay.options` returns them.
    """

    def __init__(self, host: str, port: int, token: str) -> None:
        self._address = host, port
        self._token = token
        self._connection: socket.socket | None = None
        self._stream: BufferedRWPair | None = None

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Send all operations; when it returns, they are printed.

        Raises:
            HeadraceError: SINK_UNREACHABLE; SINK_BUSY where they cannot be printed.
        """
        total, remaining = WriteResult(), iter(operations)
        while chunk := list(islice(remaining, _BATCH_SIZE)):
            try:
                answer = self._exchange(chunk)
            except (OSError, ValueError) as error:
                self.close()
                raise HeadraceError(
                    Kind.SINK_UNREACHABLE, f"the run does not take what is to be printed: {error}"
                ) from error
            if "error" in answer:
                kind, cause, remedy = answer["error"]
                raise HeadraceError(Kind[kind], cause, remedy)
            total += WriteResult(**answer)
        return total

    def close(self) -> None:
        """Close the connection; idempotent."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
        if self._connection is not None:
            self._connection.close()
        self._stream = self._connection = None

    def _exchange(self, chunk: list[DocumentOperation]) -> dict[str, Any]:
        if self._stream is None:
            self._connection = socket.create_connection(self._address, _ANSWER_SECONDS)
            self._stream = self._connection.makefile("rwb")
            self._stream.write(self._token.encode() + b"\n")
        _send(self._stream, chunk)
        answer: dict[str, Any] = json.loads(self._stream.readline() or b"")
        return answer


def _send(stream: BufferedRWPair, chunk: list[DocumentOperation]) -> None:
    headers = [
        (
            operation.index,
            operation.id,
            operation.version,
            None if operation.body is None else len(operation.body),
            operation.routing,
        )
        for operation in chunk
    ]
    stream.write(json.dumps(headers).encode() + b"\n")
    for operation in chunk:
        if operation.body is not None:
            stream.write(operation.body)
    stream.flush()


def _receive(stream: BufferedRWPair) -> list[DocumentOperation] | None:
    line = stream.readline()
    if not line:
        return None
    operations = []
    for index, identity, version, size, routing in json.loads(line):
        body = None if size is None else stream.read(size)
        operations.append(DocumentOperation(index, identity, version, body, routing))
    return operations
