"""Answer requests for the console: the page, its events, its curve, its files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from headrace.errors import HeadraceError, unexpected
from headrace.status.board import StatusBoard
from headrace.status.console.explanation import Explains, Explanation
from headrace.status.console.feed import Feed
from headrace.status.console.render import Renderer, StaticFile, static_files

_LONGEST_QUESTION = 1_000
_AT_ONCE, _QUEUED = 2, 8
_ANSWER_SECONDS = 10.0


class Console:
    """The console of one run.

    Args:
        board: the board to show.
        explains: says why a document is (not) in an index; None: nothing can be searched for.

    Attributes:
        feed: the page, kept up to date.
        routes: for the web application.
    """

    def __init__(self, board: StatusBoard, explains: Explains | None = None) -> None:
        self._files = static_files()
        self._explains = explains
        self._places = asyncio.Semaphore(_AT_ONCE + _QUEUED)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "headrace explain")
        self.feed = Feed(board, Renderer(self._files, searches=explains is not None))
        self.routes: list[BaseRoute] = [
            Route("/", self._page, methods=["GET"]),
            Route("/console/events", self.feed, methods=["GET"]),
            Route("/console/lag", self._curve, methods=["GET"]),
            *(Route(f"/console/{name}", _serve(file), methods=["GET"]) for name, file in self._files.items()),
        ]

    def close(self) -> None:
        """Answer no more questions."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _page(self, request: Request) -> Response:
        asked = request.query_params.get("document", "").strip()[:_LONGEST_QUESTION]
        answer = await self._answer(asked) if asked and self._explains is not None else None
        return HTMLResponse(self.feed.page(asked, answer))

    async def _curve(self, _: Request) -> Response:
        return JSONResponse(dict(self.feed.curve()))

    async def _answer(self, asked: str) -> Explanation:
        """Answer a question; at most two are looked up at once, and few wait for that."""
        index, slash, id_ = asked.partition("/")
        if not slash or not index or not id_:
            remedy = "write INDEX/ID, like users/42"
            return Explanation(f"{asked!r} names no document", remedy=remedy, tone="bad")
        # Each question takes connections to database and cluster, which the run needs too.
        if self._places.locked():
            return Explanation("too many ask already", remedy="ask again in some seconds", tone="bad")
        async with self._places:
            return await self._look_up(index, id_)

    async def _look_up(self, index: str, id_: str) -> Explanation:
        assert self._explains is not None
        loop = asyncio.get_running_loop()
        try:
            looked_up = loop.run_in_executor(self._threads, self._explains.explain, index, id_)
            return await asyncio.wait_for(looked_up, _ANSWER_SECONDS)
        except TimeoutError:
            verdict = f"database and cluster gave no answer within {_ANSWER_SECONDS:.0f} s"
            return Explanation(verdict, tone="bad")
        except HeadraceError as error:
            return Explanation(error.cause, (("error", error.code),), error.remedy, "bad")
        except Exception as bug:  # noqa: BLE001 - the page of a bug must not be a blank one
            return Explanation(unexpected("the look-up failed", bug).cause, tone="bad")


def _serve(file: StaticFile) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers with a file; its address changes with its content, so it may be kept."""
    headers = {"Cache-Control": "max-age=31536000, immutable"}

    async def answer(_: Request) -> Response:
        return Response(file.content, media_type=file.content_type, headers=headers)

    return answer
