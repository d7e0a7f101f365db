"""`headrace check`: is everything in place for `run`? Reads only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.cli import terminal
from headrace.cli.continuity import check_origin
from headrace.cli.inspection import Inspection, inspect
from headrace.cli.project import Here, Project, each, open_project
from headrace.errors import HeadraceError
from headrace.postgres.connection import connect
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.steps import Step, render
from headrace.sinks.opensearch import Client, MetaIndex

_SINK_SECONDS = 5.0


@dataclass
class Report:
    """What was found; `indexes` are those that the files ask for."""

    indexes: list[str] = field(default_factory=list)
    errors: list[HeadraceError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    proposed: list[Step] = field(default_factory=list)
    coverage: list[TableCoverage] = field(default_factory=list)


def check_deployment(
    config: Path,
    environ: Mapping[str, str],
    slot: str | None,
    publication: str | None,
    *,
    offline: bool,
    as_json: bool,
) -> list[HeadraceError]:
    """Report on files, database and sink, whatever of them can be reached; what keeps `run` from starting."""
    report = Report()
    try:
        project = open_project(config, environ, slot=slot, publication=publication)
        report.indexes += project.specs
        if not offline:
            _look(project, project.resolve(), report)
    except HeadraceError as error:
        report.errors += each(error)
    if as_json:
        terminal.out.print_json(json.dumps(_as_data(report)))
    else:
        _tell(report, offline=offline)
    return report.errors


def _look(project: Project, here: Here, report: Report) -> None:
    inspection = None
    try:
        with connect(here.database, application_name="headrace check") as connection:
            inspection = inspect(project, here, connection)
    except HeadraceError as error:
        report.errors.append(error)
    else:
        report.errors += inspection.errors()
        report.warnings += _warnings(inspection)
        report.steps += inspection.setup.steps
        report.proposed += inspection.setup.proposed
        report.coverage += inspection.coverage
    try:
        _look_at_sink(project, here, inspection)
    except HeadraceError as error:
        report.errors.append(error)


def _look_at_sink(project: Project, here: Here, inspection: Inspection | None) -> None:
    client = Client(here.sink)
    try:
        client.wait_until_ready(_SINK_SECONDS)
        if inspection is not None:
            state = MetaIndex(client, project.slot, project.prefix).load()
            check_origin(state, inspection.server, inspection.slot)
    finally:
        client.close()


def _warnings(inspection: Inspection) -> list[str]:
    found = [str(one.error) for one in inspection.findings if one.level == "warning"]
    if inspection.server.max_slot_wal_keep_size is None:
        found.append(
            "max_slot_wal_keep_size is -1: while Headrace is stopped the server keeps its log without limit"
        )
    slot = inspection.slot
    if slot is not None and slot.reader is not None:
        found.append(f"the slot {slot.name!r} is being read ({slot.reader}): a run would wait for its end")
    if slot is not None and slot.wal_status == "unreserved":
        found.append(
            f"the slot {slot.name!r} is about to be lost: it holds back more than max_slot_wal_keep_size"
        )
    return [*found, *inspection.setup.warnings]


def _as_data(report: Report) -> dict[str, object]:
    return {
        "ok": not report.errors,
        "errors": [{"code": error.code, "text": str(error)} for error in report.errors],
        "warnings": report.warnings,
        "setup": render((*report.steps, *report.proposed)),
        "coverage": [_coverage_data(one) for one in report.coverage],
    }


def _coverage_data(one: TableCoverage) -> dict[str, object]:
    names = {"table": str(one.table), "root": str(one.root), "complete": one.complete}
    return {**asdict(one), **names}


def _tell(report: Report, *, offline: bool) -> None:
    _tell_coverage(report.coverage)
    if report.steps:
        terminal.out.print("`headrace setup` (which shows locks, costs and undo) or the first run will do:")
        for statement in (sql for step in report.steps for sql in step.gist):
            terminal.out.print(f"  {statement};", markup=False)
    for warning in report.warnings:
        terminal.warn(warning)
    for error in report.errors:
        terminal.fail(error)
    if not report.errors:
        names = ", ".join(report.indexes)
        terminal.done(f"{names}: the files are right" if offline else f"{names}: ready to run")


def _tell_coverage(tables: Sequence[TableCoverage]) -> None:
    """A row for each table; what is complete says so in a word."""
    if not tables:
        return
    rows = [(str(one.table), ", ".join(one.required), _state(one)) for one in tables]
    terminal.table(("table", "old rows must carry", "state"), rows)
    for one in tables:
        if one.why_not:
            terminal.say(f"  {one.table} is not for Headrace to mend: {one.why_not}")


def _state(one: TableCoverage) -> str:
    found = [] if one.published else ["not published"]
    if one.missing:
        found.append(f"{', '.join(one.missing)} missing (replica identity {one.identity})")
    found.extend(one.hidden)
    return "; ".join(found) or ("complete" if one.complete else "needs a key")
