"""The pages that a run and a mirror have in common, and the address that serves them to everyone.

They change nothing and need no password; the address decides who can look, and a page elsewhere cannot look
through the browser of somebody who can.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headrace.status.protection import PublicGuard, allows_host, leads_nowhere_else
from headrace.status.serving import HttpServer

_PROBED = frozenset({"/healthz", "/readyz", "/metrics"})
"""Kubernetes asks them by the pod's address, Prometheus by whatever its configuration calls it."""


def pages(
    unready: Callable[[], str | None], status: Callable[[], Mapping[str, Any]], registry: CollectorRegistry
) -> list[Route]:
    """Return the pages `/healthz`, `/readyz`, `/status` and `/metrics`.

    Args:
        unready: says why what is served is not kept up to date; None where it is.
        status: the body of `/status`.
        registry: the metrics.
    """

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        reason = unready()
        return PlainTextResponse(f"{reason or 'ready'}\n", 200 if reason is None else 503)

    async def show_status(_: Request) -> Response:
        return JSONResponse(status())

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    found = {"/healthz": healthz, "/readyz": readyz, "/status": show_status, "/metrics": metrics}
    return [Route(path, page, methods=["GET"]) for path, page in found.items()]


class PublicServer(HttpServer):
    """Serves pages without a password to whoever asks by a name of this address.

    Args:
        application: the pages.
        address: `HOST:PORT`, the only address to listen on; port 0 takes a free one.
        hosts: names that the pages are asked by, with a port or for any: of a proxy, of a Service.
        linked: pages that a link elsewhere may lead a person to.

    Raises:
        HeadraceError: USAGE for an address that is invalid, or that is not this machine's.
    """

    def __init__(
        self, application: ASGIApp, address: str, hosts: Collection[str], linked: Collection[str]
    ) -> None:
        # The guard calls `_allows`, which reads this.
        self._hosts = frozenset(hosts)
        super().__init__(PublicGuard(application, self._allows, _PROBED, linked), address, "status")

    def _allows(self, host: str) -> bool:
        return leads_nowhere_else(host) or allows_host(host, self.address, self._hosts | {self.named})
