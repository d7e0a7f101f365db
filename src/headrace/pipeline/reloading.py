"""Ask a run to take up changed files, and answer who asked (decision 0088).

A request comes from another thread of the process, from a signal handler, or through the cluster. All that
wait get the same answer: what changed, or every mistake in the files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from headrace.assembly.transform import is_file_changed
from headrace.config.comparison import differing_keys
from headrace.errors import ErrorGroup, HeadraceError, Kind, Retry, in_one_line
from headrace.pipeline.generations import GenerationManager
from headrace.pipeline.project import Project, error_list
from headrace.pipeline.schema_drift import CatalogBaseline
from headrace.state import GenerationState
from headrace.state.reload_request import ReloadRequest
from headrace.status.board import StatusBoard

Load = Callable[[], tuple[Project | None, tuple[HeadraceError, ...]]]
"""Reads the deployment's files: the project of those that are valid, and the mistakes of the others."""

_TAKEN_UP = frozenset({"indexes", "on_error", "on_quarantine", "large_change", "generations"})
"""The keys of a deployment file that a running pipeline takes up."""
_READ_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """What became another by a reload: the names of indexes.

    Attributes:
        added: indexes that were not there before; they are backfilled.
        removed: indexes that are not followed any more; what readers see of them stays as it is.
        rebuilt: indexes whose next generation is built beside the one that is served.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()

    @classmethod
    def between(cls, before: Mapping[str, str], now: Mapping[str, str]) -> ReloadResult:
        """Compare the hashes of what determines each index, by name."""
        return cls(
            tuple(name for name in now if name not in before),
            tuple(name for name in before if name not in now),
            tuple(name for name in now if before.get(name, now[name]) != now[name]),
        )

    def __str__(self) -> str:
        parts = [
            f"{what}: {', '.join(names)}"
            for what, names in (
                ("added", self.added),
                ("removed", self.removed),
                ("being rebuilt", self.rebuilt),
            )
            if names
        ]
        return "; ".join(parts) or "every index is as it was"


@dataclass(frozen=True, slots=True)
class Replan:
    """What a running query needs to go on with changed files.

    Attributes:
        catalog: the catalog now, which is as it was when the state was saved.
        manager: manages the generations of the project.
        published: the publication's memberships now.
        frozen: retained generations that cannot be followed any more, frozen.
        text: the catalog as the state keeps it. It still has what only the former files need, because their
            generations stay in the state until those of the changed files are there.
    """

    catalog: CatalogBaseline
    manager: GenerationManager
    published: Mapping[str, int]
    frozen: tuple[GenerationState, ...]
    text: str


class ReloadRequests:
    """The reloads that threads and signal handlers of this process have asked for.

    Attributes:
        load: reads the deployment's files anew.
    """

    def __init__(self, load: Load) -> None:
        self.load = load
        self._pending: SimpleQueue[Future[ReloadResult]] = SimpleQueue()  # may be used in a signal handler

    def submit(self) -> Future[ReloadResult]:
        """Ask for a reload; the future gets its result, or the error that refused it."""
        future: Future[ReloadResult] = Future()
        self._pending.put(future)
        return future

    def take(self) -> Iterator[Future[ReloadResult]]:
        """Yield each request that nobody has taken yet."""
        while True:
            try:
                yield self._pending.get_nowait()
            except Empty:
                return

    def close(self) -> None:
        """Tell those who still wait that the run has ended."""
        for future in self.take():
            future.set_exception(HeadraceError(Kind.BEHIND, "the run ended before it read the files again"))


class Reloads:
    """The reload that a run is busy with; used from the run's thread.

    Args:
        requests: the requests of this process.
        document: the request that comes through the cluster.
        board: shows why the last reload was refused.
    """

    def __init__(self, requests: ReloadRequests, document: ReloadRequest, board: StatusBoard) -> None:
        self._requests = requests
        self._document = document
        self._board = board
        self._waiting: list[Future[ReloadResult]] = []
        self._number: str | None = None
        self._next_read = 0.0

    def is_requested(self) -> bool:
        """Whether somebody waits for a reload; a request through the cluster is noticed within a second."""
        self._waiting += self._requests.take()
        if time.monotonic() >= self._next_read:
            self._next_read = time.monotonic() + _READ_SECONDS
            try:
                self._number = self._document.pending()
            except HeadraceError as error:  # the health monitor reports a cluster that does not answer
                if error.retry is Retry.NEVER:
                    raise
        return bool(self._waiting) or self._number is not None

    def refuse(self, error: HeadraceError) -> None:
        """Tell everybody that nothing was changed, and why."""
        text = in_one_line(error_list(error))
        self._board.record_refused_reload(text)
        self._board.report.warning(f"the files are not taken up, nothing has changed: {text}")
        for future in self._waiting:
            future.set_exception(error)
        self._finish([str(each) for each in error_list(error)], "")

    def complete(self, result: ReloadResult) -> None:
        """Tell everybody that the files are taken up, and what that has changed."""
        self._board.record_refused_reload(None)
        self._board.report.done(f"the files are taken up: {result}")
        for future in self._waiting:
            future.set_result(result)
        self._finish([], str(result))

    def _finish(self, errors: list[str], result: str) -> None:
        self._waiting = []
        if self._number is not None:
            number, self._number = self._number, None
            try:
                self._document.answer(number, errors, result)
            except HeadraceError as error:
                if error.retry is Retry.NEVER:
                    raise
                self._board.report.warning(f"who asked for the reload gets no answer: {error}")


def check_fixed(running: Project, now: Project) -> list[HeadraceError]:
    """Return an error for each setting that changed and that a running pipeline does not take up."""
    return [
        HeadraceError(
            Kind.CONFIG,
            f"{now.deployment.file}: {key} changed, and a running pipeline does not take that up",
            "Restart `headrace run`, or set it back.",
        )
        for key in differing_keys(running.deployment, now.deployment)
        if key.split(".")[0] not in _TAKEN_UP
    ]


def check_code(project: Project) -> list[HeadraceError]:
    """Return an error for each transform whose file changed since this process loaded it."""
    return [
        HeadraceError(
            Kind.TRANSFORM,
            f"the code of the transform {name} changed, and a process loads it only once",
            "Restart `headrace run`.",
        )
        for name in dict.fromkeys(spec.transform for spec in project.specs.values() if spec.transform)
        if is_file_changed(name)
    ]


def load_checked(load: Load, running: Project) -> tuple[Project | None, list[HeadraceError]]:
    """Read the files; return the project of those that are valid, and every mistake that reading shows."""
    try:
        project, found = load()
    except HeadraceError as error:
        return None, [*error_list(error)]
    errors = [*found]
    if project is not None:
        errors += check_fixed(running, project)
    return project, errors


def raise_all(errors: list[HeadraceError]) -> None:
    """Raise all errors, where there are any.

    Raises:
        ErrorGroup: all errors.
    """
    if errors:
        raise ErrorGroup(tuple(errors))
