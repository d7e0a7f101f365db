"""`headrace adopt --upgraded`: go on with a server that pg_upgrade has made of the one before."""

from __future__ import annotations

from headrace.capture.upgrade import PlannedAdoption
from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.model.lsn import format_lsn
from headrace.tools.upgrade import plan_adoption


def adopt_server(context: CommandContext) -> bool:
    """Let the deployment go on with a server that pg_upgrade has made of the one before, after a question.

    Raises:
        HeadraceError: as for `headrace.tools.upgrade.plan_adoption`.
    """
    with plan_adoption(context.open_project()) as planned:
        return _adopt(context, planned, "headrace run")


def adopt_server_of_mirror(context: CommandContext) -> bool:
    """As `adopt_server`, for the mirror.

    Raises:
        HeadraceError: as for `headrace.mirror.upgrade.plan_adoption`.
    """
    with context.open_mirror().plan_adoption() as planned:
        return _adopt(context, planned, "headrace mirror")


def _adopt(context: CommandContext, planned: PlannedAdoption, command: str) -> bool:
    """Show both systems and positions, ask, and apply."""
    position = format_lsn(planned.confirmed)
    terminal.say(f"the system was {planned.before}, and its log was read to {format_lsn(planned.reached)}")
    terminal.say(f"the system is {planned.system}, and its slot stands at {position}")
    terminal.say("publication and tables are the same")
    agreed = context.agrees("Has pg_upgrade made this server of the one before?")
    if agreed:
        planned.apply()
        terminal.done(f"done; `{command}` goes on from there")
    if context.as_json:
        terminal.data({"system": planned.system, "position": position, "done": agreed})
    return agreed
