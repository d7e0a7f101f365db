"""`headrace pause`, `resume`, `log-level`: orders for a whole run, by its private address or the cluster."""

from __future__ import annotations

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.ordering import follow_at_once
from headrace.state import Mailbox, OrderKind
from headrace.state.orders import new_order

_PATHS = {
    OrderKind.PAUSE: ("POST", "/v1/pause"),
    OrderKind.RESUME: ("POST", "/v1/resume"),
    OrderKind.LOG_LEVEL: ("PUT", "/v1/log-level"),
}
_TAKEN_SECONDS = 30.0


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
        client.follow(client.order(path, options, method), _TAKEN_SECONDS)
    else:
        endpoints, key = context.open_endpoints()
        with AppliedPosition(endpoints, key) as applied, terminal.working("waiting for the run …"):
            applied.check()
            mailbox = Mailbox(applied.client, key)
            follow_at_once(mailbox, mailbox.submit(new_order(kind, options=options)), _TAKEN_SECONDS)
    terminal.done(done)
