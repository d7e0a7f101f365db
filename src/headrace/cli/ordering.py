"""`headrace reindex`, `rollback`, `reload`, `pause`, `resume`, `log-level`: give an order, tell its end."""

from __future__ import annotations

from typing import Any, Literal

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.ordering import follow, follow_at_once, result_of
from headrace.state import Mailbox, Order, OrderKind
from headrace.state.orders import new_order
from headrace.tools.applied_position import AppliedPosition
from headrace.tools.generation_orders import check_generation_order

_TAKEN_SECONDS = 30.0


def order_generation(
    context: CommandContext, index: str, kind: Literal["reindex", "rollback"], *, wait: float | None
) -> None:
    """Order a reindex or a rollback of `index`.

    Args:
        context: the deployment.
        index: the name of the index.
        kind: what is ordered.
        wait: seconds to wait until it is done; None returns at once.

    Raises:
        HeadraceError: as for `check_generation_order` and `result_of`; CONFIG; BEHIND after `wait`.
    """
    project, order = context.open_project(index), new_order(OrderKind(kind), index)
    what = f"{kind} {index}"
    with AppliedPosition(project.resolve(), project.key) as applied:
        mailbox = Mailbox(applied.client, project.key)
        check_generation_order(applied, project, order)
        order = mailbox.submit(order)
        if applied.find_running() is not None:
            terminal.say(f"{what}: ordered; `headrace status` shows its progress")
        else:
            terminal.say(f"{what}: no run is active; the next `headrace run` begins with it")
        if wait is None:
            _report(context, order)
            return
        with terminal.working(f"waiting for {what} …"):
            order = follow(mailbox, order, wait)
    if not order.has_ended:
        remedy = "`headrace status` shows how far it is."
        raise HeadraceError(Kind.BEHIND, f"{what} is not done after {wait:g} s", remedy)
    result = result_of(order)
    terminal.done(f"{index}: readers see {result['generation']}")
    _report(context, order, result)


def order_reload(context: CommandContext, *, wait: float) -> None:
    """Ask the running pipeline to read its files again, and wait until it has taken them up.

    Args:
        context: the deployment.
        wait: seconds to wait for the answer.

    Raises:
        ErrorGroup: every mistake that kept the run from taking them up.
        HeadraceError: BEHIND without an answer in time; SLOT_UNKNOWN, CONFIG, CONNECTION, SINK_UNREACHABLE.
    """
    with AppliedPosition(*context.open_endpoints()) as applied:
        # An order to a deployment that nobody runs from this database would wait unread.
        applied.check()
        mailbox = Mailbox(applied.client, applied.key)
        order = mailbox.submit(new_order(OrderKind.RELOAD))
        # After the submission: a run that begins now finds the order, or is found here.
        running = applied.find_running()
        if running is None:
            terminal.say("no run is active; the next `headrace run` reads the files")
            _report(context, order)
            return
        with terminal.working("waiting for the running pipeline …"):
            order = follow(mailbox, order, wait)
    if not order.has_ended:
        remedy = "`headrace status` says what it waits for; it reads the files once it can."
        raise HeadraceError(Kind.BEHIND, f"the run ({running}) has not answered after {wait:g} s", remedy)
    result = result_of(order)
    terminal.done(f"the run has read the files: {order.text}")
    _report(context, order, result)


def order_run(
    context: CommandContext, kind: Literal["pause", "resume", "log level"], done: str, **options: str
) -> None:
    """Order something of the run, and return once it is done.

    Args:
        context: the deployment.
        kind: what is ordered.
        done: what is printed then.
        options: what the order says more.

    Raises:
        HeadraceError: BEHIND: no run has taken the order; CONFIG, SLOT_UNKNOWN, SINK_UNREACHABLE.
    """
    with AppliedPosition(*context.open_endpoints()) as applied, terminal.working("waiting for the run …"):
        applied.check()
        mailbox = Mailbox(applied.client, applied.key)
        order = mailbox.submit(new_order(OrderKind(kind), options=options))
        result = follow_at_once(mailbox, order, _TAKEN_SECONDS)
    terminal.done(done)
    _report(context, order, result)


def _report(context: CommandContext, order: Order, result: Any = None) -> None:
    """Print an order as JSON, where that is asked for; without a result it is still open."""
    if context.as_json:
        state = "open" if result is None else "done"
        found = {"id": order.id, "kind": order.kind.value, "index": order.index}
        terminal.data({**found, "state": state, "result": result})
