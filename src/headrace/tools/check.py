"""Check a deployment's files, database and cluster before a run; nothing that exists is altered."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from headrace.config.deployment import OnGap
from headrace.errors import HeadraceError, Kind, LocatedError, Place, Retry
from headrace.model.suggestion import some
from headrace.pipeline.continuity import GapError, check_origin
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Project, error_list
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.ddl_plan import Step
from headrace.postgres.locks import find_holder
from headrace.sinks.opensearch import Client, Generations, mapping
from headrace.sinks.opensearch.endpoint import connection_warnings
from headrace.sinks.opensearch.settings import check_pipeline, index_warnings, is_accepted, try_creation
from headrace.sinks.registry import open_sink
from headrace.state import StateStore
from headrace.state.lease import find_others

Level = Literal["error", "setup", "warning"]
"""`setup`: nothing is wrong, but `headrace setup` must be run before a run can start."""

_SINK_SECONDS = 1.0
_INDEXES_AT_ONCE = 4
_NUMBER_WIDTH = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """An error, and what it means for a run.

    Attributes:
        level: how serious it is.
    """

    level: Level
    error: HeadraceError

    @property
    def place(self) -> Place | None:
        """Its place in a file; the path is relative to the working directory where it is below it."""
        if not isinstance(self.error, LocatedError):
            return None
        place, here = self.error.place, Path.cwd()
        return replace(place, file=place.file.relative_to(here)) if place.file.is_relative_to(here) else place

    @property
    def text(self) -> str:
        """What is wrong, without the place and the remedy."""
        return self.error.problem if isinstance(self.error, LocatedError) else self.error.full_cause

    @property
    def sentence(self) -> str:
        """The problem in one line, without the excerpt."""
        where = "" if self.place is None else f"{self.place}: "
        text = f"[{self.error.code}] {where}{self.text}"
        return f"{text}. {self.error.remedy}" if self.error.remedy else text

    def shown(self) -> str:
        """Return the line of a schema file with its number and a caret under the column; else nothing."""
        place = self.place
        if place is None or not place.text.strip():
            return ""
        line = place.text.expandtabs(1)
        marked = f"\n{'':>{_NUMBER_WIDTH}} │ {' ' * (place.column - 1)}^" if place.column is not None else ""
        return f"{place.line:>{_NUMBER_WIDTH}} │ {line}{marked}"

    def as_data(self) -> dict[str, object]:
        """Return the problem as JSON data; every key is always present."""
        place = self.place
        return {
            "level": self.level,
            "code": self.error.code,
            "text": self.text,
            "file": place and str(place.file),
            "line": place and place.line,
            "column": place and place.column,
            "remedy": self.error.remedy,
            "sql": list(self.error.sql),
        }


@dataclass
class CheckReport:
    """What was found.

    Attributes:
        indexes: those that the files define.
        run: the session of the run that is on already; None where there is none.
        on_gap: what a run does at a gap in the log; None where the deployment was not asked.
    """

    indexes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    proposed: list[Step] = field(default_factory=list)
    coverage: list[TableCoverage] = field(default_factory=list)
    run: str | None = None
    on_gap: OnGap | None = None

    def add(self, errors: Iterable[HeadraceError], level: Level = "error") -> None:
        """Add errors; `setup`: those that keep a run from starting until `headrace setup` has been run."""
        self.problems += [Problem(level, error) for error in errors]

    def warn(self, kind: Kind, *texts: str) -> None:
        """Add warnings without a place."""
        self.add((HeadraceError(kind, text) for text in texts), "warning")

    def of(self, level: Level) -> list[Problem]:
        """Return the problems of one level, in the order in which they were found."""
        return [entry for entry in self.problems if entry.level == level]

    @property
    def exit_code(self) -> int:
        """The exit code: 0 where there is no error."""
        return max((entry.error.exit_code for entry in self.of("error")), default=0)


def check(project: Project, report: CheckReport, *, whole: bool = True, on_gap: OnGap | None = None) -> None:
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
    report.on_gap = on_gap or project.deployment.source.on_gap
    inspection: Inspection | None = None
    try:
        with connect(endpoints.database, application_name="headrace check") as connection:
            found = inspect(project, endpoints, connection)
            report.run = find_holder(connection, project.slot)
    except HeadraceError as error:
        report.add(error_list(error))
    else:
        inspection = found
        _report_database(found, report, plans=whole)
    _check_primary(project, endpoints, inspection, report)
    for target in project.secondary.values():
        _check_secondary(project, target, endpoints.of(target.key), report)


def _report_database(inspection: Inspection, report: CheckReport, *, plans: bool) -> None:
    """Report what was found in the database; with `plans`, what a set-up does there for schemas that fit."""
    found = (Problem(finding.level, finding.error) for finding in inspection.findings)
    # As they stand in the files: who mends them goes from top to bottom.
    report.problems += sorted(found, key=_place)
    report.add(inspection.other_problems)
    _warn_of_server(inspection, report)
    report.add(inspection.setup.refused)
    report.add(inspection.setup.outstanding, "setup")
    fits = not any(finding.level == "error" for finding in inspection.findings)
    if plans and fits:
        report.warn(Kind.REPLICA_IDENTITY, *inspection.setup.warnings)
        report.steps += inspection.setup.steps
        report.proposed += inspection.setup.proposed
        report.coverage += inspection.coverage


def _check_primary(
    project: Project, endpoints: Endpoints, inspection: Inspection | None, report: CheckReport
) -> None:
    """Check the cluster that keeps the state, and that the state is one of this database and slot."""
    lost = None if inspection is None else inspection.slot_lost
    # A gap has the remedy of a deployment's slot.
    gap = None if lost is None else GapError(lost.kind, lost.cause)
    try:
        with contextlib.closing(Client(endpoints.sink)) as client:
            _check_cluster(project, project.primary, client, report)
            if inspection is not None:
                state = StateStore(client, project.key).load()
                check_origin(state, inspection.server, inspection.slot)
    except GapError as error:  # this error knows more about the slot
        gap = error
    except HeadraceError as error:
        report.add(error_list(error))
        # Without a state there are no documents that a gap could concern.
        gap = None if error.kind is Kind.SLOT_UNKNOWN else gap
    if gap is not None:
        _report_gap(gap, report)


def _report_gap(gap: GapError, report: CheckReport) -> None:
    """Report a gap: an error, or a warning where a run reseeds by itself."""
    if report.on_gap != "reseed":
        report.add([gap])
        return
    remedy = "The next `headrace run` rebuilds everything; searches use the present indexes until then."
    report.add([HeadraceError(gap.kind, f'{gap.cause} (on_gap = "reseed")', remedy)], "warning")


def _place(entry: Problem) -> tuple[str, int, int]:
    place = entry.place
    return ("", 0, 0) if place is None else (str(place.file), place.line, place.column or 0)


def _check_secondary(project: Project, target: SinkTarget, endpoints: Endpoints, report: CheckReport) -> None:
    """Check a secondary sink; one that is away is a warning, because a run goes on without it."""
    try:
        if not target.is_plain:
            with contextlib.closing(Client(endpoints.sink)) as client:
                _check_cluster(project, target, client, report)
        elif not target.is_stdout:
            open_sink(target.kind, endpoints.options).close()
    except HeadraceError as error:
        text = f"the sink {target.name!r}: {error.cause}"
        if error.retry is Retry.BACK_OFF:
            report.warn(error.kind, text)
        else:
            report.add([HeadraceError(error.kind, text, error.remedy)])


def _check_cluster(project: Project, target: SinkTarget, client: Client, report: CheckReport) -> None:
    """Check the indexes in a cluster: each is created empty under a temporary name, and deleted."""
    client.wait_until_ready(_SINK_SECONDS)
    report.add(find_others(client, target.lease_key, project.specs))
    report.warn(Kind.CONFIG, *connection_warnings([client.endpoint]))
    for pipeline in dict.fromkeys(found for name in project.specs for found in target.pipelines(name)):
        report.add(_try(partial(check_pipeline, client, pipeline)))
    alike: dict[str, list[str]] = {}
    for name in project.specs:
        settings = mapping(project.specs[name], target.index_options(name))["settings"]
        alike.setdefault(json.dumps(settings, sort_keys=True), []).append(name)
    of_first = {names[0]: names for names in alike.values()}
    with ThreadPoolExecutor(_INDEXES_AT_ONCE) as threads:
        look = partial(_problems_of, project, target, client, of_first)
        for problems, risks in threads.map(look, project.specs):
            report.add(problems)
            report.warn(Kind.CONFIG, *risks)


def _problems_of(
    project: Project, target: SinkTarget, client: Client, of_first: Mapping[str, Sequence[str]], name: str
) -> tuple[list[HeadraceError], list[str]]:
    """Return what the cluster refuses of one index, and risks of it and of those with the same settings.

    Creating an index takes the cluster a third of a second, so one is created for all with the same settings.

    Args:
        project: the deployment and its schemas.
        target: the cluster.
        client: client of the cluster.
        of_first: indexes with the same settings, by the first of them.
        name: the index.
    """
    risks: list[str] = []
    spec = project.specs[name]
    taken = _try(lambda: Generations(client, target.prefix).published(name))
    body = mapping(spec, target.index_options(name))
    # A name of its own: two checks at once, and what a killed one has left, must not meet.
    scratch = f"{target.prefix}headrace_check_{secrets.token_hex(6)}"
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


def _warn_of_server(inspection: Inspection, report: CheckReport) -> None:
    slot = inspection.slot
    if inspection.server.max_slot_wal_keep_size is None:
        report.warn(
            Kind.DISK,
            "max_slot_wal_keep_size is -1: while Headrace is stopped the server keeps its log without limit",
        )
    if slot is not None and slot.reader is not None and report.run is None:
        text = f"the slot {slot.name!r} is being read ({slot.reader}): a run would wait for its end"
        report.warn(Kind.SLOT_IN_USE, text)
    if slot is not None and slot.wal_status == "unreserved":
        text = f"the slot {slot.name!r} is about to be lost: it holds back more than max_slot_wal_keep_size"
        report.warn(Kind.SLOT_LOST, text)
