"""Keep pages that people's browsers happen to load from asking a server of ours.

A page elsewhere may have its own name lead to our address (DNS rebinding): then browsers take our answers for
its own. Such a request names that page's host, which nobody allowed. An IP address leads nowhere else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The pages need nothing from elsewhere, so nothing from elsewhere can run in them.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared with, not listened on
"""What one listens on for every interface, and what this machine connects to then."""
_ELSEWHERE = frozenset({"cross-site", "same-site"})


def allows_host(given: str, address: str, allowed: Collection[str]) -> bool:
    """Whether a Host header names this address.

    Args:
        given: the header.
        address: `HOST:PORT` that is listened on. A loopback address, and one of every interface, is known by
            each name of this machine's loopback.
        allowed: further values, with a port or for any port.
    """
    given, names = given.lower(), {name.lower() for name in allowed}
    host, _, port = address.rpartition(":")
    own = {address.lower()}
    if is_loopback(address) or host in EVERYWHERE:
        own |= {f"{name}:{port}" for name in _LOOPBACK}
    return given in own | names or _without_port(given) in names


def leads_nowhere_else(host: str) -> bool:
    """Whether a Host header is an IP address or `localhost`, with any port: no name of somebody's."""
    bare = _without_port(host).lower()
    if bare == "localhost":
        return True
    try:
        ipaddress.ip_address(bare[1:-1] if bare.startswith("[") and bare.endswith("]") else bare)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Whether `HOST:PORT` is reached from this machine alone."""
    host = address.rpartition(":")[0].lower()
    return host.startswith("127.") or host.strip("[]") == "::1" or host == "localhost"


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if port.isdigit() else host


class SafeHeaders:
    """Adds headers to every answer: no cache keeps it, no other page uses it. An answer's own headers win.

    Args:
        application: what answers.
    """

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on."""

        async def send_safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SAFE.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._application(scope, receive, send_safe)


@dataclass(eq=False, slots=True)
class PublicGuard:
    """Stands before pages without a password: only requests pass that no page elsewhere can have made.

    Args:
        application: the pages.
        allows: whether a Host header names this server.
        probed: pages for programs that ask under any name, and that tell a page elsewhere nothing of use.
        linked: pages that a link elsewhere may lead a person to.
    """

    application: ASGIApp
    allows: Callable[[str], bool]
    probed: Collection[str]
    linked: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refusal, or hand the request on."""
        refused = self._refuse(scope) if scope["type"] == "http" else None
        await (self.application if refused is None else refused)(scope, receive, send)

    def _refuse(self, scope: Scope) -> Response | None:
        path, headers = scope["path"], Headers(scope=scope)
        if path in self.probed:
            return None
        if not self.allows(headers.get("host", "")):
            return PlainTextResponse(
                "the Host header does not name this address: ask by an IP address or localhost, or add the "
                "name to --public-hosts (HEADRACE_PUBLIC_HOSTS, or public_hosts in [server])\n",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        # Browsers say where a request comes from; programs do not, and need not.
        is_link = headers.get("sec-fetch-dest") == "document" and path in self.linked
        if headers.get("sec-fetch-site") in _ELSEWHERE and not is_link:
            reason = "a page of another site sent this request: open this address itself"
            return PlainTextResponse(f"{reason}\n", HTTPStatus.FORBIDDEN)
        return None
