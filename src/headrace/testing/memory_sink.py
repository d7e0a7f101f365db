"""A document sink in memory, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.model.changes import DocumentOperation
from headrace.model.lsn import Lsn
from headrace.sinks.base import DocumentWriter, Rejection, WriteResult

Reject = Callable[[DocumentOperation], str | None]


def _accept(_: DocumentOperation) -> str | None:
    return None


@dataclass
class MemorySink(DocumentWriter):
    """Holds documents by (index, id), fenced by version; it never forgets a tombstone.

    Attributes:
        reject: returns the reason to reject an operation for good; None accepts it.
        history: all operations that were written, in order.
        closed: whether the sink was closed.
    """

    reject: Reject = _accept
    history: list[DocumentOperation] = field(default_factory=list)
    closed: bool = False
    _held: dict[tuple[str, str], DocumentOperation] = field(default_factory=dict)

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Apply all operations in order."""
        return sum((self._apply(operation) for operation in operations), WriteResult())

    def close(self) -> None:
        """Record that the sink was closed."""
        self.closed = True

    def documents(self, index: str) -> dict[str, Any]:
        """Return the documents of `index` by id, parsed."""
        return {identity: json.loads(body) for identity, body in self.bodies(index).items()}

    def bodies(self, index: str) -> dict[str, bytes]:
        """Return the documents of `index` by id, as they were written."""
        held = ((at, operation.body) for at, operation in self._held.items())
        return {identity: body for (where, identity), body in held if where == index and body is not None}

    def version(self, index: str, identity: str) -> Lsn | None:
        """Return the version of a document or of its tombstone; None where there is neither."""
        held = self._held.get((index, identity))
        return None if held is None else held.version

    def _apply(self, operation: DocumentOperation) -> WriteResult:
        self.history.append(operation)
        empty = not operation.id and operation.body is not None
        reason = "the document id is empty" if empty else self.reject(operation)
        if reason is not None:
            return WriteResult(rejected=(Rejection(operation.index, operation.id, reason),))
        at = (operation.index, operation.id)
        held = self._held.get(at)
        if held is not None and held.version > operation.version:
            return WriteResult(fenced=1)
        self._held[at] = operation
        if operation.body is None:
            return WriteResult(deleted=1)
        return WriteResult(upserted=1, bytes=len(operation.body))


def made(options: Mapping[str, Any]) -> MemorySink:  # noqa: ARG001 - it has none
    """Create the sink, as the entry point of `headrace.sinks`."""
    return MemorySink()
