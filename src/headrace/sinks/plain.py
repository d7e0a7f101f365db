"""Write to sinks without generations; those exist in the pipeline's state only (decision 0074).

Such a sink holds one copy of an index, whichever generation that belongs to; no earlier one is kept.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace.errors import HeadraceError, Kind, unexpected
from headrace.model.changes import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.sinks.opensearch.generations import FoundIndex, Generation
from headrace.sinks.opensearch.settings import IndexOptions
from headrace.sinks.opensearch.shard_history import Identity


class PlainGenerations:
    """Stands in for `Generations` where the sink cannot be queried.

    Args:
        known: the generations in the pipeline's state.
    """

    def __init__(self, known: Iterable[Generation]) -> None:
        self._known = list(known)

    def existing(self, name: str) -> list[Generation]:
        """Return the generations in the state, oldest first."""
        return [generation for generation in self._known if generation.name == name]

    def identities(self, indexes: Iterable[str]) -> dict[str, Identity]:  # noqa: ARG002
        """Return nothing: the sink cannot be queried."""
        return {}

    def is_gone(self, index: str) -> bool:  # noqa: ARG002
        """Return False: the sink cannot be queried."""
        return False

    def alias(self, name: str) -> str:
        """Return the name itself: there are no aliases."""
        return name

    def find_by_write_aliases(self, indexes: Sequence[str]) -> dict[str, FoundIndex]:
        """Return every index as present: the sink cannot be queried, so none counts as lost."""
        return {
            generation.index: FoundIndex(generation.uuid, frozenset((generation.target, generation.name)))
            for generation in self._known
            if generation.index in indexes
        }

    def create(self, name: str, spec_hash: str, body: dict[str, Any], schema: str = "") -> Generation:  # noqa: ARG002
        """Create the next generation, in memory."""
        number = len(self.existing(name)) + 1
        identity = uuid.uuid4().hex
        created = Generation(name, f"{name}_{spec_hash}_{identity[:8]}", spec_hash, number, identity, schema)
        self._known.append(created)
        return created

    def finish(self, generation: Generation, options: IndexOptions) -> None:
        """Do nothing."""

    def finish_all(self, backfilled: Sequence[tuple[Generation, IndexOptions]]) -> None:
        """Do nothing."""

    def count(self, index: str) -> int | None:  # noqa: ARG002
        """Return None: the sink cannot be queried."""
        return None

    def keep_settings(self, wanted: Mapping[str, Mapping[str, str]]) -> list[str]:  # noqa: ARG002
        """Return nothing: the sink has no settings."""
        return []

    def publish(self, generation: Generation) -> None:
        """Do nothing."""

    def published(self, name: str) -> Generation | None:  # noqa: ARG002
        """Return None: the sink cannot be queried."""
        return None

    def faults_of_aliases(self, served: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002
        """Return nothing: the sink has no aliases."""
        return {}

    def drop(self, generation: Generation) -> None:
        """Forget the generation; its documents stay in the sink."""
        self._known = [known for known in self._known if known.index != generation.index]


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
