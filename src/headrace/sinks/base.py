"""The contract of a sink: its writer, and the results that it returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from headrace.model.changes import DocumentOperation


@dataclass(frozen=True, slots=True)
class Rejection:
    """A document that the sink will never accept as it is.

    Attributes:
        index: as in the operation.
        id: as in the operation.
        reason: may quote the document; it is kept in quarantine, for users who may read documents.
        public: the reason without values, for logs and `/status`; empty where `reason` has none.
    """

    index: str
    id: str
    reason: str
    public: str = ""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Counts of what became of operations; each operation is counted exactly once."""

    upserted: int = 0
    deleted: int = 0
    fenced: int = 0
    """Operations older than what the sink has: nothing to do, counted as done."""
    bytes: int = 0
    rejected: tuple[Rejection, ...] = ()

    def __add__(self, other: WriteResult) -> WriteResult:
        return WriteResult(
            self.upserted + other.upserted,
            self.deleted + other.deleted,
            self.fenced + other.fenced,
            self.bytes + other.bytes,
            self.rejected + other.rejected,
        )


class DocumentWriter(Protocol):
    """Writes document operations; lives in one task of one worker, used from one thread.

    Guarantees: when `write` returns, every operation is durable, fenced by a newer version, or listed as
    rejected. At least once: an operation may be applied twice, an older one never replaces a newer one.
    A rejected document never fails its neighbours.
    """

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Write all `operations`; memory is bounded by the sink's bulk size, not by their number.

        Raises:
            HeadraceError: SINK_UNREACHABLE or SINK_BUSY where a bulk got no answer (whether it was
                applied is unknown: assemble its documents again, never send the same bytes again) or the
                sink stayed overloaded for its time limit.
        """
        ...

    def close(self) -> None:
        """Close the connections; idempotent."""
        ...
