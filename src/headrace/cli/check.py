"""`headrace check`: check files, database and cluster before a run; nothing that exists is altered."""

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
    """Check files, database and sinks, as far as they can be reached; return the exit code.

    A schema file that cannot be read does not hide the mistakes of the others.
    """
    report = CheckReport()
    try:
        project, mistakes = open_loadable(config, environ, slot=slot, publication=publication)
        report.add(mistakes)
        if project is not None:
            report.indexes += project.specs
            if not offline:
                on_gap = environ.get("HEADRACE_ON_GAP") or project.deployment.source.on_gap
                _check(project, project.resolve(), report, whole=not mistakes, on_gap=on_gap)
    except HeadraceError as error:
        report.add(error_list(error))
    if as_json:
        terminal.data(_as_data(report))
    else:
        _print(report, offline=offline)
    return report.exit_code


def _check(project: Project, endpoints: Endpoints, report: CheckReport, *, whole: bool, on_gap: str) -> None:
    """Check database and sinks; the set-up is only planned where the `whole` project is known."""
    inspection = None
    try:
        with connect(endpoints.database, application_name="headrace check") as connection:
            inspection = inspect(project, endpoints, connection)
    except HeadraceError as error:
        report.add(error_list(error))
    else:
        found = (problem(finding.level, finding.error, finding.sql) for finding in inspection.findings)
        report.problems += sorted(found, key=_place)
        report.add(error for error in inspection.problems if error.kind is not Kind.SLOT_LOST)
        report.problems += _server_warnings(inspection)
        report.add(inspection.setup.refused)
        report.add_outstanding(inspection.setup.outstanding)
        if whole and not any(finding.level == "error" for finding in inspection.findings):
            report.problems += [warning(Kind.REPLICA_IDENTITY, text) for text in inspection.setup.warnings]
            report.steps += inspection.setup.steps
            report.proposed += inspection.setup.proposed
            report.coverage += inspection.coverage
    gap = next(
        (
            _gap(error)
            for error in (inspection.problems if inspection is not None else ())
            if error.kind is Kind.SLOT_LOST
        ),
        None,
    )
    try:
        _check_sink(project, endpoints, inspection, report)
    except GapError as error:  # this error knows more about the slot
        gap = error
    except HeadraceError as error:
        report.add(error_list(error))
        gap = None if error.kind is Kind.SLOT_UNKNOWN else gap
    if gap is not None:
        _report_gap(gap, report, reseeds=on_gap == "reseed")
    for name, sink_endpoints in endpoints.secondary.items():
        _check_secondary(project.of_sink(name), sink_endpoints, report)


def _gap(error: HeadraceError) -> GapError:
    """Return the error with the remedy of a deployment's slot."""
    return GapError(error.kind, error.cause)


def _report_gap(gap: GapError, report: CheckReport, *, reseeds: bool) -> None:
    """Report a gap: an error, or a warning where a run reseeds by itself."""
    if not reseeds:
        report.add([gap])
        return
    remedy = "The next `headrace run` builds everything anew; readers keep what is served until then."
    known = HeadraceError(gap.kind, f'{gap.cause} (on_gap = "reseed")', remedy)
    report.problems.append(problem("warning", known))


def _place(entry: Problem) -> tuple[str, int, int]:
    return entry.file or "", entry.line or 0, entry.column or 0


def _check_sink(
    project: Project, endpoints: Endpoints, inspection: Inspection | None, report: CheckReport
) -> None:
    client = Client(endpoints.sink)
    try:
        client.wait_until_ready(_SINK_SECONDS)
        _check_indexes(project, client, report)
        if inspection is not None:
            state = MetaIndex(client, project.slot, project.prefix).load()
            check_origin(state, inspection.server, inspection.slot)
    finally:
        client.close()


def _check_secondary(project: Project, endpoints: Endpoints, report: CheckReport) -> None:
    """Check a secondary sink; one that is away is a warning, because a run goes on without it."""
    try:
        if project.kind == OPENSEARCH:
            with contextlib.closing(Client(endpoints.sink)) as client:
                client.wait_until_ready(_SINK_SECONDS)
                _check_indexes(project, client, report)
        elif project.kind != "stdout":
            open_sink(project.kind, endpoints.options).close()
    except HeadraceError as error:
        text = f"the sink {project.sink_name!r}: {error.cause}"
        if error.retry is Retry.BACK_OFF:
            report.problems.append(warning(error.kind, text))
        else:
            report.add([HeadraceError(error.kind, text, error.remedy)])


def _check_indexes(project: Project, client: Client, report: CheckReport) -> None:
    """Check the indexes in the cluster: each is created empty under a temporary name, and deleted."""
    report.problems += [warning(Kind.CONFIG, text) for text in of_endpoints([client.endpoint])]
    if project.sink.pipeline is not None:
        report.add(_try(lambda: check_pipeline(client, project.sink.pipeline or "")))
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
    """Return what the cluster refuses of one index, and risks of it and of those with the same settings.

    Creating an index takes the cluster a third of a second, so one is created for all with the same settings.

    Args:
        project: the deployment and its schemas.
        client: client of the cluster.
        of_first: indexes with the same settings, by the first of them.
        name: the index.
    """
    risks: list[str] = []
    spec = project.specs[name]
    taken = _try(lambda: Generations(client, project.prefix).published(name))
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
        for error in _try(lambda: try_out(client, scratch, body, look))
    ], risks


def _try(action: Callable[[], object]) -> list[HeadraceError]:
    try:
        action()
    except HeadraceError as error:
        if error.retry is Retry.BACK_OFF:
            raise
        return [error]
    return []


def _server_warnings(inspection: Inspection) -> list[Problem]:
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
        terminal.answer("`headrace setup` (which shows locks, costs and undo) or the first run will do:")
        for statement in (sql for step in report.steps for sql in step.gist):
            terminal.sql(f"{statement};", "  ")
    for entry in report.of("warning"):
        terminal.warn(entry.sentence, entry.shown())
    for entry in report.of("error"):
        terminal.wrong(entry.sentence, entry.shown())
    for entry in report.of("setup"):
        terminal.say(f"to be set up: {entry.sentence}")
    names = some(report.indexes)
    if report.of("error"):
        terminal.say(_count(report))
    elif offline:
        terminal.done(f"{names}: the files are right")
    elif report.of("setup"):
        terminal.done(f"{names}: nothing is wrong; next: headrace setup")
    else:
        terminal.done(f"{names}: ready to run")


def _count(report: CheckReport) -> str:
    levels: tuple[Level, ...] = ("error", "warning")
    counts = [(len(report.of(level)), level) for level in levels]
    return ", ".join(f"{count} {level}{'s' * (count > 1)}" for count, level in counts if count)


def _print_coverage(tables: Sequence[TableCoverage]) -> None:
    """Print a row for each table, with what is incomplete."""
    if not tables:
        return
    rows = [(str(coverage.table), ", ".join(coverage.required), _state(coverage)) for coverage in tables]
    terminal.table(("table", "old rows must carry", "state"), rows)
    for coverage in tables:
        if coverage.why_not:
            terminal.say(f"  {coverage.table} is not for Headrace to mend: {coverage.why_not}")


def _state(coverage: TableCoverage) -> str:
    parts = [] if coverage.published else ["not published"]
    if coverage.missing:
        parts.append(f"{', '.join(coverage.missing)} missing (replica identity {coverage.identity})")
    parts.extend(coverage.hidden)
    return "; ".join(parts) or ("complete" if coverage.complete else "needs a key")
