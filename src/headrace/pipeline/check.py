"""Check a deployment's files, database and cluster before a run; nothing that exists is altered."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from headrace.errors import HeadraceError, Kind, LocatedError, Retry
from headrace.model.suggestion import some
from headrace.pipeline.check_report import CheckReport, Problem, problem, warning
from headrace.pipeline.continuity import GapError, check_origin
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import OPENSEARCH, Project, error_list
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect
from headrace.sinks.opensearch import Client, Generations, MetaIndex, mapping
from headrace.sinks.opensearch.endpoint import connection_warnings
from headrace.sinks.opensearch.settings import check_pipeline, index_warnings, is_accepted, try_creation
from headrace.sinks.registry import open_sink

_SINK_SECONDS = 1.0
_INDEXES_AT_ONCE = 4


def check(project: Project, report: CheckReport, *, whole: bool = True, on_gap: str | None = None) -> None:
    """Check database and sinks, as far as they can be reached; nothing that exists is altered.

    Args:
        project: the deployment and its schemas.
        report: the problems are added to it.
        whole: whether all schema files could be read; the set-up is only planned then.
        on_gap: the policy that replaces the deployment's.

    Raises:
        HeadraceError: CONFIG, where a variable is not set.
    """
    endpoints = project.resolve()
    reseeds = (on_gap or project.deployment.source.on_gap) == "reseed"
    inspection = None
    try:
        with connect(endpoints.database, application_name="headrace check") as connection:
            inspection = inspect(project, endpoints, connection)
    except HeadraceError as error:
        report.add(error_list(error))
    else:
        found = (problem(finding.level, finding.error, finding.sql) for finding in inspection.findings)
        report.problems += sorted(found, key=_place)
        report.add(inspection.other_problems)
        report.problems += _server_warnings(inspection)
        report.add(inspection.setup.refused)
        report.add_outstanding(inspection.setup.outstanding)
        if whole and not any(finding.level == "error" for finding in inspection.findings):
            report.problems += [warning(Kind.REPLICA_IDENTITY, text) for text in inspection.setup.warnings]
            report.steps += inspection.setup.steps
            report.proposed += inspection.setup.proposed
            report.coverage += inspection.coverage
    lost = None if inspection is None else inspection.slot_lost
    # A gap has the remedy of a deployment's slot.
    gap = None if lost is None else GapError(lost.kind, lost.cause)
    try:
        _check_sink(project, endpoints, inspection, report)
    except GapError as error:  # this error knows more about the slot
        gap = error
    except HeadraceError as error:
        report.add(error_list(error))
        gap = None if error.kind is Kind.SLOT_UNKNOWN else gap
    if gap is not None:
        _report_gap(gap, report, reseeds=reseeds)
    for name, sink_endpoints in endpoints.secondary.items():
        _check_secondary(project.of_sink(name), sink_endpoints, report)


def _report_gap(gap: GapError, report: CheckReport, *, reseeds: bool) -> None:
    """Report a gap: an error, or a warning where a run reseeds by itself."""
    if not reseeds:
        report.add([gap])
        return
    remedy = "The next `headrace run` rebuilds everything; readers keep what is served until then."
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
    report.problems += [warning(Kind.CONFIG, text) for text in connection_warnings([client.endpoint])]
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
            risks.extend(index_warnings(client, scratch, f"the index {some(same)}"))

    return taken + [
        LocatedError(
            error.kind,
            spec.place,
            f"the cluster refuses an index for {name}: {error.cause}",
            error.remedy or "Correct the options of its fields, its settings_file or its mappings_file.",
        )
        for error in _try(lambda: try_creation(client, scratch, body, look))
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
