"""Answer requests at the private address: parse an order, submit it, say what came of it."""

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
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.control.bodies import LogLevelBody, QuarantineBody, VerifyBody
from headrace.pipeline.ordering import follow, result_of
from headrace.state import Order, OrderKind
from headrace.state.orders import new_order
from headrace.status.board import StatusBoard
from headrace.status.bodies import NoOptions, read_body
from headrace.status.refusal import Refusal, refusal_of, refuse

if TYPE_CHECKING:
    from headrace.pipeline.running import RunningPipeline

Answer = Callable[[Request], Awaitable[Response]]

_AT_ONCE_SECONDS = 5.0


class ControlPages:
    """The pages of the private address.

    Args:
        running: the pipeline that is ordered about.
    """

    def __init__(self, running: RunningPipeline) -> None:
        self._running = running

    def application(self) -> Starlette:
        """Return the application; whoever gets so far has a token."""
        quarantine = "/v1/indexes/{index}/quarantine"
        routes = [
            self._route("GET", "/v1/status", "status", self._status, "read"),
            self._route("GET", "/v1/orders", "orders", self._list_orders, "read"),
            self._route("GET", "/v1/orders/{id}", "orders", self._show_order, "read"),
            self._order("/v1/indexes/{index}/reindex", OrderKind.REINDEX),
            self._order("/v1/indexes/{index}/rollback", OrderKind.ROLLBACK),
            self._order("/v1/indexes/{index}/verify", OrderKind.VERIFY, VerifyBody),
            self._order("/v1/reload", OrderKind.RELOAD),
            self._order("/v1/pause", OrderKind.PAUSE, at_once=True),
            self._order("/v1/resume", OrderKind.RESUME, at_once=True),
            self._order("/v1/log-level", OrderKind.LOG_LEVEL, LogLevelBody, method="PUT", at_once=True),
        ]
        for path in ("/v1/quarantine", quarantine):
            routes += [
                self._route("GET", path, "quarantine_list", self._list_quarantine, "read"),
                self._order(f"{path}/retry", OrderKind.QUARANTINE_RETRY, QuarantineBody),
                self._order(f"{path}/drop", OrderKind.QUARANTINE_DROP, QuarantineBody, at_once=True),
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
            board.count_request(order, "accepted")
            return response

        return Route(path, endpoint, methods=[method])

    # What only looks.

    async def _status(self, _: Request) -> Response:
        return _json(self._running.status())

    async def _list_orders(self, _: Request) -> Response:
        orders = await run_in_threadpool(self._running.desk.mailbox.read)
        return _json([_order_data(order) for order in orders])

    async def _show_order(self, request: Request) -> Response:
        order = await run_in_threadpool(self._running.desk.mailbox.get, request.path_params["id"])
        if order is None:
            raise refuse(
                HTTPStatus.NOT_FOUND,
                "not_found",
                "no such order is known",
                "GET /v1/orders lists the last ones.",
            )
        return _json(_order_data(order))

    async def _list_quarantine(self, request: Request) -> Response:
        index, document = request.path_params.get("index"), request.query_params.get("id")
        entries = await run_in_threadpool(self._running.quarantined, index, document)
        return _json([entry.to_json() for entry in entries])

    # Orders.

    def _order(
        self,
        path: str,
        kind: OrderKind,
        model: type[NoOptions] = NoOptions,
        *,
        method: str = "POST",
        at_once: bool = False,
    ) -> Route:
        """Return the route that submits an order of the index in the path, else of the whole run.

        It answers with the order; of one that is done at once, with its result, where that comes soon.
        """

        async def answer(request: Request) -> Response:
            options = (await read_body(request, model)).model_dump()
            sink, index = options.pop("sink", None) or "", request.path_params.get("index")
            # What is in quarantine may be of an index that the deployment has no more.
            if index is not None and model is not QuarantineBody:
                self._check_index(index)
            order = new_order(kind, index, sink, options, by=_who(request), client=_client(request))
            order = await run_in_threadpool(self._running.submit, order)
            if at_once:
                order = await run_in_threadpool(follow, self._running.desk.mailbox, order, _AT_ONCE_SECONDS)
                # Else a run that works elsewhere has not come to it yet; who asked follows the order.
                if order.has_ended:
                    return _json(result_of(order))
            place = f"/v1/orders/{order.id}"
            return JSONResponse(_order_data(order), HTTPStatus.ACCEPTED, {"Location": place})

        return self._route(method, path, kind.key, answer)

    def _check_index(self, name: str) -> None:
        """Check that the deployment has an index.

        Raises:
            Refusal: it has not.
        """
        known = [index.name for index in self._running.board.view().indexes]
        if name not in known:
            raise refuse(
                HTTPStatus.NOT_FOUND,
                "unknown_index",
                "the deployment has no enabled index of this name",
                f"It has {', '.join(known) or 'none'}.",
            )


def _order_data(order: Order) -> dict[str, Any]:
    """Return an order as JSON values; until it has ended it is said to be running."""
    error = order.error
    return {
        "id": order.id,
        "order": order.kind.key,
        "index": order.index,
        "sink": order.sink or None,
        "by": order.by,
        "client": order.client,
        "asked_at": order.asked_at,
        "state": order.state if order.has_ended else "running",
        "ended_at": order.ended_at,
        "text": order.text,
        "result": order.result,
        "error": error and asdict(error),
    }


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
        HTTPStatus.NOT_FOUND, "not_found", "there is no such page", "docs/guides/control.md lists the pages."
    )


def _refused(board: StatusBoard, order: str, refusal: Refusal) -> Response:
    board.count_request(order, refusal.outcome)
    return refusal.response()


def _json(content: Any) -> Response:
    return JSONResponse(content)
