"""Take up changed files where an order asks for it, and answer the order (decision 0088).

All that wait for an order get the same answer: what changed, or every mistake in the files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from headrace.assembly.transform import is_file_changed
from headrace.config.comparison import differing_keys
from headrace.errors import ErrorGroup, HeadraceError, Kind, Retry, in_one_line
from headrace.pipeline.generations import GenerationManager
from headrace.pipeline.project import Project, error_list
from headrace.pipeline.schema_drift import CatalogBaseline
from headrace.state import GenerationState, Order
from headrace.state.former_requests import ReloadRequest
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


@dataclass(frozen=True, slots=True)
class ReloadRequests:
    """How a run reads its files again.

    Attributes:
        load: reads the deployment's files anew.
    """

    load: Load


class Reloads:
    """The reload that a run is busy with; used from the run's thread.

    Args:
        _: how the files are read.
        orders: the orders to take up changed files.
        board: shows why the last reload was refused.
    """

    def __init__(self, _: ReloadRequests, orders: ReloadRequest, board: StatusBoard) -> None:
        self._orders = orders
        self._board = board
        self._order: Order | None = None
        self._next_read = 0.0

    def is_requested(self) -> bool:
        """Whether a reload is ordered; that is noticed within a second."""
        if time.monotonic() >= self._next_read:
            self._next_read = time.monotonic() + _READ_SECONDS
            try:
                self._order = self._orders.pending()
            except HeadraceError as error:  # the health monitor reports a cluster that does not answer
                if error.retry is Retry.NEVER:
                    raise
        return self._order is not None

    def refuse(self, error: HeadraceError) -> None:
        """Answer that nothing was changed, and why."""
        text = in_one_line(error_list(error))
        self._board.record_refused_reload(text)
        self._board.report.warning(f"the files are not taken up, nothing has changed: {text}")
        self._answer(error_list(error))

    def complete(self, result: ReloadResult) -> None:
        """Answer that the files are taken up, and what that has changed."""
        self._board.record_refused_reload(None)
        self._board.report.done(f"the files are taken up: {result}")
        self._answer((), str(result), asdict(result))

    def _answer(self, errors: Sequence[HeadraceError], text: str = "", result: object = None) -> None:
        order, self._order = self._order, None
        if order is None:
            return
        try:
            self._orders.answer(order, errors, text, result)
        except HeadraceError as error:  # the order is still open, so it is carried out and answered again
            if error.retry is Retry.NEVER:
                raise
            self._board.report.warning(f"who asked for the reload gets no answer yet: {error}")


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
