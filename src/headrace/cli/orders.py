"""`headrace orders`: list what was asked of a deployment last, by whom, when, and what came of it."""

from __future__ import annotations

import contextlib
from datetime import datetime

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.sinks.opensearch import Client
from headrace.state import Mailbox, Order


def show_orders(context: CommandContext) -> None:
    """Print the last orders of the deployment, oldest first.

    Raises:
        HeadraceError: CONFIG, SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    endpoints, key = context.open_endpoints()
    with contextlib.closing(Client(endpoints.keeps_state)) as client:
        orders = Mailbox(client, key).read()
    if context.as_json:
        terminal.data([order.to_json() for order in orders])
    elif orders:
        head = ("asked at", "order", "index", "by", "state", "what came of it")
        terminal.table(head, [_row(order) for order in orders])
    else:
        terminal.say("no orders yet")


def _row(order: Order) -> tuple[str, ...]:
    sink = f" in {order.sink}" if order.sink else ""
    source = f" from {order.client}" if order.client else ""
    index, by = f"{order.index or ''}{sink}", f"{order.by}{source}"
    asked_at = datetime.fromisoformat(order.asked_at).strftime("%Y-%m-%d %H:%M:%S")
    return asked_at, order.kind.value, index, by, order.state, order.text
