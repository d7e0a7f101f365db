"""`headrace reindex`, `rollback`, `reload`, `pause`, `resume`, `log-level`: give an order, and print its end.

An order goes to the private address where one is named, and through the cluster otherwise.
"""

from __future__ import annotations

from typing import Any

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.ordering import follow, follow_at_once, result_of, submit_for_generation
from headrace.pipeline.reloads import ReloadResult
from headrace.state import Mailbox, Order, OrderKind
from headrace.state.orders import new_order
from headrace.tools.control_client import index_path

_PATHS = {
    OrderKind.PAUSE: ("POST", "/v1/pause"),
    OrderKind.RESUME: ("POST", "/v1/resume"),
    OrderKind.LOG_LEVEL: ("PUT", "/v1/log-level"),
}
_TAKEN_SECONDS = 30.0


def order_generation(context: CommandContext, index: str, kind: OrderKind, *, wait: float | None) -> None:
    """Order a reindex or a rollback of `index`.

    Args:
        context: the deployment, or the private address of its run.
        index: the name of the index.
        kind: what is ordered.
        wait: seconds to wait until it is done; None returns at once.

    Raises:
        HeadraceError: as for `submit_for_generation` and `result_of`; CONFIG; BEHIND after `wait`.
    """
    client, what = context.open_control(), f"{kind.value} {index}"
    if client is not None:
        given = client.order(index_path(index, kind.value))
        terminal.say(f"{what}: ordered, as {given['id']}")
        if wait is None:
            _report(context, kind, given["id"], index)
            return
        with terminal.working(f"waiting for {what} …"):
            result = client.follow(given, wait)
        id_ = given["id"]
    else:
        order = _submit_generation(context, index, kind, wait)
        if wait is None:
            _report(context, kind, order.id, index)
            return
        if not order.has_ended:
            raise HeadraceError(
                Kind.BEHIND, f"{what} is not done after {wait:g} s", "`headrace indexes` shows how far it is."
            )
        result, id_ = result_of(order), order.id
    terminal.done(f"{index}: readers see {result['generation']}")
    _report(context, kind, id_, index, result)


def _submit_generation(context: CommandContext, index: str, kind: OrderKind, wait: float | None) -> Order:
    """Submit an order through the cluster; return it as it is after `wait`, or at once."""
    project, what = context.open_project(), f"{kind.value} {index}"
    with AppliedPosition(project.resolve(), project.key) as applied:
        order = submit_for_generation(applied, project, new_order(kind, index))
        if applied.find_running() is not None:
            terminal.say(f"{what}: ordered; `headrace indexes` shows its progress")
        else:
            terminal.say(f"{what}: nothing runs; the next `headrace run` begins with it")
        if wait is None:
            return order
        with terminal.working(f"waiting for {what} …"):
            return follow(Mailbox(applied.client, project.key), order, wait)


def order_reload(context: CommandContext, *, wait: float) -> None:
    """Ask the running pipeline to read its files again, and wait until it has taken them up.

    Args:
        context: the deployment, or the private address of its run.
        wait: seconds to wait for the answer.

    Raises:
        ErrorGroup: every mistake that kept the run from taking them up.
        HeadraceError: BEHIND without an answer in time; SLOT_UNKNOWN, CONFIG, CONNECTION, SINK_UNREACHABLE.
    """
    client = context.open_control()
    if client is not None:
        given = client.order("/v1/reload")
        with terminal.working("waiting for the running pipeline …"):
            result = client.follow(given, wait)
        terminal.done(f"the files are taken up: {ReloadResult(**result)}")
        _report(context, OrderKind.RELOAD, given["id"], result=result)
        return
    endpoints, key = context.open_endpoints()
    with AppliedPosition(endpoints, key) as applied:
        # An order to a deployment that nobody runs from this database would wait unread.
        applied.check()
        mailbox = Mailbox(applied.client, key)
        order = mailbox.submit(new_order(OrderKind.RELOAD))
        # After the submission: a run that begins now finds the order, or is found here.
        running = applied.find_running()
        if running is None:
            terminal.say("nothing runs; the next `headrace run` reads the files")
            _report(context, OrderKind.RELOAD, order.id)
            return
        with terminal.working("waiting for the running pipeline …"):
            order = follow(mailbox, order, wait)
    if not order.has_ended:
        raise HeadraceError(
            Kind.BEHIND,
            f"the run ({running}) has not answered after {wait:g} s",
            "`headrace status` says what it waits for; it reads the files once it can.",
        )
    result = result_of(order)
    terminal.done(f"the files are taken up: {order.text}")
    _report(context, OrderKind.RELOAD, order.id, result=result)


def order_run(context: CommandContext, kind: OrderKind, done: str, level: str = "") -> None:
    """Order something of the run, and return once it is done.

    Args:
        context: the deployment, or the private address.
        kind: what is ordered.
        done: what is printed then.
        level: the log level.

    Raises:
        HeadraceError: BEHIND: no run has taken the order; as for `ControlClient.ask`; CONFIG, SLOT_UNKNOWN,
            SINK_UNREACHABLE.
    """
    client, options = context.open_control(), {"level": level} if level else {}
    if client is not None:
        method, path = _PATHS[kind]
        # The address answers these at once, without the order's id.
        id_, result = None, client.follow(client.order(path, options, method), _TAKEN_SECONDS)
    else:
        endpoints, key = context.open_endpoints()
        with AppliedPosition(endpoints, key) as applied, terminal.working("waiting for the run …"):
            applied.check()
            mailbox = Mailbox(applied.client, key)
            order = mailbox.submit(new_order(kind, options=options))
            id_, result = order.id, follow_at_once(mailbox, order, _TAKEN_SECONDS)
    terminal.done(done)
    _report(context, kind, id_, result=result)


def _report(
    context: CommandContext, kind: OrderKind, id_: str | None, index: str | None = None, result: Any = None
) -> None:
    """Print an order as JSON, where that is asked for; without a result it is still open."""
    if context.as_json:
        state = "open" if result is None else "done"
        terminal.data({"id": id_, "kind": kind.value, "index": index, "state": state, "result": result})
