"""Measure what a task does in each stage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headrace.model import DocumentOperation


@dataclass(slots=True)
class StageTimes:
    """What a task has done in each stage, and how long it took (s).

    Attributes:
        resolved: documents that the changes touch, of this task's share.
        assembled: documents that were read.
        resolve_seconds: 0 where another task of the batch counts them.
        assemble_seconds: waiting for documents from the database.
        write_seconds: waiting for the sink, while no document was read.
        total_seconds: from the oldest commit of the batch until the task was done.
        tables: changes of each table, `SCHEMA.TABLE`; empty where another task of the batch counts them.
    """

    resolved: int = 0
    assembled: int = 0
    resolve_seconds: float = 0.0
    assemble_seconds: float = 0.0
    write_seconds: float = 0.0
    total_seconds: float = 0.0
    tables: Mapping[str, int] = field(default_factory=dict)

    def assembling(self, operations: Iterator[DocumentOperation]) -> Iterator[DocumentOperation]:
        """Yield the operations; count them and the time that each takes to come."""
        while True:
            began = time.perf_counter()
            operation = next(operations, None)
            self.assemble_seconds += time.perf_counter() - began
            if operation is None:
                return
            self.assembled += 1
            yield operation

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Count the time that is not spent on `assembling`."""
        began, assembled = time.perf_counter(), self.assemble_seconds
        try:
            yield
        finally:
            self.write_seconds += time.perf_counter() - began - (self.assemble_seconds - assembled)
