"""`headrace check`: print what keeps a run from starting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.config.deployment import OnGap
from headrace.errors import HeadraceError
from headrace.model.suggestion import some
from headrace.model.units import quantity
from headrace.pipeline.project import error_list
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.ddl_plan import render
from headrace.tools.check import CheckReport, Level, check

_ON_GAP: Mapping[OnGap, str] = {
    "reseed": (
        'on_gap = "reseed": should the server ever drop log before a run has read it, the run rebuilds every '
        "index, and searches use the old ones until then. A different server or database stops the run"
    ),
    "stop": (
        'on_gap = "stop": should the server ever drop log before a run has read it, the run stops. '
        "So does a different server or database"
    ),
}


def check_deployment(context: CommandContext, *, offline: bool) -> int:
    """Check files, database and sinks, as far as they can be reached; return the exit code.

    A schema file that cannot be read does not hide the mistakes of the others.
    """
    report = CheckReport()
    # `check` has no option for it, but the run that it speaks of reads the variable.
    given = context.environ.get("HEADRACE_ON_GAP")
    on_gap = next((policy for policy in _ON_GAP if policy == given), None)
    try:
        project, mistakes = context.load_project()
        report.add(mistakes)
        if project is not None:
            report.indexes += project.specs
            if not offline:
                check(project, report, whole=not mistakes, on_gap=on_gap)
    except HeadraceError as error:
        report.add(error_list(error))
    if context.as_json:
        terminal.data(_as_data(report))
    else:
        _print(report, offline=offline)
    return report.exit_code


def _as_data(report: CheckReport) -> dict[str, object]:
    return {
        "ok": not report.of("error"),
        "ready": not report.of("error") and not report.of("setup"),
        "run": report.run,
        "on_gap": report.on_gap,
        "findings": [entry.as_data() for entry in report.problems],
        "setup": render((*report.steps, *report.proposed)),
        "coverage": [_coverage_data(entry) for entry in report.coverage],
    }


def _coverage_data(coverage: TableCoverage) -> dict[str, object]:
    names = {"table": str(coverage.table), "root": str(coverage.root), "complete": coverage.complete}
    return {**asdict(coverage), **names}


def _print(report: CheckReport, *, offline: bool) -> None:
    _print_coverage(report.coverage)
    if report.steps:
        show = "to see their locks, costs and undo first, and to agree, run `headrace setup`"
        terminal.answer(f"the first run executes these statements; {show}:")
        for statement in (sql for step in report.steps for sql in step.gist):
            terminal.sql(f"{statement};", "  ")
    for entry in report.of("warning"):
        terminal.warn(entry.sentence, entry.shown())
    for entry in report.of("error"):
        terminal.wrong(entry.sentence, entry.shown())
    for entry in report.of("setup"):
        terminal.say(f"to do before the first run: {entry.sentence}")
    _print_conclusion(report, offline=offline)


def _print_conclusion(report: CheckReport, *, offline: bool) -> None:
    """Print whether a run can start, and what it does at a gap."""
    if report.on_gap is not None and not report.of("error"):
        terminal.say(_ON_GAP[report.on_gap])
    names, wrong = some(report.indexes), _count(report) or "nothing is wrong"
    if report.of("error"):
        terminal.say(wrong)
    elif offline:
        terminal.done(f"{names}: the files are valid")
    elif report.of("setup"):
        terminal.done(f"{names}: {wrong}; next: headrace setup")
    elif report.run is not None:
        terminal.done(f"{names}: {wrong}; a run is active already ({report.run})")
        terminal.say("`headrace reload` makes it read edited files")
    else:
        terminal.done(f"{names}: {wrong}; ready to run")


def _count(report: CheckReport) -> str:
    levels: tuple[Level, ...] = ("error", "warning")
    counts = [(len(report.of(level)), level) for level in levels]
    return ", ".join(quantity(count, level) for count, level in counts if count)


def _print_coverage(tables: Sequence[TableCoverage]) -> None:
    """Print a row for each table, with what is incomplete."""
    if not tables:
        return
    rows = [(str(coverage.table), ", ".join(coverage.required), _state(coverage)) for coverage in tables]
    terminal.table(("table", "old rows must carry", "state"), rows)
    for coverage in tables:
        if coverage.why_not:
            terminal.say(f"  Headrace cannot change {coverage.table}: {coverage.why_not}")


def _state(coverage: TableCoverage) -> str:
    parts = [] if coverage.published else ["not published"]
    if coverage.missing:
        parts.append(f"{', '.join(coverage.missing)} missing (replica identity {coverage.identity})")
    parts.extend(coverage.hidden)
    return "; ".join(parts) or ("complete" if coverage.complete else "needs a key")
