"""A real HTTP server on the loopback that answers as told, for faults that no healthy cluster shows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext


@dataclass
class Request:
    """What arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def ids(self) -> list[str]:
        """The ids of a bulk request, in order."""
        lines = [json.loads(line) for line in self.body.splitlines()]
        return [next(iter(line.values()))["_id"] for line in lines if "index" in line or "delete" in line]


Reply = tuple[int, bytes] | None
"""A status and a body, or None: the connection is cut without an answer."""


@dataclass
class Scripted:
    """The server's address and what it has seen."""

    url: str
    requests: list[Request] = field(default_factory=list)


def accepted(request: Request) -> Reply:
    """Every item of a bulk succeeds."""
    return 200, json.dumps(
        {"errors": False, "items": [{"index": {"status": 200}} for _ in request.ids]}
    ).encode()


def items(*statuses: int) -> bytes:
    """An answer with one status per item."""
    types = {409: "version_conflict_engine_exception"}
    told = [
        {
            "index": {
                "status": one,
                **({"error": {"type": types.get(one, "t"), "reason": "r"}} if one > 299 else {}),
            }
        }
        for one in statuses
    ]
    return json.dumps({"errors": True, "items": told}).encode()


@contextmanager
def scripted(answer: Callable[[Request], Reply], tls: SSLContext | None = None) -> Iterator[Scripted]:
    """Serve on a free port until the block ends."""
    seen: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen.append(Request(self.command, self.path, headers, body))
            reply = answer(seen[-1])
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply[0])
            self.send_header("content-length", str(len(reply[1])))
            self.end_headers()
            self.wfile.write(reply[1])

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield Scripted(f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}", seen)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
