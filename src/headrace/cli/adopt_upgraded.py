"""`headrace adopt --upgraded`: go on with a server that pg_upgrade has made of the one before."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.config.load import load_deployment
from headrace.mirror.run import open_mirror
from headrace.model.lsn import Lsn, format_lsn
from headrace.reporter import SilentReporter
from headrace.tools.upgrade import plan_adoption


def adopt_server(context: CommandContext) -> bool:
    """Let the deployment go on with a server that pg_upgrade has made of the one before, after a question.

    Raises:
        HeadraceError: as for `headrace.tools.upgrade.plan_adoption`.
    """
    with plan_adoption(context.open_project()) as planned:
        before, after = planned.before, planned.after
        places = (before.system_identifier, before.applied), (after.system_identifier, after.applied)
        return _adopt(context, *places, "headrace run", planned.apply)


def adopt_server_of_mirror(context: CommandContext) -> bool:
    """As `adopt_server`, for the mirror.

    Raises:
        HeadraceError: as for `headrace.mirror.upgrade.plan_adoption`.
    """
    deployment = load_deployment(context.config, context.environ)
    mirrored = open_mirror(deployment, SilentReporter(), threading.Event()).mirrored
    with mirrored.plan_adoption() as planned:
        places = (
            (planned.before.system, planned.reached),
            (planned.now.origin.system, planned.now.confirmed or 0),
        )
        return _adopt(context, *places, "headrace mirror", planned.apply)


def _adopt(
    context: CommandContext,
    before: tuple[str, Lsn],
    after: tuple[str, Lsn],
    command: str,
    apply: Callable[[], None],
) -> bool:
    """Show both systems and positions, ask, and apply."""
    terminal.say(f"the system was {before[0]}, and its log was read to {format_lsn(before[1])}")
    terminal.say(f"the system is {after[0]}, and its slot stands at {format_lsn(after[1])}")
    terminal.say("publication and tables are the same")
    agreed = context.agrees("Has pg_upgrade made this server of the one before?")
    if agreed:
        apply()
        terminal.done(f"done; `{command}` goes on from there")
    if context.as_json:
        terminal.data({"system": after[0], "position": format_lsn(after[1]), "done": agreed})
    return agreed
