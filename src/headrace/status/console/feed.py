"""Look at the board once a second, and send what has changed to everybody who watches.

One look and one rendering serve all. A client is never waited for: one that is slow misses looks, and gets
what it lacks of the newest state when it has taken the last. While nobody watches nothing is rendered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from headrace.status.board import StatusBoard
from headrace.status.console.explanation import Explanation
from headrace.status.console.history import History
from headrace.status.console.page import Page, make_page
from headrace.status.console.render import Renderer

_LOG = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
MOST_WATCHERS = 64
_BACK_SECONDS = 10.0


class Feed:
    """The page as it is now, for any number of readers; used in one event loop.

    Args:
        board: the board to show.
        renderer: renders it.
        most: how many may watch at once; of more, the oldest leaves and comes back after ten seconds.
    """

    def __init__(self, board: StatusBoard, renderer: Renderer, *, most: int = MOST_WATCHERS) -> None:
        self._board = board
        self._renderer = renderer
        self._most = most
        self._watchers: OrderedDict[object, None] = OrderedDict()
        self._parts: dict[str, str] = {}
        self._page: Page | None = None
        self._rendered_at = float("-inf")
        self._looked = asyncio.Event()
        self._ended = False
        self.history = History()

    async def run(self) -> None:
        """Look at the board once a second, until `end`."""
        failed = False
        while not self._ended:
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a bug of the page must end neither it nor the run
                if not failed:
                    _LOG.exception("the console cannot show the run; it tries again every second")
                failed = True
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Look at the board, and let watchers know."""
        self.history.observe(self._board.view(), time.time())
        if self._watchers:
            self._render()
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()

    def end(self) -> None:
        """Show the last state of the run; watchers are told that it is the last."""
        if not self._ended:
            self._ended = True
            self.look()

    def page(self, asked: str = "", answer: Explanation | None = None) -> str:
        """Return the whole page, not older than a second."""
        # Who loads the page in a loop does not make its parts be rendered each time.
        if time.time() - self._rendered_at >= LOOK_SECONDS:
            self.history.observe(self._board.view(), time.time())
            self._render()
        assert self._page is not None
        return self._renderer.page(self._page, self._parts, asked, answer)

    def curve(self) -> Mapping[str, list[float | int | None]]:
        """Return the lag of the last hour as columns."""
        points = list(self.history.points)
        return {
            "time": [point.time for point in points],
            "seconds": [point.seconds for point in points],
            "bytes": [point.size for point in points],
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with server-sent events, until the client or the run ends: an ASGI application."""
        del scope
        me = object()
        if len(self._watchers) >= self._most:
            # The newest is the page that somebody has just opened.
            self._watchers.popitem(last=False)
        self._watchers[me] = None
        gone = asyncio.create_task(_until_disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            # Nothing was rendered while nobody watched.
            if not self._parts or len(self._watchers) == 1:
                self._render()
            await self._send_looks(me, send, gone)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._watchers.pop(me, None)
            gone.cancel()

    async def _send_looks(self, me: object, send: Send, gone: asyncio.Task[None]) -> None:
        """Send what has changed at each look; one that has to leave is told to come back later."""
        seen: dict[str, str] = {}
        while not gone.done():
            looked, ended, leaves = self._looked, self._ended, me not in self._watchers
            event = self._event(seen, _BACK_SECONDS if leaves else LOOK_SECONDS)
            seen = self._parts
            body = json.dumps(event, separators=(",", ":")).encode()
            body = b"retry: %d\ndata: %b\n\n" % (1000 * event["next"], body)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            if ended or leaves:
                return
            waiting = asyncio.ensure_future(looked.wait())
            await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    def _event(self, seen: Mapping[str, str], next_: float) -> dict[str, Any]:
        """Return the event for a client that has `seen` these parts."""
        assert self._page is not None
        point = self.history.points[-1] if self.history.points else None
        return {
            "parts": {name: html for name, html in self._parts.items() if seen.get(name) != html},
            "now": self._page.now,
            "slot": self._page.slot_name,
            "word": self._page.headline.word,
            "point": point and [point.time, point.seconds, point.size],
            "next": next_,
            "ended": self._ended,
        }

    def _render(self) -> None:
        now = time.time()
        self._page = make_page(self._board.view(), self.history, now)
        self._rendered_at = now
        self._parts = self._renderer.parts(self._page)


_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),  # a proxy in between passes each event on at once
]


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
