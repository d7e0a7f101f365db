"""`headrace pause`, `resume`, `log-level`: orders for a whole run, by its private address or the cluster."""

from __future__ import annotations

import getpass
import socket

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.run_orders import request_of_run
from headrace.state.run_requests import RunRequestKind, RunRequests

_PATHS: dict[RunRequestKind, tuple[str, str]] = {
    "pause": ("POST", "/v1/pause"),
    "resume": ("POST", "/v1/resume"),
    "log_level": ("PUT", "/v1/log-level"),
}
_TAKEN_SECONDS = 30.0


def order_run(context: CommandContext, kind: RunRequestKind, done: str, level: str = "") -> None:
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
    client = context.open_control()
    if client is not None:
        method, path = _PATHS[kind]
        client.ask(method, path, {"level": level} if level else {})
    else:
        endpoints, key = context.open_endpoints()
        with AppliedPosition(endpoints, key) as applied, terminal.working("waiting for the run …"):
            requests = RunRequests(applied.client, key)
            request_of_run(applied, requests, kind, by=_who(), value=level, seconds=_TAKEN_SECONDS)
    terminal.done(done)


def _who() -> str:
    """Return the user and the host, for the log of the run."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id without a name, as in many containers
        user = "?"
    return f"{user}@{socket.gethostname()}"
