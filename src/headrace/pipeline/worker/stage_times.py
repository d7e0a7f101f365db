"""Measure what a task does in each stage, and when."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headrace.errors import HeadraceError
from headrace.model.changes import DocumentOperation
from headrace.model.stage import Stage
from headrace.model.trace import StageSpan


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
        moments: for each stage and code of an error (empty: success), when the first attempt began and the
            last one ended, by `time.perf_counter`.
    """

    resolved: int = 0
    assembled: int = 0
    resolve_seconds: float = 0.0
    assemble_seconds: float = 0.0
    write_seconds: float = 0.0
    total_seconds: float = 0.0
    tables: Mapping[str, int] = field(default_factory=dict)
    moments: dict[tuple[Stage, str], tuple[float, float]] = field(default_factory=dict)
    _first_came: float = field(default=0.0, init=False)  # 0: no operation came

    @contextlib.contextmanager
    def resolving(self) -> Iterator[None]:
        """Note when an attempt to resolve changes is made."""
        began, code = time.perf_counter(), ""
        try:
            yield
        except HeadraceError as error:
            code = error.code
            raise
        finally:
            self._note(Stage.RESOLVE, code, began, time.perf_counter())

    def assembling(self, operations: Iterator[DocumentOperation]) -> Iterator[DocumentOperation]:
        """Yield the operations; count them and the time that each takes to come."""
        first = last = time.perf_counter()
        code = ""
        try:
            while True:
                began = time.perf_counter()
                operation = next(operations, None)
                last = time.perf_counter()
                self.assemble_seconds += last - began
                if operation is None:
                    return
                self.assembled += 1
                self._first_came = self._first_came or last
                yield operation
        except HeadraceError as error:
            last, code, self._first_came = time.perf_counter(), error.code, 0.0  # the sink did not fail
            raise
        finally:
            self._note(Stage.ASSEMBLE, code, first, last)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Count the time that is not spent on `assembling`; a sink is busy from the first operation on."""
        began, assembled, code = time.perf_counter(), self.assemble_seconds, ""
        self._first_came = 0.0
        try:
            yield
        except HeadraceError as error:
            code = error.code
            raise
        finally:
            ended = time.perf_counter()
            self.write_seconds += ended - began - (self.assemble_seconds - assembled)
            if self._first_came:
                self._note(Stage.WRITE, code, self._first_came, ended)

    def spans(self, sink: str) -> tuple[StageSpan, ...]:
        """Return the moments by the system's clock, of work for a sink."""
        shift = time.time_ns() - time.perf_counter_ns()
        return tuple(
            StageSpan(sink, stage, code, *(shift + round(1e9 * moment) for moment in moments))
            for (stage, code), moments in self.moments.items()
        )

    def _note(self, stage: Stage, code: str, began: float, ended: float) -> None:
        first, last = self.moments.get((stage, code), (began, ended))
        self.moments[stage, code] = min(first, began), max(last, ended)
