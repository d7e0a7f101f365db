"""Say why a document is, or is not, in its index: its row, the filters, the index, and what waits."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.assembly.lowering import plan_document
from headrace.assembly.statement import casts_statement, conditions_statement
from headrace.catalog import Catalog, read_catalog
from headrace.catalog.binding import complete
from headrace.catalog.fingerprint import type_definitions
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.usage import used_columns
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import Key, key_of_id
from headrace.model.lsn import Lsn, format_lsn
from headrace.model.units import size
from headrace.pipeline.project import Project, find_index
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.session import ReadSession
from headrace.schema.normal import spec_hash
from headrace.schema.tree import Filter, IndexSpec
from headrace.sinks.opensearch.documents import StoredDocument
from headrace.state import DeferredKeys, GenerationState, PipelineState, Quarantine, Quarantined
from headrace.state.deferred_keys import ALL_KEYS
from headrace.status.console.explanation import Explanation
from headrace.tools.applied_position import AppliedPosition
from headrace.tools.verification.recheck import first_difference
from headrace.tools.verification.sides import DatabaseDocuments, open_index

_TIMEOUT_SECONDS = 3.0
# Batches of deferred keys that are searched; after so many the answer is that it may be deferred.
_MOST_BATCHES = 500


@dataclass(frozen=True, slots=True)
class RootRow:
    """What the database holds for a document.

    Attributes:
        exists: whether a root row has the key.
        excluded: the filters that the row does not meet.
        deleted: whether the row counts as deleted.
        body: the document as it should be now; None where there should be none.
        unreadable: whether the document cannot be read from its rows. Why may quote values, and whoever sees
            the console may not see rows.
    """

    exists: bool = False
    excluded: tuple[Filter, ...] = ()
    deleted: bool = False
    body: bytes | None = None
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class DocumentTrace:
    """Everything that is known about one document.

    Attributes:
        spec: its index.
        id: its id.
        row: what the database holds.
        generation: the generation that readers see, else the one that is built; None where there is none.
        stored: what this generation holds; None where it has no such document.
        quarantined: the entry of the document in quarantine.
        deferred: whether its new state waits to be written later; None where there is too much to search.
        end: the end of the log before the row was read.
        state: of the pipeline.
        files_hash: of what determines the index's documents, by the files and tables of now.
        secondary: what the secondary sinks hold, in words, by name; those that can list their documents.
        altered: whether an ingest pipeline alters the document, so that only its existence is compared.
    """

    spec: IndexSpec
    id: str
    row: RootRow
    generation: GenerationState | None
    stored: StoredDocument | None
    quarantined: Quarantined | None
    deferred: bool | None
    end: Lsn
    state: PipelineState
    files_hash: str
    secondary: Mapping[str, str]
    altered: bool = False


def _is_current(row: RootRow, stored: StoredDocument | None, *, altered: bool) -> bool:
    """Return whether an index holds a document as the database has it now."""
    if row.body is None or stored is None:
        return False
    return altered or first_difference(row.body, stored.source) is None


class Explainer:
    """Explains documents of one deployment; each question has connections of its own, so threads may ask.

    Attributes:
        project: the deployment and its schemas; a run that takes up changed files replaces it.
    """

    def __init__(self, project: Project, endpoints: Endpoints) -> None:
        self.project = project
        self._endpoints = _with_short_timeouts(endpoints)

    def explain(self, index: str, id_: str) -> Explanation:
        """Return why the document is, or is not, in the index.

        Raises:
            HeadraceError: USAGE for an unknown index; SLOT_UNKNOWN without a state; an error of the database
                or the cluster.
        """
        return answer(self.trace(index, id_))

    def trace(self, index: str, id_: str) -> DocumentTrace:
        """Collect what is known of the document; errors as for `explain`."""
        declared = find_index(self.project, index)
        with AppliedPosition(self._endpoints, self.project.key) as applied:
            # Before the row: a change that comes later explains no difference.
            end = applied.end_of_log()
            with ReadSession(self._endpoints.database) as session:
                catalog = read_catalog(session, declared.tables())
                spec = complete(declared, catalog)
                row = read_row(session, spec, catalog, id_)
                files_hash = self._hash(session, spec, catalog)
            state = applied.state()  # not older than the row
            shown, stored = _read_document(applied, state, spec, id_)
            quarantine = Quarantine(applied.client, applied.key)
            quarantined = None if shown is None else quarantine.get(shown.generation, id_)
            deferred = self._is_deferred(applied, state, shown, key_of_id(id_, len(spec.primary_key)))
        secondary = {
            name: self._look(target, spec, id_, row)
            for name, target in self.project.secondary.items()
            if not target.is_plain
        }
        altered = bool(self.project.primary.pipelines(index))
        return DocumentTrace(
            spec, id_, row, shown, stored, quarantined, deferred, end, state, files_hash, secondary, altered
        )

    def _hash(self, session: ReadSession, spec: IndexSpec, catalog: Catalog) -> str:
        """Return the hash that a generation built from these files and tables has."""
        usage = used_columns([spec], catalog)
        types = type_definitions(read_fingerprint(session, usage, self.project.publication), usage)
        return spec_hash(spec, self.project.primary.determinants(spec, types))

    def _look(self, target: SinkTarget, spec: IndexSpec, id_: str, row: RootRow) -> str:
        """Describe what a secondary sink holds of the document."""
        try:
            with AppliedPosition(self._endpoints.of(target.key), target.key) as applied:
                shown, stored = _read_document(applied, applied.state(), spec, id_)
        except HeadraceError as error:
            return error.cause
        if shown is None:
            return "it has no such index yet"
        if stored is None:
            return "none" if row.body is None else "not there yet"
        if row.body is None:
            return "still there, but should not be"
        altered = bool(target.pipelines(spec.name))
        if not _is_current(row, stored, altered=altered):
            return "in an earlier state"
        return "there, altered by an ingest pipeline" if altered else "as the database has it now"

    def _is_deferred(
        self, applied: AppliedPosition, state: PipelineState, shown: GenerationState | None, key: Key
    ) -> bool | None:
        if state.ahead is None or shown is None:
            return False
        batches = DeferredKeys(applied.client, applied.key).oldest(_MOST_BATCHES)
        for batch in batches:
            if batch.generation == shown.generation and (key in batch.keys or ALL_KEYS in batch.keys):
                return True
        # After those that were searched there may be more.
        return None if len(batches) == _MOST_BATCHES else False


def _read_document(
    applied: AppliedPosition, state: PipelineState, spec: IndexSpec, id_: str
) -> tuple[GenerationState | None, StoredDocument | None]:
    """Return the generation that readers see, else the newest one, and what it holds of the document."""
    shown = state.served(spec.name) or next(iter(state.of(spec.name)[::-1]), None)
    if shown is None:
        return None, None
    read = open_index(applied.documents, shown.generation, routed=spec.routing is not None)
    return shown, read([id_]).get(id_)


def _with_short_timeouts(endpoints: Endpoints) -> Endpoints:
    secondary = {name: _with_short_timeouts(own) for name, own in endpoints.secondary.items()}
    return replace(endpoints, sink=endpoints.sink.with_timeout(_TIMEOUT_SECONDS), secondary=secondary)


def read_row(session: ReadSession, spec: IndexSpec, catalog: Catalog, id_: str) -> RootRow:
    """Read what the database holds for a document, as of now.

    Raises:
        HeadraceError: CONNECTION, DATABASE; TRANSFORM, where the user's own function fails.
    """
    plan, key = plan_document(spec, catalog), key_of_id(id_, len(spec.primary_key))
    if len(key) != len(plan.key):
        return RootRow()
    parameters = [[part] for part in key]
    try:
        session.query(casts_statement(plan), parameters)
    except HeadraceError as error:
        if error.kind is not Kind.DATABASE:
            raise
        return RootRow()  # no value of the key's type reads like that
    rows = session.query(conditions_statement(plan), parameters)
    if not rows:
        return RootRow()
    *met, deleted = rows[0]
    excluded = (condition.filter for condition, holds in zip(plan.conditions, met, strict=True) if not holds)
    look = DatabaseDocuments(session, spec, catalog).look([id_])
    return RootRow(
        exists=True,
        excluded=tuple(excluded),
        deleted=bool(deleted),
        body=look.documents.get(id_),
        unreadable=id_ in look.unreadable,
    )


def answer(trace: DocumentTrace) -> Explanation:
    """Put what is known of a document into words."""
    name, id_, row, stored = trace.spec.name, trace.id, trace.row, trace.stored
    facts = tuple(_facts(trace))
    if trace.quarantined is not None:
        verdict = f"the cluster refused {name}/{id_}: it is in quarantine"
        remedy = f"headrace quarantine list {name} shows why; once that is mended: … retry {name}"
        return Explanation(verdict, facts, remedy, "bad")
    if row.unreadable:
        remedy = f"headrace preview {name} --id {shlex.quote(id_)} shows why"
        return Explanation(f"{name}/{id_} cannot be read from its rows", facts, remedy, "bad")
    if row.body is None and stored is None:
        return Explanation(f"{name}/{id_} is not in the index: {_why_none(trace)}", facts, right=True)
    if _is_current(row, stored, altered=trace.altered):
        state = ", altered by an ingest pipeline" if trace.altered else " as the database has it now"
        return Explanation(f"{name}/{id_} is in the index{state}", facts, tone="good", right=True)
    if stored is None:
        what = "is not in the index yet"
    elif row.body is None:
        what = f"is still in the index, but should not be: {_why_none(trace)}"
    else:
        what = "is in the index in an earlier state"
    return _late(trace, f"{name}/{id_} {what}", facts)


def _late(trace: DocumentTrace, what: str, facts: tuple[tuple[str, str], ...]) -> Explanation:
    """Say what keeps a document from its state in the database."""
    shown, name = trace.generation, trace.spec.name
    if shown is not None and not shown.building and shown.hash != trace.files_hash:
        return _late_for_files(trace, what, facts)
    if trace.deferred:
        return Explanation(
            f"{what}: it waits to be written later, because one change touched very many documents", facts
        )
    if shown is None or shown.building:
        return Explanation(f"{what}: {name} is being backfilled", facts)
    if shown.frozen:
        return Explanation(f"{what}: {shown.generation} is stopped: {shown.frozen}", facts, tone="bad")
    if trace.state.applied < trace.end:
        behind = size(trace.end - trace.state.applied)
        return Explanation(f"{what}: its change waits in the log, the documents are {behind} behind", facts)
    remedy = f"ask again; if it stays so: headrace verify {name} --repair"
    return Explanation(f"{what}, although every change is applied", facts, remedy, "bad")


def _late_for_files(trace: DocumentTrace, what: str, facts: tuple[tuple[str, str], ...]) -> Explanation:
    """Say that what is served was built from other files than the row was read by."""
    name, shown = trace.spec.name, trace.generation
    if shown is not None and shown.pinned == trace.files_hash:
        remedy = f"headrace reindex {name} builds it from the files of now"
        return Explanation(f"{what}: a rollback serves what was built from earlier files", facts, remedy)
    if any(one.building and one.hash == trace.files_hash for one in trace.state.of(name)):
        return Explanation(f"{what}: {name} is being rebuilt from the files of now", facts)
    why = f"{what}: {name} was built from other files, or other columns, than there are now"
    remedy = "`headrace reload` lets a run rebuild it now, `headrace run` does so when it starts"
    return Explanation(why, facts, remedy, "bad")


def _why_none(trace: DocumentTrace) -> str:
    """Return why the database has no such document."""
    row, spec = trace.row, trace.spec
    if not row.exists:
        return f"{spec.table} has no row with this key"
    if row.deleted and spec.soft_delete is not None:
        return f"its row in {spec.table} is soft-deleted ({spec.soft_delete.column})"
    if row.excluded:
        return f"its row in {spec.table} is filtered out by {_filter(row.excluded[0])}"
    if spec.transform is not None:
        return f"{spec.transform} leaves it out"
    return f"its row in {spec.table} makes no document of this id"


def _facts(trace: DocumentTrace) -> Iterator[tuple[str, str]]:
    row, state, stored = trace.row, trace.state, trace.stored
    yield "row", f"in {trace.spec.table}" if row.exists else f"none in {trace.spec.table}"
    if row.deleted and trace.spec.soft_delete is not None:
        yield "left out by", f"soft_delete: {trace.spec.soft_delete.column}"
    for condition in row.excluded:
        yield "left out by", _filter(condition)
    if trace.generation is not None:
        yield "generation", trace.generation.generation
    if stored is None:
        yield "document", "none"
    else:
        kept = "" if stored.version <= state.reached else ", ahead of the applied position"
        yield "document", f"written with every change up to {format_lsn(stored.version)}{kept}"
    behind = max(0, trace.end - state.applied)
    yield "applied", f"{format_lsn(state.applied)}, {size(behind)} behind the log"
    yield "deferred", _DEFERRED[trace.deferred]
    entry = trace.quarantined
    yield "in quarantine", f"since {entry.at}, at {format_lsn(entry.position)}" if entry is not None else "no"
    for name, says in trace.secondary.items():
        yield f"sink {name}", says


_DEFERRED = {True: "yes", False: "no", None: f"maybe: more than {_MOST_BATCHES} batches of documents are"}


def _filter(condition: Filter) -> str:
    """Write a filter with its place in the schema file."""
    return f"{condition} ({condition.place.file.name}:{condition.place.line})"
