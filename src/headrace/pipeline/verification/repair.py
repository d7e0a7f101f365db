"""How is a wrong document made right beside a running stream?

It is assembled and written at the position that the stream had reached before it was read (decision 0015):
the stream's later versions win over it, and it wins over nothing newer.
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
    """Builds documents of one index anew; used from one thread.

    Args:
        writer: of a sink that knows `index`.
    """

    def __init__(
        self, index: str, database: DatabaseDocuments, writer: DocumentWriter, applied: AppliedPosition
    ) -> None:
        self._index = index
        self._database = database
        self._writer = writer
        self._applied = applied

    def rebuild(self, ids: Sequence[str]) -> dict[str, str]:
        """Write what the database says of `ids` now; those that cannot be read or are refused, and why.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, SINK_REJECTED, CONNECTION, DATABASE.
        """
        version = self._applied.state().reached
        self._database.await_replay(version)
        refused: dict[str, str] = {}
        operations = self._database.operations(self._index, ids, version, refused)
        return refused | {one.id: one.reason for one in self._writer.write(operations).rejected}


def is_fenced(finding: Finding) -> bool:
    """Whether what the index holds, a document or a delete, is newer than anything of the log."""
    return finding.ahead or finding.verdict is Verdict.MISSING


def why_not(finding: Finding, refused: str | None) -> str:
    """Why a document that was built anew is not right, for people."""
    if refused is not None:
        return f"it is refused: {refused}"
    if finding.ahead and finding.found is not None:
        return f"fenced: its version {finding.found.version} is ahead of the database's log"
    return f"it cannot be read: {finding.why}" if finding.why is not None else _WHY[finding.verdict]
