"""Read both sides of a comparison, wait for the stream between them, and repair wrong documents.

A repaired document is assembled and written with the position that the stream had reached before the read
(decision 0015). So later versions of the stream win over it, and it replaces nothing newer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.assembly.assembler import Assembler
from headrace.assembly.digests import DigestRanges, Presence, Present, Sample
from headrace.catalog import Catalog
from headrace.model.changes import DocumentOperation
from headrace.model.lsn import Lsn
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.sink_target import SinkTarget
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import SlotFacts
from headrace.postgres.wal_position import end_of_commits
from headrace.resolution.paths import find_paths
from headrace.schema.tree import IndexSpec
from headrace.sinks.base import DocumentWriter
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.documents import read_documents
from headrace.sinks.opensearch.routed import Shards, open_writer
from headrace.state import GenerationState
from headrace.tools.applied_position import AppliedPosition, why_behind
from headrace.tools.verification.recheck import Finding, Look, ReadIndex, Recheck, Verdict

_LOOK_SECONDS = 5.0
_STUCK_SECONDS = 60.0


class DatabaseDocuments:
    """The documents of one index as they should be; used from one thread.

    Attributes:
        levels: the longest path from a changed row to a document, in rows.
    """

    def __init__(self, session: ReadSession, spec: IndexSpec, catalog: Catalog) -> None:
        self.levels = max(len(path.hops) for path in find_paths(spec, catalog))
        self._session, self._spec, self._catalog = session, spec, catalog
        self._presence = Presence(session, spec, catalog)
        self._assembler = Assembler(session, spec, catalog)

    def digests(self, sample: Sample | None) -> DigestRanges:
        """Return the digests of all documents, or of a sample, by ranges of their keys."""
        return DigestRanges(self._session, self._spec, self._catalog, sample)

    def look(self, ids: Sequence[str]) -> Look:
        """Read the documents as they should be; an id that no row can have has none. See `DatabaseSide`.

        Raises:
            HeadraceError: CONNECTION, DATABASE, TRANSFORM.
        """
        present, unreadable = self._presence.read(ids), dict[str, str]()
        operations = self._assemble(present, 0, unreadable)
        wanted_ids = set(ids)
        documents = {operation.id: operation.body for operation in operations if operation.id in wanted_ids}
        return Look(present.stamps, documents, unreadable)

    def operations(
        self, ids: Sequence[str], version: Lsn, refused: dict[str, str]
    ) -> list[DocumentOperation]:
        """Return what repairs the documents of `ids`; add unreadable ones to `refused`.

        Args:
            ids: of the documents.
            version: a position that is applied; the session reads everything before it.
            refused: why documents cannot be read, by id.
        """
        self._session.await_replay(version)
        present = self._presence.read(ids)
        operations = {operation.id: operation for operation in self._assemble(present, version, refused)}
        self._session.await_flush()  # also where no row was found: its delete must be durable too
        return [
            operations.get(id_, DocumentOperation(self._spec.name, id_, version, None))
            for id_ in ids
            if id_ not in refused
        ]

    def _assemble(
        self, present: Present, version: Lsn, unreadable: dict[str, str]
    ) -> Iterator[DocumentOperation]:
        def refuse(_: str, id_: str, reason: str) -> None:
            unreadable[id_] = reason

        return self._assembler.assemble(list(dict.fromkeys(present.keys.values())), version, refuse)

    def stamps(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Return the stamps of the ids that have a document. See `DatabaseSide`."""
        return self._presence.read(ids).stamps

    def position(self) -> Lsn:
        """Return a position after everything that was read. See `DatabaseSide`."""
        return end_of_commits(self._session.query)


def open_index(client: Client, index: str, *, routed: bool) -> ReadIndex:
    """Return what reads the documents that one generation holds; `routed`: a column decides on shards."""
    return partial(read_documents, client, index, routings=Shards(client).of(index) if routed else ())


