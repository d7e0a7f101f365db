"""How do a load balancer, a person and Prometheus read the board? Some pages over HTTP, read-only.

Nothing here changes anything, so nothing here asks who is there; the address decides who can look. One page
answers late: `/wait`, when a commit is in the documents.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import threading
import time
from types import TracebackType
from typing import Self

import uvicorn
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from headrace.errors import HeadraceError, Kind
from headrace.status.board import StatusBoard
from headrace.status.metrics import registry
from headrace.status.waiting import WaitRequest, Waits, answer, read_request

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:\[\]]+)):(?P<port>\d{1,5})")
_LAST_PORT = 65535
_PATIENCE_SECONDS = 5.0
_DISCONNECTED_SECONDS = 1.0
_FRESH = {"Cache-Control": "no-store"}


class StatusServer:
    """Serves `/healthz`, `/readyz`, `/status` and `/metrics` from a daemon thread, between enter and exit.

    Args:
        board: what is shown.
        address: `HOST:PORT`, and nothing else is listened on; port 0 takes a free one.
        waits: for `/wait`, which is missing without.

    Raises:
        HeadraceError: USAGE for an address that is none, or that is not this machine's.
    """

    def __init__(self, board: StatusBoard, address: str, waits: Waits | None = None) -> None:
        self._family, self._host, self._port = _parse(address)
        config = uvicorn.Config(
            application(board, waits),
            http="h11",
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None
        self._address = address

    def start(self) -> None:
        """Listen; returns when requests are answered.

        Raises:
            HeadraceError: PORT_IN_USE, or USAGE as for the class.
        """
        listener = self._listen()
        host, port = listener.getsockname()[:2]
        self._address = f"[{host}]:{port}" if self._family is socket.AF_INET6 else f"{host}:{port}"
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="headrace status", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                listener.close()
                raise HeadraceError(Kind.INTERNAL, f"the status server at {self._address} does not start")
            time.sleep(0.005)

    def stop(self) -> None:
        """Answer what is being asked, close the port; idempotent."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=_PATIENCE_SECONDS)
            self._thread = None

    @property
    def address(self) -> str:
        """`HOST:PORT` with the real port once it has started."""
        return self._address

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _listen(self) -> socket.socket:
        try:
            return socket.create_server((self._host, self._port), family=self._family, backlog=64)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> HeadraceError:
        place = f"the status address {self._address}"
        if error.errno == errno.EADDRINUSE:
            return HeadraceError(
                Kind.PORT_IN_USE, f"{place} is taken by another process", "Choose another, or port 0."
            )
        if error.errno in (errno.EACCES, errno.EPERM):
            return HeadraceError(
                Kind.USAGE, f"{place} is not for this user to listen on", "Choose a port from 1024 on."
            )
        return HeadraceError(
            Kind.USAGE,
            f"{place} is not one of this machine: {error.strerror or error}",
            "Use 127.0.0.1:PORT, or 0.0.0.0:PORT for every interface.",
        )


def application(board: StatusBoard, waits: Waits | None = None) -> Starlette:
    """The pages."""
    metrics = registry(board)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n", headers=_FRESH)

    async def readyz(_: Request) -> Response:
        reason = board.view().unready
        if reason is None:
            return PlainTextResponse("ready\n", headers=_FRESH)
        return PlainTextResponse(f"{reason}\n", status_code=503, headers=_FRESH)

    async def status(_: Request) -> Response:
        return JSONResponse(board.snapshot(), headers=_FRESH)

    async def scrape(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics), media_type=None, headers={**_FRESH, "Content-Type": content_type})

    async def wait(request: Request) -> Response:
        assert waits is not None
        try:
            asked = read_request(dict(request.query_params))
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400, headers=_FRESH)
        return await _waited(waits, asked, request)

    pages = {"/healthz": healthz, "/readyz": readyz, "/status": status, "/metrics": scrape}
    if waits is not None:
        pages["/wait"] = wait
    return Starlette(routes=[Route(path, page, methods=["GET"]) for path, page in pages.items()])


async def _waited(waits: Waits, asked: WaitRequest, request: Request) -> Response:
    """200 once it is applied, 504 where it is not in time, 503 where too many wait; JSON."""
    began = time.monotonic()
    future = waits.ask(asked.lsn, searchable=asked.searchable)
    if future is None:
        full = {"error": "too many requests wait already"}
        return JSONResponse(full, status_code=503, headers={**_FRESH, "Retry-After": "1"})
    try:
        done = asyncio.wrap_future(future)
        while not done.done() and (left := began + asked.timeout - time.monotonic()) > 0:
            await asyncio.wait({done}, timeout=min(left, _DISCONNECTED_SECONDS))
            if await request.is_disconnected():
                break
        there = done.done()
        found = done.result() if there else waits.progress(future)
    finally:
        future.cancel()
    body = answer(found, time.monotonic() - began, done=there)
    return JSONResponse(body, status_code=200 if there else 504, headers=_FRESH)


def _parse(address: str) -> tuple[socket.AddressFamily, str, int]:
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > _LAST_PORT:
        raise HeadraceError(
            Kind.USAGE, f"{address!r} is no address to listen on", "Write HOST:PORT, like 127.0.0.1:9464."
        )
    if match["six"] is not None:
        return socket.AF_INET6, match["six"], int(match["port"])
    return socket.AF_INET, match["host"], int(match["port"])
