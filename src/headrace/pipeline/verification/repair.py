"""Repair wrong documents beside a running stream.

A document is assembled and written with the position that the stream had reached before the read (decision
0015). So later versions of the stream win over it, and it replaces nothing newer.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.verification.recheck import Finding, Verdict
from headrace.pipeline.verification.sides import DatabaseDocuments
from headrace.sinks.base import DocumentWriter

_WHY = {
    Verdict.MISSING: "fenced: the index remembers a delete with a newer version",
    Verdict.EXTRA: "it is there again",
    Verdict.DIFFERENT: "it differs still",
    Verdict.UNAPPLIED: "the pipeline stands still",
}


class Repair:
    """Builds documents of one index again; used from one thread.

    Args:
        index: the name of the index.
        database: reads the expected documents.
        writer: a writer to the sink that has `index` among its targets.
        applied: reads the position of the stream.
    """

    def __init__(
        self, index: str, database: DatabaseDocuments, writer: DocumentWriter, applied: AppliedPosition
    ) -> None:
        self._index = index
        self._database = database
        self._writer = writer
        self._applied = applied

    def rebuild(self, ids: Sequence[str]) -> dict[str, str]:
        """Write the documents of `ids` as they should be; return, with reasons, those that cannot be.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, SINK_REJECTED, CONNECTION, DATABASE.
        """
        version = self._applied.state().reached
        self._database.await_replay(version)
        refused: dict[str, str] = {}
        operations = self._database.operations(self._index, ids, version, refused)
        return refused | {
            rejection.id: rejection.reason for rejection in self._writer.write(operations).rejected
        }


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
