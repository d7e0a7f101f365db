"""`headrace reload`: let the running pipeline take up changed files."""

from __future__ import annotations

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.ordering import follow, result_of
from headrace.pipeline.reloads import ReloadResult
from headrace.state import Mailbox, OrderKind
from headrace.state.orders import new_order


def request_reload(context: CommandContext, *, wait: float) -> None:
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
        with terminal.working("waiting for the running pipeline …"):
            result = client.follow(client.order("/v1/reload"), wait)
        terminal.done(f"the files are taken up: {ReloadResult(**result)}")
        return
    endpoints, key = context.open_endpoints()
    with AppliedPosition(endpoints, key) as applied:
        applied.check()
        mailbox = Mailbox(applied.client, key)
        order = mailbox.submit(new_order(OrderKind.RELOAD))
        running = applied.find_running()
        if running is None:
            terminal.say("nothing runs; the next `headrace run` reads the files")
            return
        with terminal.working("waiting for the running pipeline …"):
            order = follow(mailbox, order, wait)
    if not order.has_ended:
        raise HeadraceError(
            Kind.BEHIND,
            f"the run ({running}) has not answered after {wait:g} s",
            "`headrace status` says what it waits for; it reads the files once it can.",
        )
    result_of(order)
    terminal.done(f"the files are taken up: {order.text}")
