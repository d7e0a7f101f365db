"""`headrace check`: is everything in place for `run`? Reads only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from headrace.cli import terminal
from headrace.cli.inspection import Inspection, inspect
from headrace.cli.project import Project, open_project
from headrace.errors import HeadraceError
from headrace.postgres.connection import connect
from headrace.postgres.steps import render
from headrace.sinks.opensearch import Client

_SINK_SECONDS = 5.0


def check_deployment(
    config: Path,
    environ: Mapping[str, str],
    slot: str | None,
    publication: str | None,
    *,
    offline: bool,
    as_json: bool,
) -> bool:
    """Report on files, database and sink; whether `run` could start.

    Raises:
        HeadraceError: where the files or the database cannot be read at all.
    """
    project = open_project(config, environ, slot=slot, publication=publication)
    errors: list[HeadraceError] = []
    warnings: list[str] = []
    script = ""
    if not offline:
        here = project.resolve()
        with connect(here.database, application_name="headrace check") as connection:
            inspection = inspect(project, here, connection)
        errors += inspection.errors()
        warnings += _warnings(inspection)
        script = render((*inspection.setup.steps, *inspection.setup.proposed))
        errors += _sink_errors(Client(here.sink))
    if as_json:
        terminal.out.print_json(
            json.dumps(
                {
                    "ok": not errors,
                    "errors": [{"code": e.code, "text": str(e)} for e in errors],
                    "warnings": warnings,
                    "setup": script,
                }
            )
        )
    else:
        _tell(project, errors, warnings, script)
    return not errors


def _warnings(inspection: Inspection) -> list[str]:
    found = [str(one.error) for one in inspection.findings if one.level == "warning"]
    if inspection.server.max_slot_wal_keep_size is None:
        found.append(
            "max_slot_wal_keep_size is -1: while Headrace is stopped the server keeps its log without limit"
        )
    return [*found, *inspection.setup.warnings]


def _sink_errors(client: Client) -> list[HeadraceError]:
    try:
        client.wait_until_ready(_SINK_SECONDS)
    except HeadraceError as error:
        return [error]
    finally:
        client.close()
    return []


def _tell(project: Project, errors: list[HeadraceError], warnings: list[str], script: str) -> None:
    for warning in warnings:
        terminal.warn(warning)
    for error in errors:
        terminal.fail(error)
    if script:
        terminal.out.print("-- what `headrace setup` or `headrace run` would do:", markup=False)
        terminal.out.print(script, markup=False)
    if not errors:
        names = ", ".join(project.specs)
        terminal.done(f"{names}: ready to run")
