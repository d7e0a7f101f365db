"""Answer requests at the private address: parse an order, call the running pipeline, say what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.config.control import Scope
from headrace.errors import HeadraceError, Kind, retrying
from headrace.model.units import quantity
from headrace.pipeline.control.bodies import LogLevelBody, NoOptions, QuarantineBody, VerifyBody, read_body
from headrace.pipeline.control.orders import Order, Orders, new_order
from headrace.pipeline.control.refusal import NO_STORE, Refusal, refusal_of, refuse
from headrace.pipeline.generation_states import GenerationRequest
from headrace.pipeline.quarantined_documents import entry_data
from headrace.pipeline.verification.report import as_data
from headrace.pipeline.verification.verify import VerifyOptions
from headrace.reporter import SilentReporter
from headrace.state.control_requests import RequestKind
from headrace.status.board import StatusBoard

if TYPE_CHECKING:
    from headrace.pipeline.running import RunningPipeline

Answer = Callable[[Request], Awaitable[Response]]

_GENERATION_ORDERS = frozenset({"reindex", "rollback"})
"""Of one index, the newest of them counts."""


class ControlPages:
    """The pages of the private address.

    Args:
        running: the pipeline that is ordered about.
        orders: the orders that take a while.
    """

    def __init__(self, running: RunningPipeline, orders: Orders) -> None:
        self._running = running
        self._orders = orders

    def application(self) -> Starlette:
        """Return the application; whoever gets so far has a token."""
        quarantine = "/v1/indexes/{index}/quarantine"
        routes = [
            self._route("GET", "/v1/status", "status", self._status, "read"),
            self._route("GET", "/v1/orders", "orders", self._list_orders, "read"),
            self._route("GET", "/v1/orders/{id}", "orders", self._show_order, "read"),
            self._route("POST", "/v1/indexes/{index}/reindex", "reindex", self._reindex),
            self._route("POST", "/v1/indexes/{index}/rollback", "rollback", self._rollback),
            self._route("POST", "/v1/indexes/{index}/verify", "verify", self._verify),
            self._route("POST", "/v1/reload", "reload", self._reload),
            self._route("POST", "/v1/pause", "pause", self._pause),
            self._route("POST", "/v1/resume", "resume", self._resume),
            self._route("PUT", "/v1/log-level", "log_level", self._set_log_level),
        ]
        for path in ("/v1/quarantine", quarantine):
            routes += [
                self._route("GET", path, "quarantine_list", self._list_quarantine, "read"),
                self._route("POST", f"{path}/retry", "quarantine_retry", self._retry_quarantined),
                self._route("POST", f"{path}/drop", "quarantine_drop", self._drop_quarantined),
            ]
        board = self._running.board

        async def not_found(_: Request, error: Exception) -> Response:
            assert isinstance(error, HTTPException)
            return _refused(board, "unknown", _refusal_of_routing(error))

        application = Starlette(routes=routes, exception_handlers={HTTPException: not_found})
        application.router.redirect_slashes = False
        return application

    def _route(self, method: str, path: str, order: str, answer: Answer, scope: Scope = "operate") -> Route:
        board = self._running.board

        async def endpoint(request: Request) -> Response:
            try:
                _check_scope(request, order, scope)
                response = await answer(request)
            except Refusal as refusal:
                return _refused(board, order, refusal)
            except HeadraceError as error:
                return _refused(board, order, refusal_of(error))
            except Exception as bug:  # noqa: BLE001 - a bug of one order must not look like a lost server
                return _refused(
                    board, order, refusal_of(HeadraceError(Kind.INTERNAL, f"a bug: {type(bug).__name__}"))
                )
            board.control.count_request(order, "accepted")
            return response

        return Route(path, endpoint, methods=[method])

    # What only looks.

    async def _status(self, _: Request) -> Response:
        return _json(self._running.status())

    async def _list_orders(self, _: Request) -> Response:
        return _json([order.to_json() for order in self._orders.all()])

    async def _show_order(self, request: Request) -> Response:
        order = self._orders.get(request.path_params["id"])
        if order is None:
            raise refuse(
                HTTPStatus.NOT_FOUND,
                "not_found",
                "no such order is known",
                "GET /v1/orders lists those of this run.",
            )
        return _json(order.to_json())

    async def _list_quarantine(self, request: Request) -> Response:
        index, document = request.path_params.get("index"), request.query_params.get("id")
        entries = await run_in_threadpool(self._running.quarantined, index, document)
        return _json([entry_data(entry) for entry in entries])

    # Orders that are done at once.

    async def _pause(self, request: Request) -> Response:
        await read_body(request, NoOptions)
        self._log(request, "pause")
        self._running.pause(by=_who(request))
        return _json({"paused": self._running.status()["paused"]})

    async def _resume(self, request: Request) -> Response:
        await read_body(request, NoOptions)
        self._log(request, "resume")
        self._running.resume(by=_who(request))
        return _json({"paused": None})

    async def _set_log_level(self, request: Request) -> Response:
        body = await read_body(request, LogLevelBody)
        self._log(request, f"log level {body.level}")
        self._running.set_log_level(body.level, by=_who(request))
        return _json({"level": body.level})

    async def _drop_quarantined(self, request: Request) -> Response:
        index, body = request.path_params.get("index"), await read_body(request, QuarantineBody)
        dropped = await run_in_threadpool(self._running.drop_quarantined, index, body.id)
        self._log(request, f"drop {quantity(len(dropped), 'document')}{_of(index)} from quarantine")
        return _json({"dropped": [entry_data(entry) for entry in dropped]})

    # Orders that take a while.

    async def _reindex(self, request: Request) -> Response:
        return await self._order_generation(request, "reindex")

    async def _rollback(self, request: Request) -> Response:
        return await self._order_generation(request, "rollback")

    async def _order_generation(self, request: Request, what: RequestKind) -> Response:
        await read_body(request, NoOptions)
        index, running = self._index(request), self._running
        return await self._start(
            new_order(what, index, _who(request), _client(request)),
            lambda: running.request_generation(index, what),
            lambda asked: {"generation": _wait_until_served(running, asked)},
            replaces=_GENERATION_ORDERS,
        )

    async def _verify(self, request: Request) -> Response:
        body, index, running = await read_body(request, VerifyBody), self._index(request), self._running
        options = VerifyOptions(body.repair, body.percent, body.seed, body.sink)
        return await self._start(
            new_order("verify", index, _who(request), _client(request)),
            lambda: None,
            lambda _: as_data(running.verify_with(index, options, SilentReporter())),
        )

    async def _reload(self, request: Request) -> Response:
        await read_body(request, NoOptions)
        return await self._start(
            new_order("reload", None, _who(request), _client(request)),
            lambda: None,
            lambda _: asdict(self._running.reload()),
        )

    async def _retry_quarantined(self, request: Request) -> Response:
        body, index, running = (
            await read_body(request, QuarantineBody),
            request.path_params.get("index"),
            self._running,
        )

        def retry(_: None) -> Any:
            retried = running.retry_quarantined(index, body.id)
            return {"found": retried.found, "left": [entry_data(entry) for entry in retried.left]}

        return await self._start(
            new_order("quarantine_retry", index, _who(request), _client(request)), lambda: None, retry
        )

    async def _start(
        self,
        order: Order,
        begin: Callable[[], Any],
        follow: Callable[[Any], Any],
        *,
        replaces: frozenset[str] = frozenset(),
    ) -> Response:
        started = await run_in_threadpool(self._orders.start, order, begin, follow, replaces=replaces)
        place = f"/v1/orders/{started.id}"
        return JSONResponse(started.to_json(), HTTPStatus.ACCEPTED, {**NO_STORE, "Location": place})

    def _index(self, request: Request) -> str:
        """Return the index in the path.

        Raises:
            Refusal: the deployment does not have it.
        """
        name: str = request.path_params["index"]
        known = [index.name for index in self._running.board.view().indexes]
        if name not in known:
            raise refuse(
                HTTPStatus.NOT_FOUND,
                "unknown_index",
                "the deployment has no enabled index of this name",
                f"It has {', '.join(known) or 'none'}.",
            )
        return name

    def _log(self, request: Request, what: str) -> None:
        """Say what was ordered, by whom and from where; a line of the log has its time."""
        self._running.board.report.info(f"control: {_who(request)} from {_client(request)}: {what}")


def _wait_until_served(running: RunningPipeline, asked: GenerationRequest) -> str:
    """Wait for as long as it takes, also while the cluster is away."""
    for attempt in retrying(longest=1.0):
        with attempt:
            return running.wait_until_served(asked)
    raise AssertionError("the last attempt returns or raises")


def _who(request: Request) -> str:
    name: str = request.state.holder.name
    return name


def _client(request: Request) -> str:
    return request.client.host if request.client is not None else "?"


def _check_scope(request: Request, order: str, scope: Scope) -> None:
    if scope == "operate" and request.state.holder.scope != "operate":
        raise refuse(
            HTTPStatus.FORBIDDEN,
            "wrong_scope",
            f"the token of {_who(request)!r} may look, and not order {order}",
            'Use one whose scope is "operate".',
        )


def _refusal_of_routing(error: HTTPException) -> Refusal:
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        return refuse(
            HTTPStatus.METHOD_NOT_ALLOWED, "wrong_method", "the page has no such method", Allow=allowed
        )
    return refuse(
        HTTPStatus.NOT_FOUND, "not_found", "there is no such page", "docs/control.md lists the pages."
    )


def _refused(board: StatusBoard, order: str, refusal: Refusal) -> Response:
    board.control.count_request(order, refusal.outcome)
    return refusal.response()


def _of(index: str | None) -> str:
    return "" if index is None else f" of {index!r}"


def _json(content: Any) -> Response:
    return JSONResponse(content, headers=NO_STORE)
