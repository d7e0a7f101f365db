"""Stand before a real PostgreSQL server, and refuse what a test names with an error of the test's choice.

Everything else is the real server's answer. So an error of another product, or of a broken disk, is met in
the middle of a real stream.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_REQUESTS = {80877103, 80877104}  # for TLS and GSSAPI, before the start-up message
_VERSION = b"server_version\0"


@dataclass
class Refusal:
    """An error in place of the server's answer.

    Attributes:
        pattern: of the statement that is refused.
        state: its SQLSTATE.
        message: its primary message.
        times: how often it is refused; None: for ever.
        after: where the statement begins a stream, so many messages of the log come before the error.
        refused: how often it was refused so far.
    """

    pattern: str
    state: str
    message: str
    times: int | None = 1
    after: int = 0
    refused: int = 0

    def matches(self, statement: str) -> bool:
        """Whether this statement is refused now."""
        is_left = self.times is None or self.refused < self.times
        return is_left and re.search(self.pattern, statement) is not None

    def answer(self) -> bytes:
        """Return the error as the server sends it, and that it takes statements again."""
        self.refused += 1
        fields = (("S", "ERROR"), ("V", "ERROR"), ("C", self.state), ("M", self.message))
        body = b"".join(f"{field}{value}\0".encode() for field, value in fields) + b"\0"
        return _message(b"E", body) + _message(b"Z", b"I")


class RefusingServer:
    """Forwards from a free loopback port to the server of a URL; a context manager.

    Attributes:
        refusals: the errors; the first one that matches is given.
        port: where it listens, on 127.0.0.1.
        version: what it announces as its version; empty: the server's own.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._parts = parts
        self.refusals: list[Refusal] = []
        self.version = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._ending = False

    @property
    def url(self) -> str:
        """The server's URL, through this one."""
        user, at, _ = self._parts.netloc.rpartition("@")
        return self._parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    def refuse(
        self, pattern: str, state: str, message: str, *, times: int | None = 1, after: int = 0
    ) -> Refusal:
        """Refuse statements from now on; see `Refusal`."""
        refusal = Refusal(pattern, state, message, times, after)
        self.refusals.append(refusal)
        return refusal

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="refusing server", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for open_socket in tuple(self._sockets):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._ending:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            assert self._parts.hostname is not None
            assert self._parts.port is not None
            with socket.create_connection((self._parts.hostname, self._parts.port)) as server:
                self._sockets |= {client, server}
                session = _Session(client, server, self.refusals, self.version)
                threading.Thread(target=session.forward_answers, daemon=True).start()
                try:
                    session.forward_statements()
                finally:
                    # Closing is not enough: the other thread reads from it, and its session would live on.
                    _end(server)
                    self._sockets -= {client, server}


class _Session:
    """One connection."""

    def __init__(
        self, client: socket.socket, server: socket.socket, refusals: list[Refusal], version: str
    ) -> None:
        self._client = client
        self._server = server
        self._refusals = refusals
        self._version = version
        self._broken_stream: Refusal | None = None
        self._is_cut = self._awaits_byte = False

    def forward_statements(self) -> None:
        """Forward what the client sends, except what is refused."""
        stream = self._client.makefile("rb")
        while True:  # the messages before the session have no type
            body = _body(stream.read)
            self._awaits_byte = is_request = struct.unpack("!I", body[:4])[0] in _REQUESTS
            self._server.sendall(struct.pack("!I", len(body) + 4) + body)
            if not is_request:
                break
        is_skipping = False
        while head := stream.read(1):
            body = _body(stream.read)
            if is_skipping:  # the server skips what follows a refused statement, up to Sync
                is_skipping = head != b"S"
                continue
            statement = _statement(head, body)
            refusal = next((known for known in self._refusals if known.matches(statement)), None)
            if statement and refusal is not None:
                if refusal.after:
                    self._broken_stream = refusal
                else:
                    self._client.sendall(refusal.answer())
                    is_skipping = head == b"P"
                    continue
            with contextlib.suppress(OSError):
                if not self._is_cut:
                    self._server.sendall(_message(head, body))

    def forward_answers(self) -> None:
        """Forward what the server sends, up to where its stream breaks."""
        stream, is_stream, left = self._server.makefile("rb"), False, 0
        with contextlib.suppress(OSError):
            while head := stream.read(1):
                if self._awaits_byte:  # one byte answers a request for TLS
                    self._awaits_byte = False
                    self._client.sendall(head)
                    continue
                body = _body(stream.read)
                if self._version and head == b"S" and body.startswith(_VERSION):
                    body = _VERSION + self._version.encode() + b"\0"
                refusal = self._broken_stream
                if refusal is not None and head == b"W":
                    is_stream, left = True, refusal.after
                is_of_log = is_stream and head == b"d" and body[:1] == b"w"
                if refusal is not None and is_of_log and left == 0:
                    self._is_cut = True
                    self._client.sendall(refusal.answer())
                    return
                left -= is_of_log
                self._client.sendall(_message(head, body))
            _end(self._client)


def _statement(head: bytes, body: bytes) -> str:
    """Return the statement that a message holds; empty where it holds none."""
    if head == b"Q":
        return body.rstrip(b"\0").decode(errors="replace")
    if head == b"P":
        return body.split(b"\0")[1].decode(errors="replace")
    return ""


def _message(head: bytes, body: bytes) -> bytes:
    return head + struct.pack("!I", len(body) + 4) + body


def _body(read: Callable[[int], bytes]) -> bytes:
    length = read(4)
    if len(length) < 4:
        raise OSError("the connection was closed")
    return read(struct.unpack("!I", length)[0] - 4)


def _end(open_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
