"""`headrace check`: is everything in place for `run`? Reads only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cli import terminal
from headrace.cli.continuity import check_origin
from headrace.cli.inspection import Inspection, inspect
from headrace.cli.project import Here, Project, each, open_project
from headrace.errors import HeadraceError
from headrace.postgres.connection import connect
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
    return [*found, *inspection.setup.warnings]


def _as_data(report: Report) -> dict[str, object]:
    return {
        "ok": not report.errors,
        "errors": [{"code": error.code, "text": str(error)} for error in report.errors],
        "warnings": report.warnings,
        "setup": render((*report.steps, *report.proposed)),
    }


def _tell(report: Report, *, offline: bool) -> None:
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
