"""Writers for pipelines with several sinks: separate a sink's failures, and write without generations.

(decision 0061)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from headrace.errors import HeadraceError, Kind, unexpected
from headrace.model import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult


class SinkFailure(HeadraceError):  # noqa: N818 - as opposed to errors of what is written
    """A sink failed, as opposed to an error in assembling what is written to it."""


class ApartWriter(DocumentWriter):
    """Separates the failures of a sink from those of the iterator that yields its operations.

    Args:
        writer: owned from now on; closed with this one.
    """

    def __init__(self, writer: DocumentWriter) -> None:
        self._writer = writer

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Write all operations.

        Raises:
            SinkFailure: the sink's own failure.
            HeadraceError: what iterating over `operations` raised.
        """
        watched = _Watched(operations)
        try:
            return self._writer.write(watched)
        except HeadraceError as error:
            if error is watched.failure:
                raise
            raise SinkFailure(error.kind, error.cause, error.remedy, error.detail) from error

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


class _Watched:
    """Operations that remember which error their iterator raised."""

    def __init__(self, operations: Iterable[DocumentOperation]) -> None:
        self._operations = operations
        self.failure: HeadraceError | None = None

    def __iter__(self) -> Iterator[DocumentOperation]:
        try:
            yield from self._operations
        except HeadraceError as error:
            self.failure = error
            raise


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
            HeadraceError: any HeadraceError of the sink; SINK_BUSY for any other exception of it.
        """
        if self._writer is None:
            self._writer = self._open_writer()
        generations: dict[str, str] = {}
        raised: list[BaseException] = []

        def renamed() -> Iterator[DocumentOperation]:
            try:
                for operation in operations:
                    index = self._indexes.get(operation.index, operation.index)
                    generations[index] = operation.index
                    yield dataclasses.replace(operation, index=index)
            except BaseException as error:
                raised.append(error)
                raise

        try:
            result = self._writer.write(renamed())
        except HeadraceError:
            raise
        except Exception as error:
            if raised and error is raised[-1]:
                raise
            remedy = "Look into the package that offers it."
            raise unexpected("a sink failed", error, Kind.SINK_BUSY, remedy) from error
        rejected = tuple(
            dataclasses.replace(rejection, index=generations.get(rejection.index, rejection.index))
            for rejection in result.rejected
        )
        return dataclasses.replace(result, rejected=rejected)

    def close(self) -> None:
        """Close the writer if it was opened."""
        if self._writer is not None:
            self._writer.close()
