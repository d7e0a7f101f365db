"""Write to sinks that have no generations; those exist in the pipeline's state only (decision 0074).

Such a sink holds one copy of an index, whichever generation that belongs to; no earlier one is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from headrace.model.changes import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult


class PlainWriter(DocumentWriter):
    """Writes to a sink without generations, under the logical index's name instead of the generation's.

    Args:
        open_writer: opens the sink's writer at the first write, so that a sink that cannot be opened counts
            as one that fails; the writer is closed with this one.
        indexes: generation → index.
    """

    def __init__(self, open_writer: Callable[[], DocumentWriter], indexes: Mapping[str, str]) -> None:
        self._open_writer = open_writer
        self._indexes = dict(indexes)
        self._writer: DocumentWriter | None = None

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Write all operations; rejected documents are reported under the generation.

        Raises:
            HeadraceError: the sink's; a guest may raise anything else, too.
        """
        if self._writer is None:
            self._writer = self._open_writer()
        generations: dict[str, str] = {}

        def renamed() -> Iterator[DocumentOperation]:
            for operation in operations:
                index = self._indexes.get(operation.index, operation.index)
                generations[index] = operation.index
                yield replace(operation, index=index)

        result = self._writer.write(renamed())
        rejected = (replace(each, index=generations.get(each.index, each.index)) for each in result.rejected)
        return replace(result, rejected=tuple(rejected))

    def close(self) -> None:
        """Close the writer if it was opened."""
        if self._writer is not None:
            self._writer.close()
