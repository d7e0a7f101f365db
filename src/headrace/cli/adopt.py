"""`headrace adopt`: take over the name of another tool's index, or a server that pg_upgrade has made."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.capture.upgrade import PlannedAdoption
from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import format_lsn
from headrace.pipeline.project import find_index
from headrace.sinks.opensearch import Generations
from headrace.sinks.opensearch.adoption import adopt, check_deletable, find_published, holders
from headrace.tools.applied_position import AppliedPosition
from headrace.tools.upgrade import plan_adoption


def adopt_name(context: CommandContext, index: str | None, name: str | None, *, delete_index: bool) -> bool:
    """Point a name that readers use, by default the index's own, to the served generation.

    Raises:
        HeadraceError: USAGE for no index or an unknown one; SLOT_UNKNOWN where it is not served yet;
            SINK_REJECTED where an index must be deleted and may not; CONFIG, CONNECTION, SINK_UNREACHABLE,
            SINK_BUSY.
    """
    if index is None:
        remedy = "Name the index whose readers are led here; or give --upgraded, after pg_upgrade."
        raise HeadraceError(Kind.USAGE, "no index is named", remedy)
    project = context.open_project(index)
    find_index(project, index)
    name = index if name is None else name
    with AppliedPosition(project.resolve(), project.key) as applied:
        applied.check()
        client = applied.client
        generations = Generations(client, project.primary.prefix)
        served = find_published(generations, index)
        found = holders(client, name)
        # Before the question: nobody should agree to what is refused then.
        check_deletable(found, name, delete_index=delete_index)
        held = [holder.index for holder in found]
        found_now = {"name": name, "index": served.index, "before": held}
        if held == [served.index]:
            terminal.done(f"{name} leads to {served.index} already")
            _report(context, {**found_now, "done": True, "undo": None})
            return True
        deletes = name in held
        if deletes:
            what = f"the index {name} will be deleted with its documents"
            terminal.warn(f"{what}: only a copy of yours can restore it")
        else:
            before = ", ".join(held) or "nothing"
            terminal.say(f"{name} leads to {before} now, and will lead to {served.index}")
        if not context.agrees("Has everyone else stopped writing to that name?"):
            _report(context, {**found_now, "done": False, "undo": None})
            return False
        # Meanwhile a run may have published another generation.
        led, back = adopt(client, generations, index, name, delete_index=delete_index)
    terminal.done(f"{name} leads to {led}")
    restores = held and not deletes
    terminal.say(f"to {'take it back' if restores else f'free the name {name} again'}: POST /_aliases")
    undo = {"actions": back}
    terminal.data({**found_now, "index": led, "done": True, "undo": undo} if context.as_json else undo)
    return True


def _report(context: CommandContext, found: Mapping[str, object]) -> None:
    if context.as_json:
        terminal.data(found)


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
