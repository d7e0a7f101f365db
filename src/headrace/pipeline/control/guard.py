"""Let only requests through that name this address and have a token of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.pipeline.control.tokens import TokenHolder, Tokens
from headrace.status.board import StatusBoard
from headrace.status.refusal import Refusal, refuse

_MOST_FAILURES = 10
_WINDOW_SECONDS = 60.0
_MOST_CLIENTS = 1024


class FailedTokens:
    """Counts the wrong tokens of each client in a minute; after too many, nothing of it is looked at.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._clients: dict[str, tuple[float, int]] = {}

    def add(self, client: str) -> None:
        """Count a wrong token."""
        began, count = self._clients.pop(client, (self._clock(), 0))
        if self._clock() - began >= _WINDOW_SECONDS:
            began, count = self._clock(), 0
        if len(self._clients) >= _MOST_CLIENTS:  # what is bounded is our memory: the oldest is forgotten
            del self._clients[next(iter(self._clients))]
        self._clients[client] = began, count + 1

    def seconds_left(self, client: str) -> float:
        """Return how long nothing of this client is looked at; 0 where it is."""
        began, count = self._clients.get(client, (0.0, 0))
        left = began + _WINDOW_SECONDS - self._clock()
        return left if count >= _MOST_FAILURES and left > 0 else 0.0


@dataclass(eq=False, slots=True)
class Guard:
    """Stands before the application: the Host header, then the token.

    What passes has its `TokenHolder` in `request.state.holder`.

    Args:
        application: the application.
        tokens: the tokens.
        allows: whether a Host header names this server.
        board: counts what is refused, and reports wrong tokens.
    """

    application: ASGIApp
    tokens: Tokens
    allows: Callable[[str], bool]
    board: StatusBoard
    failed: FailedTokens = field(default_factory=FailedTokens, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refusal, or hand the request on."""
        if scope["type"] == "http":
            try:
                scope.setdefault("state", {})["holder"] = self._admit(Request(scope))
            except Refusal as refusal:
                self.board.count_request("unknown", refusal.outcome)
                await refusal.response()(scope, receive, send)
                return
        await self.application(scope, receive, send)

    def _admit(self, request: Request) -> TokenHolder:
        client = request.client.host if request.client is not None else ""
        # First: a page of another site may have its name lead here (DNS rebinding), to try tokens.
        if not self.allows(request.headers.get("host", "")):
            raise refuse(
                HTTPStatus.MISDIRECTED_REQUEST,
                "wrong_host",
                "the Host header is not of this address",
                "Ask by the address itself, or add the name to [control] allowed_hosts.",
            )
        if (left := self.failed.seconds_left(client)) > 0:
            raise refuse(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_failures",
                "too many wrong tokens came from here",
                "Wait, and correct the token.",
                Retry_After=str(int(left) + 1),
            )
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise refuse(
                HTTPStatus.UNAUTHORIZED,
                "no_token",
                "the request has no token",
                "Send it as `Authorization: Bearer …`.",
                WWW_Authenticate="Bearer",
            )
        holder = self.tokens.find(token.strip())
        if holder is None:
            self.failed.add(client)
            self.board.report.warning(f"control: a wrong token from {client}")
            raise refuse(
                HTTPStatus.UNAUTHORIZED,
                "wrong_token",
                "the token is not one of this address",
                "Correct it; [[control.tokens]] says where each is read from.",
                WWW_Authenticate='Bearer error="invalid_token"',
            )
        return holder
