"""Serve the board over HTTP, read-only: for people, load balancers and Prometheus.

The pages change nothing and need no password; the address decides who can look, and a page elsewhere cannot
look through the browser of somebody who can. Only `/wait` answers late: when a commit is in the documents.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.status.board import StatusBoard
from headrace.status.console.explanation import Explains
from headrace.status.console.routes import Console
from headrace.status.metrics import registry
from headrace.status.pages import PublicServer, pages
from headrace.status.waiting import WaitProgress, WaitRequest, Waits, answer_body, parse_request

MOST_WAITERS = 64
"""Clients that may wait at once."""

_LOOK_SECONDS = 0.05
_LINKED = frozenset({"/", "/status"})


class StatusServer(PublicServer):
    """Serve the console, `/healthz`, `/readyz`, `/status` and `/metrics` from a daemon thread.

    They are served between enter and exit.

    Args:
        board: the board to show.
        address: `HOST:PORT`, the only address to listen on; port 0 takes a free one.
        waits: the wait service behind `/wait`; None: there is no such page.
        explains: says why a document is (not) in an index; None: nothing can be searched for.
        hosts: names that the pages are asked by, with a port or for any: of a proxy, of a Service.

    Raises:
        HeadraceError: USAGE for an address that is invalid, or that is not this machine's.
    """

    def __init__(
        self,
        board: StatusBoard,
        address: str,
        waits: Waits | None = None,
        explains: Explains | None = None,
        hosts: Collection[str] = (),
    ) -> None:
        self._console = Console(board, explains)
        self._loop: asyncio.AbstractEventLoop | None = None
        routes = pages(lambda: board.view().unready, board.snapshot, registry(board))
        if waits is not None:
            routes.append(_wait_page(waits))
        served = Starlette(routes=[*routes, *self._console.routes], lifespan=self._running)
        super().__init__(served, address, hosts, _LINKED)

    def stop(self) -> None:
        """Show watchers the last state, answer open requests and close the port; idempotent."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                # The feed belongs to the thread of the loop.
                self._loop.call_soon_threadsafe(self._console.feed.end)
        super().stop()

    @contextlib.asynccontextmanager
    async def _running(self, _: Starlette) -> AsyncIterator[None]:
        """Look at the board while the server runs."""
        self._loop = asyncio.get_running_loop()
        looking = asyncio.create_task(self._console.feed.run())
        try:
            yield
        finally:
            looking.cancel()
            self._console.close()


def _wait_page(waits: Waits) -> Route:
    places = asyncio.Semaphore(MOST_WAITERS)

    async def wait(request: Request) -> Response:
        try:
            wait_request = parse_request(dict(request.query_params))
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        if places.locked():
            return JSONResponse({"error": "too many requests wait already"}, 503, {"Retry-After": "1"})
        async with places:
            return await _answer_wait(waits, wait_request, request)

    return Route("/wait", wait, methods=["GET"])


async def _answer_wait(waits: Waits, wait_request: WaitRequest, request: Request) -> Response:
    """Answer 200 once the position is applied, 504 if not in time; JSON."""
    began, progress = time.monotonic(), WaitProgress(wait_request.lsn)
    while True:
        waited = time.monotonic() - began
        looked = waits.look(progress, searchable=wait_request.searchable, waited=waited)
        # A look at servers that do not answer takes longer than the client waits.
        [*done], _ = await asyncio.wait({asyncio.wrap_future(looked)}, timeout=wait_request.timeout - waited)
        if done:
            progress = done[0].result()
        left = began + wait_request.timeout - time.monotonic()
        # Few may wait at once: a client that has gone must leave its place.
        if progress.done or left <= 0 or await request.is_disconnected():
            break
        await asyncio.sleep(min(left, _LOOK_SECONDS))
    looked.cancel()
    body = answer_body(progress, time.monotonic() - began)
    return JSONResponse(body, status_code=200 if progress.done else 504)
