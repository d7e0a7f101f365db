"""How does a sink that fails, or knows no generations, look to whoever writes to it beside others?

(decision 0061)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from headrace.errors import HeadraceError, Kind, unexpected
from headrace.model import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult


class SinkFailure(HeadraceError):  # noqa: N818 - an error of a sink, told apart from those of what it is given
    """A sink does not take what it is given, whatever may have been the matter with it."""


class ApartWriter(DocumentWriter):
    """Tells the failures of one sink from those of the operations on their way to it.

    Args:
        writer: becomes this one's, to be closed.
    """

    def __init__(self, writer: DocumentWriter) -> None:
        self._writer = writer

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Write all.

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
    """Operations; remembers what went wrong in making them."""

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
    """Gives a sink without generations what is written to one: under the name that people know.

    Args:
        opened: makes its writer, which becomes this one's; when something is to be written, for a sink that
            cannot be opened is one that fails.
        indexes: generation → index.
    """

    def __init__(self, opened: Callable[[], DocumentWriter], indexes: Mapping[str, str]) -> None:
        self._opened = opened
        self._indexes = dict(indexes)
        self._writer: DocumentWriter | None = None

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Write all; rejected documents are told under the generation.

        Raises:
            HeadraceError: what the sink raises, and SINK_BUSY for what it should not.
        """
        if self._writer is None:
            self._writer = self._opened()
        generations: dict[str, str] = {}
        raised: list[BaseException] = []

        def named() -> Iterator[DocumentOperation]:
            try:
                for one in operations:
                    index = self._indexes.get(one.index, one.index)
                    generations[index] = one.index
                    yield dataclasses.replace(one, index=index)
            except BaseException as error:
                raised.append(error)
                raise

        try:
            result = self._writer.write(named())
        except HeadraceError:
            raise
        except Exception as error:
            if raised and error is raised[-1]:
                raise
            remedy = "Look into the package that offers it."
            raise unexpected("a sink failed", error, Kind.SINK_BUSY, remedy) from error
        rejected = tuple(
            dataclasses.replace(one, index=generations.get(one.index, one.index)) for one in result.rejected
        )
        return dataclasses.replace(result, rejected=rejected)

    def close(self) -> None:
        """Close the writer, where there is one."""
        if self._writer is not None:
            self._writer.close()
