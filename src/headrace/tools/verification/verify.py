"""Verify an index: compare it with the database by digests, and repair it on request.

The first pass reads the digests of a range of keys, and the index's documents with these ids. So the database
sends no documents. The second pass reads the ids of the index, and checks which ones have a document.
Documents that differ are checked again until the verdict is certain.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from headrace.assembly.digests import Digest, Sample, digest_of
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.model.chunks import chunked
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Project, find_index
from headrace.pipeline.sink_target import SinkTarget
from headrace.postgres.connection import connect
from headrace.reporter import Reporter
from headrace.sinks.opensearch import Client, Generations
from headrace.sinks.opensearch.documents import count, ids, refresh
from headrace.state import GenerationState, PipelineState
from headrace.state.verifications import Verifications
from headrace.tools.applied_position import AppliedPosition
from headrace.tools.verification.recheck import Verdict
from headrace.tools.verification.report import Repair, Report
from headrace.tools.verification.sides import GenerationSides, is_fenced, open_sides, why_not

_RANGE = 1000
_READ_ATTEMPTS = 60
"""A cluster that is busy for a minute does not end a comparison that may take hours."""
_REQUEST_BYTES = 8 << 20
_REQUEST_DOCUMENTS = 500
# The assumed size of a document whose size is unknown.
_UNKNOWN_BYTES = 64 << 10


@dataclass(eq=False, slots=True)
class Comparison:
    """Compares one index, and repairs it where the report asks for that; used from one thread.

    Memory holds a range of digests and, of the documents that differ, as many as `_REQUEST_BYTES` allows.
    """

    report: Report
    sides: GenerationSides
    _suspects: dict[str, int] = field(default_factory=dict, init=False)
    _reported: set[Verdict] = field(default_factory=set, init=False)

    def documents(self, advance: Callable[[int], None]) -> None:
        """Compare every document of the database with the index's.

        Raises:
            HeadraceError: an error of either server.
        """
        ranges = self.sides.database.digests(self.report.sample)
        for digests in iter(lambda: ranges.next(_RANGE), []):
            for chunk in _chunks(digests):
                self._compare(chunk)
            self.report.documents += sum(digest.digest is not None for digest in digests)
            advance(self.report.documents)
        self._recheck_suspects()

    def extras(self, index_ids: Iterable[str], advance: Callable[[int], None]) -> None:
        """Look up every id of the index in the database; `documents` has reported unreadable rows already.

        Raises:
            HeadraceError: as for `documents`.
        """
        seen, sample = 0, self.report.sample
        self._reported = {Verdict.UNREADABLE}
        listed = iter(index_ids)
        while page := list(islice(listed, _RANGE)):
            seen += len(page)
            chosen = page if sample is None else [id_ for id_ in page if sample.holds(id_)]
            stamps = self.sides.database.stamps(chosen)
            for id_ in chosen:
                if id_ not in stamps:
                    self._suspect(id_, _UNKNOWN_BYTES)
            self.report.ids += len(chosen)
            advance(seen)
        self._recheck_suspects()

    def _compare(self, chunk: list[Digest]) -> None:
        indexed = self.sides.read_index([digest.id for digest in chunk])
        for digest in chunk:
            stored = indexed.get(digest.id)
            if not digest.readable:
                same = False
            elif stored is None or digest.digest is None:
                same = stored is None and digest.digest is None
            else:
                same = not self.report.contents or digest_of(stored.source) == digest.digest
            if not same:
                self._suspect(digest.id, digest.size)

    def _suspect(self, id_: str, size: int) -> None:
        self._suspects[id_] = size
        if len(self._suspects) >= _REQUEST_DOCUMENTS or sum(self._suspects.values()) >= _REQUEST_BYTES:
            self._recheck_suspects()

    def _recheck_suspects(self) -> None:
        suspects, self._suspects = list(self._suspects), {}
        if not suspects:
            return
        wrong = []
        for finding in self.sides.recheck.run(suspects):
            if finding.verdict not in self._reported:
                self.report.count_finding(finding)
            if finding.verdict.is_drift:
                wrong.append(finding.id)
        if wrong and self.report.repair is not None:
            self._repair(self.report.repair, wrong)

    def _repair(self, repair: Repair, wrong: list[str]) -> None:
        refused, _ = self.sides.rebuild(wrong)
        for finding in self.sides.recheck.run(wrong):
            # A changing document is written by the stream anyway.
            if finding.verdict in (Verdict.RIGHT, Verdict.CHANGING):
                repair.repaired += 1
            else:
                reason = refused.get(finding.id)
                repair.count_unrepaired(
                    finding.id, why_not(finding, reason), fenced=reason is None and is_fenced(finding)
                )


def _chunks(digests: list[Digest]) -> Iterator[list[Digest]]:
    """Group digests into requests; a larger document has a request of its own."""
    return chunked(digests, lambda digest: digest.size, lambda: _REQUEST_BYTES, _REQUEST_DOCUMENTS)


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
        """Return the sample; None where all documents are compared.

        Raises:
            HeadraceError: USAGE for one without any document.
        """
        if self.percent is None:
            return None
        sample = Sample(self.percent, secrets.token_hex(4) if self.seed is None else self.seed)
        if not sample.bound:
            text = f"a sample of {self.percent:g} % holds no document"
            raise HeadraceError(Kind.USAGE, text, "Name a higher percentage, or compare all.")
        return sample


def verify(project: Project, index: str, options: VerifyOptions, reporter: Reporter) -> Report:
    """Compare an index with the database, and repair it on request.

    Raises:
        HeadraceError: USAGE for an index or a sink that the deployment does not have, or an empty sample;
            SLOT_UNKNOWN, CONTINUITY; SCHEMA_CHANGED: the index was built from other files; CONFIG, SCHEMA,
            BINDING, CONNECTION, DATABASE, SINK_UNREACHABLE, SINK_BUSY.
    """
    find_index(project, index)
    sample = options.sample()
    target = project.find_cluster(options.sink)
    endpoints = project.resolve().of(target.key)
    with AppliedPosition(endpoints, target.key, read_attempts=_READ_ATTEMPTS) as applied:
        state = applied.check()
        with connect(endpoints.database, application_name="headrace verify") as connection:
            inspection = inspect(project.only(index), endpoints, connection, reading=False)
        known = find_served_generation(inspection, target, state, index)
        _check_published(Generations(applied.documents, target.prefix), index, known)
        report = Report(
            index=index,
            alias=target.prefix + index,
            sink=options.sink,
            generation=known.generation,
            applied=state.applied,
            sample=sample,
            contents=not target.pipelines(index),
            repair=Repair() if options.repair else None,
        )
        with open_sides(inspection, target, applied, known) as sides:
            _compare(applied.documents, sides, report, reporter)
        if not target.key.sink:
            with contextlib.suppress(HeadraceError):  # a user that may only read; a run then shows none
                _note(Verifications(applied.client, target.key), report)
    return report


def _note(results: Verifications, report: Report) -> None:
    """Note the result, for a run to show; a sample does not show that documents outside of it are right."""
    drift, summary = report.wrong - report.repaired, report.summary
    before = None if report.sample is None else results.results([report.index]).get(report.index)
    if before is not None and (left := before.drift - report.repaired) > drift:
        drift, summary = left, f"{summary}; {left:,} wrong by the verification before"
    results.note(report.index, summary, drift)


def _compare(client: Client, sides: GenerationSides, report: Report, reporter: Reporter) -> None:
    """Compare, put the results into the report, and repair where it asks for that."""
    comparison, generation = Comparison(report, sides), report.generation
    began = time.monotonic()
    refresh(client, generation)
    total = count(client, generation)
    expected = total if report.sample is None else round(total * report.sample.percent / 100)
    with reporter.progress(f"{report.alias}: documents", expected) as advance:
        comparison.documents(advance)
    # Again: the stream has written meanwhile, and ids are listed by a search.
    refresh(client, generation)
    with reporter.progress(f"{report.alias}: ids", total) as advance:
        comparison.extras(ids(client, generation), advance)
    report.seconds = time.monotonic() - began
    report.undecided.why, report.undecided.remedy = sides.progress.why, sides.progress.remedy


def find_served_generation(
    inspection: Inspection, target: SinkTarget, state: PipelineState, index: str
) -> GenerationState:
    """Return the served generation of an index, which must be built from these files and tables.

    Args:
        inspection: of the project of this index alone.
        target: its sink.
        state: the pipeline's.
        index: its name.

    Raises:
        HeadraceError: SCHEMA_CHANGED, SLOT_UNKNOWN; mistakes in the files.
    """
    if wrong := [finding.error for finding in inspection.findings if finding.level == "error"]:
        raise ErrorGroup(wrong)
    served = state.served(index)
    if state.phase != "following" or served is None:
        raise HeadraceError(
            Kind.SLOT_UNKNOWN,
            f"the index {index} is not backfilled yet",
            "Let `headrace run` backfill it first.",
        )
    if served.frozen:
        raise HeadraceError(
            Kind.SCHEMA_CHANGED,
            f"index {index} (generation {served.generation}) is stopped: {served.frozen}",
            "`headrace indexes` shows whether another generation is built.",
        )
    if served.hash != inspection.hashes(target)[index]:
        raise HeadraceError(
            Kind.SCHEMA_CHANGED,
            f"the documents of {index} were built from other files, or other columns, than there are now",
            "`headrace reload` lets a run rebuild them now, `headrace run` does so when it starts.",
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
            "Stop and start `headrace run`: it leads readers to what it writes, and backfills what is gone.",
        )
