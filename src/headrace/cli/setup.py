"""`headrace setup` and `headrace teardown`: show the SQL, ask, run it."""

from __future__ import annotations

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.postgres.ddl_plan import render
from headrace.tools.setup import plan_setup, plan_teardown


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
    if planned.steps and not context.as_json:
        terminal.script("what the documents need:", planned.steps)
    is_agreed = not planned.steps or context.agrees("Apply this?")
    if not planned.steps:
        terminal.done("nothing to do: publication and replica identities are as the documents need them")
    elif is_agreed:
        planned.apply()
        terminal.done("done; `headrace run` creates the slot and backfills")
    if context.as_json:
        terminal.data({"sql": planned.sql, "warnings": planned.warnings, "done": is_agreed})
    return is_agreed


def tear_down(context: CommandContext, *, indexes: bool, moved: bool) -> bool:
    """Remove what was created in the database and, with `indexes`, in the cluster, after a question.

    Raises:
        HeadraceError: as for `plan_teardown`.
    """
    project = context.open_project()
    # The plan holds the slot's lock and the lease, so no run begins between the question and the answer.
    with plan_teardown(project, terminal.TerminalReporter(), indexes=indexes, moved=moved) as planned:
        for warning in planned.plan.warnings:
            terminal.warn(warning)
        if not planned.plan.steps:
            terminal.say("nothing to undo in the database")
        elif not context.as_json:
            terminal.script("what is undone:", planned.plan.steps)
        if planned.aliases:
            terminal.say(f"and the search indexes of {', '.join(planned.aliases)} are deleted")
        is_agreed = context.agrees("Undo all of this?")
        if is_agreed:
            planned.apply()
            terminal.done("done")
    if context.as_json:
        found = {"sql": render(planned.plan.steps), "warnings": planned.plan.warnings}
        terminal.data({**found, "aliases": planned.aliases, "done": is_agreed})
    return is_agreed
