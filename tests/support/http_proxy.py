"""Stand between a client and a real HTTP server, to look at requests and spoil some."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from types import TracebackType
from typing import Self

import urllib3

_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Request:
    """What came from the client; the names of `headers` are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said in the server's place; the server hears nothing of the request."""

    status: int
    body: bytes = b"{}"


@dataclass(frozen=True, slots=True)
class Cut:
    """The request reaches the server, and its answer is cut off after so many bytes of its body.

    Where `bytes` is None nothing of the answer arrives; `unheard`: the request does not reach the server.
    """

    bytes: int | None = None
    unheard: bool = False


Spoil = Callable[[Request], Answer | Cut | None]
"""What becomes of a request; None: nothing special. Called from many threads; it may take its time."""


def _leave(_: Request) -> None:
    return None


class HttpProxy:
    """Forwards HTTP requests from a free loopback port to `target`; a context manager.

    Args:
        target: the server, `http://HOST:PORT`.
        tls: the proxy speaks TLS with its clients.
        spoil: see `Spoil`; may be changed at any time.

    Attributes:
        url: where it listens.
        requests: the last ones, oldest first.
    """

    def __init__(self, target: str, *, tls: SSLContext | None = None, spoil: Spoil = _leave) -> None:
        self.spoil = spoil
        self.requests: deque[Request] = deque(maxlen=_REMEMBERED)
        self._target = target
        self._pool = urllib3.PoolManager(maxsize=16, retries=False, timeout=60.0)
        self._server = _Server(self)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="http proxy", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._pool.clear()

    def heal(self) -> None:
        """Spoil nothing any more."""
        self.spoil = _leave

    def forward(self, request: Request) -> urllib3.BaseHTTPResponse:
        """What the server says."""
        kept = ("content-type", "content-encoding", "accept")
        headers = {name: value for name, value in request.headers.items() if name in kept}
        return self._pool.request(
            request.method, self._target + request.target, body=request.body or None, headers=headers
        )


class _Handler(BaseHTTPRequestHandler):
    """Serves one connection of the `_Server` that accepted it."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body)
        proxy = self.server.proxy
        proxy.requests.append(request)
        with contextlib.suppress(OSError):
            self._answer(proxy, request, proxy.spoil(request))

    def _answer(self, proxy: HttpProxy, request: Request, spoiled: Answer | Cut | None) -> None:
        if isinstance(spoiled, Answer):
            self._send(spoiled.status, spoiled.body, len(spoiled.body))
            return
        self.close_connection = spoiled is not None
        if spoiled is not None and spoiled.unheard:
            return
        try:
            answer = proxy.forward(request)
        except urllib3.exceptions.HTTPError:
            self.close_connection = True
            return
        if spoiled is None:
            self._send(answer.status, answer.data, len(answer.data))
        elif spoiled.bytes is not None:
            self._send(answer.status, answer.data[: spoiled.bytes], len(answer.data))

    def _send(self, status: int, body: bytes, length: int) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json; charset=UTF-8")
        self.send_header("content-length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Silence."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, proxy: HttpProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no news."""
