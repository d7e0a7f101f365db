"""`headrace mirror verify`: compare the lake's tables with the database's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.errors import HeadraceError, Kind
from headrace.mirror.net_changes import Key
from headrace.mirror.verify import TableComparison
from headrace.model.names import TableName
from headrace.model.table_pattern import format_table, one_table
from headrace.model.units import quantity

_EXAMPLES = 5


def verify_mirror(context: CommandContext, tables: Sequence[str], *, repair: bool) -> bool:
    """Compare tables, all where none are named, and print what differs; return whether all are right.

    Raises:
        HeadraceError: USAGE, where a table's name cannot be read; as for `LakeComparer.compare`.
    """
    found = []
    named = [_table(text) for text in tables]
    for comparison in context.open_mirror().comparer().compare(named, repair=repair):
        found.append(comparison)
        if not context.as_json:
            _print(comparison, repair=repair)
    if context.as_json:
        terminal.data([_as_data(comparison) for comparison in found])
    return all(comparison.is_right for comparison in found)


def _table(text: str) -> TableName:
    try:
        return one_table(text)
    except ValueError as error:
        raise HeadraceError(Kind.USAGE, str(error), "Write a table as in public.orders.") from error


def _as_data(comparison: TableComparison) -> dict[str, object]:
    return asdict(comparison) | {"table": str(comparison.table), "right": comparison.is_right}


def _print(found: TableComparison, *, repair: bool) -> None:
    if not found.compared:
        again = ", and was read again" if found.read_again else ""
        terminal.say(f"{found.table}: a table of changes is not compared{again}")
    elif found.waits_for is not None:
        terminal.warn(f"{found.table} waits, and is not compared: {found.waits_for}")
        terminal.say("the output of `headrace mirror` says what to do; the mirror reads the table then")
    elif not found.wrong and not found.undecided:
        again = "; the table was read again" if found.read_again else ""
        rows = f"{found.table}: {quantity(found.rows, 'row')}"
        if found.changing:
            changed = f"{found.changing:,} changed at each look and was not compared"
            terminal.warn(f"{rows}, none wrong; {changed}{again}")
        else:
            terminal.done(f"{rows}, all as in the database{again}")
    else:
        _print_differences(found, repair=repair)


def _print_differences(found: TableComparison, *, repair: bool) -> None:
    terminal.warn(f"{found.table}: {quantity(found.rows, 'row')} in the database")
    differences = {"missing": found.missing, "surplus": found.surplus, "different": found.different}
    for what, count in found.counts.items():
        if count:
            more = f" … and {count - _EXAMPLES:,} more" if count > _EXAMPLES else ""
            shown = ", ".join(map(_shown, differences[what][:_EXAMPLES]))
            terminal.answer(f"  {what:<10} {quantity(count, 'row')}, by key: {shown}{more}")
    if found.undecided:
        terminal.answer(f"  undecided  {found.undecided:,}: they differ; the log may have their changes")
        terminal.say("Start `headrace mirror`, or run `headrace mirror --once`, and verify again")
    if found.repaired:
        terminal.answer(f"  repaired   {quantity(found.repaired, 'row')}")
    if 0 < found.wrong <= found.repaired:
        terminal.done(f"{found.table} was repaired: all as in the database")
    if found.wrong and not repair:
        command = f"headrace mirror verify {format_table(found.table)} --repair"
        terminal.say(f"`{command}` reads the table again; no mirror may run meanwhile")
    elif found.wrong > found.repaired:
        terminal.say("`headrace mirror --reload` reads everything again")


def _shown(key: Key) -> str:
    return json.dumps(key[0] if len(key) == 1 else list(key), default=str, ensure_ascii=False)
