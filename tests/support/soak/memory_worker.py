"""The worker of the pipeline, writing documents to memory instead of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from headrace.model.changes import DocumentOperation, Key, key_of_id
from headrace.model.lsn import Lsn
from headrace.pipeline.worker.delivery import Delivery, SinkConnection
from headrace.pipeline.worker.failure_policy import WaitForSink
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.worker import Worker
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.state import KeyBatch
from headrace.testing.memory_sink import MemorySink


class Died(Exception):  # noqa: N818 - no error of the product
    """The process of a task is gone."""


class FailingSink(DocumentWriter):
    """Passes on to a memory sink; dies after so many operations, where it is told to."""

    def __init__(self, sink: MemorySink) -> None:
        self.sink = sink
        self.left: int | None = None

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """One after the other.

        Raises:
            Died: as it was told.
        """
        return sum((self._one(operation) for operation in operations), WriteResult())

    def _one(self, operation: DocumentOperation) -> WriteResult:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Died
        return self.sink.write([operation])

    def close(self) -> None:
        """The memory stays."""


class MemoryDeferredKeys:
    """Deferred documents, without a cluster; they outlive the worker.

    Attributes:
        waiting: key batches by their id, the oldest first.
        added: how many there ever were.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, KeyBatch] = {}
        self.added = 0

    def add(self, generation: str, batches: Iterable[Sequence[Key]], version: Lsn) -> None:
        """Keep the keys of each batch."""
        for keys in batches:
            self.added += 1
            one = str(self.added)
            self.waiting[one] = KeyBatch(one, generation, version, tuple(keys))

    def count(self, generations: Collection[str]) -> int:
        """Count the waiting ones of some generations."""
        return sum(batch.generation in generations for batch in self.waiting.values())

    def get(self, identity: str) -> KeyBatch | None:
        """One batch; None where it is done."""
        return self.waiting.get(identity)

    def done(self, batches: Iterable[KeyBatch]) -> None:
        """They are not wanted any more."""
        for batch in batches:
            self.waiting.pop(batch.id, None)


class MemoryConnection(SinkConnection):
    """The product's connection with a memory sink: only what asks a cluster is replaced."""

    def __init__(self, work: Work, failing: FailingSink) -> None:
        super().__init__(work)
        self._failing = failing
        self.delivery = Delivery(self.state, failing, work.plan)

    def keys(self, index: str) -> Iterator[Key]:
        """The keys of all documents that the memory holds."""
        width = len(self._plan.specs[index].primary_key)
        return (key_of_id(one, width) for one in list(self._failing.sink.bodies(index)))


class MemoryWorker(Worker):
    """The product's worker with another sink: only what asks a cluster is replaced."""

    def __init__(self, work: Work, sink: MemorySink, deferred: MemoryDeferredKeys | None = None) -> None:
        super().__init__(work)
        self.failing = FailingSink(sink)
        self.sink = MemoryConnection(work, self.failing)
        self._deferred = deferred or MemoryDeferredKeys()  # type: ignore[assignment] # and any place to defer
        self._policy = WaitForSink(self._deferred)
