"""Keep the workers of this process, one for each sink, open for later tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headrace.pipeline.worker.plan import PLAN_OPTION, SECRET_OPTION, SINK_OPTION, Work
from headrace.pipeline.worker.secondary_writer import AllSinks, SecondaryWorker
from headrace.pipeline.worker.task import Task
from headrace.pipeline.worker.worker import Worker, WrittenBatch


class Applier(Protocol):
    """Brings documents up to date with changes."""

    def apply(self, task: Task) -> WrittenBatch:
        """Apply a task's changes; see `Worker.apply`."""
        ...


_Options = tuple[str, str]
_WORKERS: dict[str, tuple[_Options, Worker]] = {}
_ALL: list[tuple[_Options, AllSinks]] = []


def worker_of(options: Mapping[str, str]) -> Worker:
    """Return this process's worker for the options of `Work.to_options`; close the sink's former one."""
    key, sink = (options[PLAN_OPTION], options[SECRET_OPTION]), options.get(SINK_OPTION, "")
    known = _WORKERS.get(sink)
    if known is not None and known[0] == key:
        return known[1]
    if known is not None:
        _close(known[1])
    worker = open_worker(Work.from_options(options))
    _WORKERS[sink] = key, worker
    return worker


def open_worker(work: Work) -> Worker:
    """Create the worker for one sink, primary or secondary."""
    return SecondaryWorker(work) if work.sink else Worker(work)


def applier_of(options: Mapping[str, str]) -> Applier:
    """Return what applies changes to all sinks, for the stream."""
    worker = worker_of(options)
    if not worker.secondary:
        return worker
    key = options[PLAN_OPTION], options[SECRET_OPTION]
    for known, applier in _ALL:
        if known == key:
            return applier
    _ALL[:] = [(key, AllSinks(worker, worker.secondary))]
    return _ALL[0][1]


def _close(worker: Worker) -> None:
    """Close a worker, with those of the secondary sinks that it has."""
    for _, applier in _ALL:
        if applier.primary is worker:
            applier.close()
            _ALL.clear()
            return
    worker.close()
