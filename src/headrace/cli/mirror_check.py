"""`headrace mirror check`: tell what the start of a mirror would do."""

from __future__ import annotations

from dataclasses import asdict

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.mirror.plan import MirrorPlan, TablePlan, total
from headrace.model.lsn import format_lsn
from headrace.model.units import quantity, size


def check_mirror(context: CommandContext) -> bool:
    """Print what a start does with each table; return whether none would wait.

    Raises:
        HeadraceError: what keeps it from starting; every mistake at once.
    """
    plan = context.open_mirror().plan()
    if context.as_json:
        terminal.data(_as_data(plan))
        return not plan.waiting
    head = ("table", "mode", "rows (estimate)", "size in PostgreSQL", "the next start")
    terminal.table(head, [_row(table) for table in plan.tables], right=(2, 3))
    for what, name in (("publication", plan.publication), ("slot", plan.slot)):
        if name is not None:
            terminal.say(f"the {what} {name} will be created")
    for table, why in sorted(plan.left_out.items()):
        terminal.say(f"{table} is left out: {why}")
    for text in plan.warnings:
        terminal.warn(text)
    for table, error in sorted(plan.waiting.items()):
        terminal.warn(f"{table} will wait: {error.cause}. {error.remedy}")
    if plan.waiting:
        terminal.warn(
            f"the mirror can start: {_summary(plan)}; {quantity(len(plan.waiting), 'table')} will wait"
        )
    else:
        terminal.done(f"ready to run: {_summary(plan)}")
    return not plan.waiting


def _as_data(plan: MirrorPlan) -> dict[str, object]:
    return {
        "tables": [asdict(table) | {"table": str(table.table)} for table in plan.tables],
        "publication": plan.publication,
        "slot": plan.slot,
        "waiting": {str(table): str(error) for table, error in sorted(plan.waiting.items())},
        "left_out": {str(table): why for table, why in sorted(plan.left_out.items())},
        "warnings": plan.warnings,
    }


def _row(table: TablePlan) -> tuple[str, ...]:
    rows = "unknown" if table.size.rows is None else f"{table.size.rows:,}"
    return str(table.table), table.mode, rows, size(table.size.size), _todo(table)


def _todo(table: TablePlan) -> str:
    if table.complete is not None:
        altered = "" if table.why is None else f"{table.why}; "
        return f"{altered}continues from position {format_lsn(table.complete)}"
    return "loads it" if table.why is None else f"reads it again: {table.why}"


def _summary(plan: MirrorPlan) -> str:
    if not plan.to_load:
        return f"{quantity(len(plan.tables), 'table')} loaded"
    loads = total(table.size for table in plan.to_load)
    return f"{len(plan.to_load)} of {quantity(len(plan.tables), 'table')} to load: {loads}"
