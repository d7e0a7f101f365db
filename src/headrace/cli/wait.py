"""`headrace wait`: wait until a commit is in the documents."""

from __future__ import annotations

import time

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.model.lsn import format_lsn
from headrace.tools.applied_position import AppliedPosition, parse_position, wait_until_applied


def wait_applied(
    context: CommandContext, *, lsn: str | None, searchable: bool, timeout: float, sink: str | None = None
) -> None:
    """Wait until everything before `lsn` is in the documents of every index.

    Args:
        context: the deployment.
        lsn: a position as PostgreSQL prints it; None: the end of the server's log now.
        searchable: refresh the indexes then, so that a search finds the changes.
        timeout: seconds.
        sink: the sink of the documents; None: the primary.

    Raises:
        HeadraceError: BEHIND after `timeout`; SLOT_UNKNOWN: the cluster does not know the deployment; USAGE,
            CONFIG, CONTINUITY, CONNECTION, SINK_UNREACHABLE.
    """
    wanted = None if lsn is None else parse_position(lsn)
    # The clock starts before files and servers are asked: `--timeout` is what the caller waits in all.
    began = time.monotonic()
    with AppliedPosition(*context.open_endpoints(sink)) as applied:
        awaited = applied.end_of_log() if wanted is None else wanted
        applied.check()
        with terminal.working(f"waiting for {format_lsn(awaited)} …"):
            wait_until_applied(applied, awaited, timeout=timeout, searchable=searchable, began=began)
    found = "applied, and found by a search" if searchable else "applied"
    seconds = time.monotonic() - began
    terminal.done(f"{format_lsn(awaited)} is {found}, after {seconds:.1f} s")
    if context.as_json:
        terminal.data({"lsn": format_lsn(awaited), "searchable": searchable, "seconds": round(seconds, 3)})
