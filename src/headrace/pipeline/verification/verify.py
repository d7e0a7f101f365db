"""Verify an index: check that it can be compared with the database, compare, and repair on request."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from dataclasses import dataclass

from headrace.assembly.digests import DigestRanges, Presence, Sample
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.pipeline.applied_position import AppliedPosition, check_backfilled
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Project, find_index
from headrace.pipeline.verification.comparison import Comparison, compare
from headrace.pipeline.verification.recheck import Recheck
from headrace.pipeline.verification.repair import Repair
from headrace.pipeline.verification.report import Report
from headrace.pipeline.verification.sides import DatabaseDocuments, IndexDocuments, StreamProgress
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter
from headrace.resolution.paths import find_paths
from headrace.sinks.opensearch import Generation, Generations, GenerationState, PipelineState
from headrace.sinks.opensearch.routed import open_writer


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Options of a verification.

    Attributes:
        repair: build wrong documents again.
        percent: compare only this percentage of the documents; None: all.
        seed: selects the documents; None: others each time.
        sink: the sink of the index; None: the primary.
    """

    repair: bool = False
    percent: float | None = None
    seed: str | None = None
    sink: str | None = None

    def sample(self) -> Sample | None:
        """Return the sample; None where all documents are compared."""
        if self.percent is None:
            return None
        return Sample(self.percent, secrets.token_hex(4) if self.seed is None else self.seed)


def verify(project: Project, index: str, options: VerifyOptions, reporter: Reporter) -> Report:
    """Compare an index with the database, and repair it on request.

    Raises:
        HeadraceError: USAGE for an index or a sink that the deployment does not have; SLOT_UNKNOWN,
            CONTINUITY; SCHEMA_CHANGED: the index was built from other files; CONFIG, SCHEMA, BINDING,
            CONNECTION, DATABASE, SINK_UNREACHABLE, SINK_BUSY.
    """
    find_index(project, index)
    own, endpoints = project.sink_of(options.sink), project.resolve()
    endpoints = endpoints.secondary.get(own.sink_name, endpoints)
    with AppliedPosition(endpoints, own.slot, own.state_prefix) as applied:
        state = applied.check()
        check_backfilled(state, own.slot)
        with connect(endpoints.database, application_name="headrace verify") as connection:
            inspection = inspect(project, endpoints, connection, reading=False)
        inspection = dataclasses.replace(inspection, project=inspection.project.sink_of(options.sink))
        known = find_served_generation(inspection, state, index)
        _check_published(Generations(applied.documents, own.prefix), index, known)
        report = Report(
            index=index,
            alias=own.prefix + index,
            sink=options.sink,
            generation=known.generation,
            applied=state.applied,
            sample=options.sample(),
            contents=own.sink.pipeline is None,
            repairing=options.repair,
        )
        _compare(inspection, endpoints, applied, report, reporter)
    return report


def _compare(
    inspection: Inspection, endpoints: Endpoints, applied: AppliedPosition, report: Report, reporter: Reporter
) -> None:
    """Compare, put the results into the report, and repair where it asks for that."""
    index, project, client = report.index, inspection.project, applied.documents
    spec, catalog = project.specs[index], inspection.catalog
    with contextlib.ExitStack() as held:
        reading, looking = (held.enter_context(ReadSession(endpoints.database)) for _ in range(2))
        database = DatabaseDocuments(looking, spec, catalog)
        routed = spec.routing is not None
        documents = IndexDocuments(client, report.generation, routed=routed)
        pipeline = StreamProgress(applied)
        levels = max(len(path.hops) for path in find_paths(spec, catalog))
        recheck = Recheck(database, documents, pipeline.reached, levels, contents=report.contents)
        repair = None
        if report.repairing:
            target = Generation(index, report.generation, "", 0, "").target
            writer = open_writer(client, {index: target}, project.writer_options(), {index} if routed else ())
            held.enter_context(contextlib.closing(writer))
            repair = Repair(index, database, writer, applied)
        comparison = Comparison(report, documents, recheck, repair)
        ranges = DigestRanges(reading, spec, catalog, report.sample)
        compare(
            comparison,
            ranges,
            Presence(looking, spec, catalog),
            client,
            report,
            reporter=reporter,
        )
        report.why_undecided = pipeline.why


def find_served_generation(inspection: Inspection, state: PipelineState, index: str) -> GenerationState:
    """Return the served generation of an index, which must be built from these files and tables.

    Raises:
        HeadraceError: SCHEMA_CHANGED, SLOT_UNKNOWN; mistakes in the files.
    """
    wrong = tuple(finding.error for finding in inspection.findings if finding.level == "error")
    if wrong:
        raise ErrorGroup(wrong)
    served = state.served(index)
    if state.phase != "following" or served is None:
        raise HeadraceError(
            Kind.SLOT_UNKNOWN,
            f"the index {index} is not backfilled yet",
            "Let `headrace run` backfill it first.",
        )
    if served.frozen or served.hash != inspection.hashes()[index]:
        raise HeadraceError(
            Kind.SCHEMA_CHANGED,
            f"the documents of {index} were built from other files, or other columns, than there are now",
            "`headrace run` builds them anew when it starts.",
        )
    return served


def _check_published(generations: Generations, index: str, generation: GenerationState) -> None:
    """Check that readers see the generation that is compared.

    Raises:
        HeadraceError: CONTINUITY.
    """
    served = generations.published(index)
    if served is None or (served.index, served.uuid) != (generation.generation, generation.uuid):
        held = "nothing" if served is None else served.index
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the alias {generations.alias(index)} serves {held}, "
            f"the pipeline writes {generation.generation}",
            "Stop and start `headrace run`: it serves what it writes, and seeds what is gone.",
        )
