"""Which workers does this process have? One for each sink that it writes to, kept for its later tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from headrace.pipeline.worker.plan import PLAN_OPTION, SECRET_OPTION, SINK_OPTION, Work
from headrace.pipeline.worker.secondary_writer import AllSinks, SecondaryWorker
from headrace.pipeline.worker.worker import Worker, WrittenBatch


class Applier(Protocol):
    """Brings documents up to date with changes."""

    def apply(self, changes: pa.Table) -> WrittenBatch:
        """As `Worker.apply`."""
        ...


_Options = tuple[str, str]
_WORKERS: dict[str, tuple[_Options, Worker]] = {}
_ALL: list[tuple[_Options, AllSinks]] = []


def worker_of(options: Mapping[str, str]) -> Worker:
    """This process's worker for what `Work.to_options` described; the sink's former one is closed."""
    key, sink = (options[PLAN_OPTION], options[SECRET_OPTION]), options.get(SINK_OPTION, "")
    known = _WORKERS.get(sink)
    if known is not None and known[0] == key:
        return known[1]
    if known is not None:
        _close(known[1])
    found = made(Work.from_options(options))
    _WORKERS[sink] = key, found
    return found


def made(work: Work) -> Worker:
    """A worker for one sink, whichever it is."""
    return SecondaryWorker(work) if work.sink else Worker(work)


def applier_of(options: Mapping[str, str]) -> Applier:
    """The same for the stream, which writes to all sinks."""
    worker = worker_of(options)
    if not worker.secondary:
        return worker
    key = options[PLAN_OPTION], options[SECRET_OPTION]
    for known, found in _ALL:
        if known == key:
            return found
    _ALL[:] = [(key, AllSinks(worker, worker.secondary))]
    return _ALL[0][1]


def _close(worker: Worker) -> None:
    """Close it, with what was beside it."""
    for _, found in _ALL:
        if found.primary is worker:
            found.close()
            _ALL.clear()
            return
    worker.close()
