"""`headrace setup` and `headrace teardown`: show the SQL, ask, run it."""

from __future__ import annotations

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.tools.setup import PlannedTeardown, plan_setup, plan_teardown


def set_up(context: CommandContext) -> bool:
    """Create the publication and set replica identities, after a question; return whether it was done.

    The first run creates the slot, with its snapshot.

    Raises:
        HeadraceError: the set-up is impossible.
    """
    project = context.open_project()
    planned = plan_setup(project, terminal.TerminalReporter())
    for warning in planned.warnings:
        terminal.warn(warning)
    if not planned.steps:
        terminal.done("nothing to do: publication and replica identities are as the documents need them")
        return True
    terminal.script("what the documents need:", planned.steps)
    if not terminal.agreed("Apply this?", yes=context.yes):
        return False
    planned.apply()
    terminal.done("done; `headrace run` creates the slot and backfills")
    return True


def tear_down(context: CommandContext, *, indexes: bool, moved: bool) -> bool:
    """Remove what was created in the database and, with `indexes`, in the cluster, after a question.

    Raises:
        HeadraceError: as for `plan_teardown`.
    """
    project = context.open_project()
    with plan_teardown(project, terminal.TerminalReporter(), indexes=indexes, moved=moved) as planned:
        _show(planned)
        if not terminal.agreed("Undo all of this?", yes=context.yes):
            return False
        planned.apply()
    terminal.done("done")
    return True


def _show(planned: PlannedTeardown) -> None:
    for warning in planned.plan.warnings:
        terminal.warn(warning)
    if planned.plan.steps:
        terminal.script("what is taken back:", planned.plan.steps)
    else:
        terminal.say("nothing to undo in the database")
    if planned.aliases:
        terminal.say(f"and the search indexes behind {', '.join(planned.aliases)} are deleted")