class StreamProgress:
    """Waits for the running pipeline to reach positions.

    Attributes:
        why: why the pipeline does not reach a position; None while it does. Once set, nothing is waited for.
        remedy: what to do about that.
    """

    def __init__(self, applied: AppliedPosition) -> None:
        self._applied = applied
        self.why: str | None = None
        self.remedy = ""

    def reached(self, lsn: Lsn) -> bool:
        """Whether everything before `lsn` is applied; wait for as long as the pipeline makes progress."""
        last, since = self._applied.progress(), time.monotonic()
        while self._applied.wait(lsn, _LOOK_SECONDS if self.why is None else 0.0) is None:
            if self.why is not None:
                return False
            now, slot = self._applied.progress(), self._applied.slot()
            # However slowly it moves, it is waited for: only a stream that stands is given up.
            if now != last:
                last, since = now, time.monotonic()
            if away := self._applied.why_away():
                self.why, self.remedy = away, "Let a run write to it again, and verify again."
            elif self._stands(slot) or time.monotonic() - since > _STUCK_SECONDS:
                self.why, self.remedy = why_behind(self._applied, self._applied.state(), lsn)
        return True

    def _stands(self, slot: SlotFacts | None) -> bool:
        """Whether no run is there that could go on; one that begins its query again is waited for."""
        return slot is None or (slot.reader is None and self._applied.find_running() is None)


_WHY = {
    Verdict.MISSING: "fenced: the index remembers a delete with a newer version",
    Verdict.EXTRA: "it is there again",
    Verdict.DIFFERENT: "it differs still",
    Verdict.UNAPPLIED: "the pipeline stands still",
}


@dataclass(frozen=True, slots=True)
class GenerationSides:
    """Both sides of one generation, what compares them, and what repairs it; used from one thread.

    Attributes:
        database: the documents as they should be.
        read_index: reads the documents that the generation holds.
        progress: waits for the pipeline.
        recheck: compares documents.
        applied: reads the position of the stream.
        writer: writes to the generation.
    """

    database: DatabaseDocuments
    read_index: ReadIndex
    progress: StreamProgress
    recheck: Recheck
    applied: AppliedPosition
    writer: DocumentWriter

    def rebuild(self, ids: Sequence[str]) -> tuple[dict[str, str], int]:
        """Write documents as they should be; return why some cannot be, and how many are fenced.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, SINK_REJECTED, CONNECTION, DATABASE.
        """
        # Before the read: what the stream writes from now on has a higher version, and wins.
        version = self.applied.state().reached
        refused: dict[str, str] = {}
        result = self.writer.write(self.database.operations(ids, version, refused))
        return refused | {rejection.id: rejection.reason for rejection in result.rejected}, result.fenced


@contextlib.contextmanager
def open_sides(
    inspection: Inspection, target: SinkTarget, applied: AppliedPosition, served: GenerationState
) -> Iterator[GenerationSides]:
    """Open both sides of a generation.

    Args:
        inspection: of the project of the generation's index alone.
        target: the sink of the generation.
        applied: reads the position of the stream.
        served: the generation.
    """
    index, spec = served.index, inspection.project.specs[served.index]
    routed = {index} if spec.routing is not None else ()
    writer = open_writer(applied.documents, {index: served.write_alias}, target.writer_options(), routed)
    with contextlib.closing(writer), ReadSession(applied.database) as session:
        database = DatabaseDocuments(session, spec, inspection.catalog)
        read_index = open_index(applied.documents, served.generation, routed=bool(routed))
        progress = StreamProgress(applied)
        contents, drops = not target.pipelines(index), spec.transform is not None
        recheck = Recheck(
            database, read_index, progress.reached, database.levels, contents=contents, drops=drops
        )
        yield GenerationSides(database, read_index, progress, recheck, applied, writer)


def is_fenced(finding: Finding) -> bool:
    """Whether a document or a delete in the index is newer than anything in the log."""
    return finding.ahead or finding.verdict is Verdict.MISSING


def why_not(finding: Finding, refused: str | None) -> str:
    """Return why a document is wrong after its repair, as text for the operator."""
    if refused is not None:
        return f"it is refused: {refused}"
    if finding.ahead and finding.found is not None:
        return f"fenced: its version {finding.found.version} is ahead of the database's log"
    return f"it cannot be read: {finding.why}" if finding.why is not None else _WHY[finding.verdict]
