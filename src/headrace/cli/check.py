"""`headrace check`: is everything in place for `run`? Alters nothing that was there."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

from headrace.cli import terminal
from headrace.cli.report import CheckReport, Level, Problem, problem, warning
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.suggestion import some
from headrace.pipeline.continuity import GapError, check_origin
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import OPENSEARCH, Endpoints, Project, error_list, open_loadable
from headrace.postgres.connection import connect
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.ddl_plan import render
from headrace.sinks.opensearch import Client, Generations, MetaIndex, mapping
from headrace.sinks.opensearch.cautions import of_endpoints, of_index
from headrace.sinks.opensearch.settings import check_pipeline, is_accepted, try_out
from headrace.sinks.registry import open_sink

_SINK_SECONDS = 1.0
_INDEXES_AT_ONCE = 4


def check_deployment(
    config: Path,
    environ: Mapping[str, str],
    slot: str | None,
    publication: str | None,
    *,
    offline: bool,
    as_json: bool,
) -> int:
    """Report on files, database and sink, whatever of them can be reached; returns the exit code.

    A schema file that cannot be read does not hide what is wrong with the others.
    """
    report = CheckReport()
    try:
        project, mistakes = open_loadable(config, environ, slot=slot, publication=publication)
        report.add(mistakes)
        if project is not None:
            report.indexes += project.specs
            if not offline:
                on_gap = environ.get("HEADRACE_ON_GAP") or project.deployment.source.on_gap
                _look(project, project.resolve(), report, whole=not mistakes, on_gap=on_gap)
    except HeadraceError as error:
        report.add(error_list(error))
    if as_json:
        terminal.data(_as_data(report))
    else:
        _tell(report, offline=offline)
    return report.exit_code


def _look(project: Project, endpoints: Endpoints, report: CheckReport, *, whole: bool, on_gap: str) -> None:
    """Look at database and sink; what `setup` would do is only told where the `whole` project is known."""
    inspection = None
    try:
        with connect(endpoints.database, application_name="headrace check") as connection:
            inspection = inspect(project, endpoints, connection)
    except HeadraceError as error:
        report.add(error_list(error))
    else:
        found = (problem(one.level, one.error, one.sql) for one in inspection.findings)
        report.problems += sorted(found, key=_place)
        report.add(one for one in inspection.problems if one.kind is not Kind.SLOT_LOST)
        report.problems += _about_server(inspection)
        report.add(inspection.setup.refused)
        report.add_outstanding(inspection.setup.outstanding)
        if whole and not any(one.level == "error" for one in inspection.findings):
            report.problems += [warning(Kind.REPLICA_IDENTITY, text) for text in inspection.setup.warnings]
            report.steps += inspection.setup.steps
            report.proposed += inspection.setup.proposed
            report.coverage += inspection.coverage
    gap = next(
        (
            _gap(one)
            for one in (inspection.problems if inspection is not None else ())
            if one.kind is Kind.SLOT_LOST
        ),
        None,
    )
    try:
        _look_at_sink(project, endpoints, inspection, report)
    except GapError as error:  # it knows more of the slot
        gap = error
    except HeadraceError as error:
        report.add(error_list(error))
        gap = None if error.kind is Kind.SLOT_UNKNOWN else gap
    if gap is not None:
        _tell_gap(gap, report, reseeds=on_gap == "reseed")
    for name, there in endpoints.secondary.items():
        _look_at_further(project.of_sink(name), there, report)


def _gap(error: HeadraceError) -> GapError:
    """The same of a deployment's slot: the remedy is the deployment's."""
    return GapError(error.kind, error.cause)


def _tell_gap(gap: GapError, report: CheckReport, *, reseeds: bool) -> None:
    """An error, but where a run mends it by itself."""
    if not reseeds:
        report.add([gap])
        return
    remedy = "The next `headrace run` builds everything anew; readers keep what is served until then."
    known = HeadraceError(gap.kind, f'{gap.cause} (on_gap = "reseed")', remedy)
    report.problems.append(problem("warning", known))


def _place(one: Problem) -> tuple[str, int, int]:
    return one.file or "", one.line or 0, one.column or 0


def _look_at_sink(
    project: Project, endpoints: Endpoints, inspection: Inspection | None, report: CheckReport
) -> None:
    client = Client(endpoints.sink)
    try:
        client.wait_until_ready(_SINK_SECONDS)
        _look_at_indexes(project, client, report)
        if inspection is not None:
            state = MetaIndex(client, project.slot, project.prefix).load()
            check_origin(state, inspection.server, inspection.slot)
    finally:
        client.close()


def _look_at_further(project: Project, endpoints: Endpoints, report: CheckReport) -> None:
    """What a run would tell of it; where it is away, the others go on without it."""
    try:
        if project.kind == OPENSEARCH:
            with contextlib.closing(Client(endpoints.sink)) as client:
                client.wait_until_ready(_SINK_SECONDS)
                _look_at_indexes(project, client, report)
        elif project.kind != "stdout":
            open_sink(project.kind, endpoints.options).close()
    except HeadraceError as error:
        text = f"the sink {project.sink_name!r}: {error.cause}"
        if error.retry is Retry.BACK_OFF:
            report.problems.append(warning(error.kind, text))
        else:
            report.add([HeadraceError(error.kind, text, error.remedy)])


def _look_at_indexes(project: Project, client: Client, report: CheckReport) -> None:
    """What the cluster refuses of the indexes; each is made empty under a name of its own, and deleted."""
    report.problems += [warning(Kind.CONFIG, text) for text in of_endpoints([client.endpoint])]
    if project.sink.pipeline is not None:
        report.add(_tried(lambda: check_pipeline(client, project.sink.pipeline or "")))
    alike: dict[str, list[str]] = {}
    for name in project.specs:
        settings = mapping(project.specs[name], project.index_options(name))["settings"]
        alike.setdefault(json.dumps(settings, sort_keys=True), []).append(name)
    of_first = {names[0]: names for names in alike.values()}
    with ThreadPoolExecutor(_INDEXES_AT_ONCE) as threads:
        look = partial(_problems_of, project, client, of_first)
        for problems, risks in threads.map(look, project.specs):
            report.add(problems)
            report.problems += [warning(Kind.CONFIG, text) for text in risks]


def _problems_of(
    project: Project, client: Client, of_first: Mapping[str, Sequence[str]], name: str
) -> tuple[list[HeadraceError], list[str]]:
    """What is refused of one, and what should be known of it and of those with the same settings.

    To make an index costs the cluster a third of a second, so one is made of those with the same settings.

    Args:
        of_first: which indexes have the same settings, by the first of them.
    """
    risks: list[str] = []
    spec = project.specs[name]
    taken = _tried(lambda: Generations(client, project.prefix).published(name))
    body = mapping(spec, project.index_options(name))
    scratch = f"{project.prefix}headrace_check_{secrets.token_hex(6)}"
    if name not in of_first and is_accepted(client, scratch, body):
        return taken, []

    def look() -> None:
        if same := of_first.get(name):
            risks.extend(of_index(client, scratch, f"the index {some(same)}"))

    return taken + [
        HeadraceError(
            error.kind,
            f"{spec.place}: the cluster refuses an index for {name}: {error.cause}",
            error.remedy or "Correct the options of its fields, its settings_file or its mappings_file.",
        )
        for error in _tried(lambda: try_out(client, scratch, body, look))
    ], risks


def _tried(action: Callable[[], object]) -> list[HeadraceError]:
    try:
        action()
    except HeadraceError as error:
        if error.retry is Retry.BACK_OFF:
            raise
        return [error]
    return []


def _about_server(inspection: Inspection) -> list[Problem]:
    found = []
    if inspection.server.max_slot_wal_keep_size is None:
        text = (
            "max_slot_wal_keep_size is -1: while Headrace is stopped the server keeps its log without limit"
        )
        found.append(warning(Kind.DISK, text))
    slot = inspection.slot
    if slot is not None and slot.reader is not None:
        text = f"the slot {slot.name!r} is being read ({slot.reader}): a run would wait for its end"
        found.append(warning(Kind.SLOT_IN_USE, text))
    if slot is not None and slot.wal_status == "unreserved":
        text = f"the slot {slot.name!r} is about to be lost: it holds back more than max_slot_wal_keep_size"
        found.append(warning(Kind.SLOT_LOST, text))
    return found


def _as_data(report: CheckReport) -> dict[str, object]:
    return {
        "ok": not report.of("error"),
        "ready": not report.of("error") and not report.of("setup"),
        "findings": [one.as_data() for one in report.problems],
        "setup": render((*report.steps, *report.proposed)),
        "coverage": [_coverage_data(one) for one in report.coverage],
    }


def _coverage_data(one: TableCoverage) -> dict[str, object]:
    names = {"table": str(one.table), "root": str(one.root), "complete": one.complete}
    return {**asdict(one), **names}


def _tell(report: CheckReport, *, offline: bool) -> None:
    _tell_coverage(report.coverage)
    if report.steps:
        terminal.answer("`headrace setup` (which shows locks, costs and undo) or the first run will do:")
        for statement in (sql for step in report.steps for sql in step.gist):
            terminal.sql(f"{statement};", "  ")
    for one in report.of("warning"):
        terminal.warn(one.sentence, one.shown())
    for one in report.of("error"):
        terminal.wrong(one.sentence, one.shown())
    for one in report.of("setup"):
        terminal.say(f"to be set up: {one.sentence}")
    names = some(report.indexes)
    if report.of("error"):
        terminal.say(_counted(report))
    elif offline:
        terminal.done(f"{names}: the files are right")
    elif report.of("setup"):
        terminal.done(f"{names}: nothing is wrong; next: headrace setup")
    else:
        terminal.done(f"{names}: ready to run")


def _counted(report: CheckReport) -> str:
    levels: tuple[Level, ...] = ("error", "warning")
    counts = [(len(report.of(level)), level) for level in levels]
    return ", ".join(f"{count} {level}{'s' * (count > 1)}" for count, level in counts if count)


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
