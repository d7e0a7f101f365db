"""Take up changed files in a run: read and check them as a whole, then go on with them (decision 0088).

Where anything is wrong nothing changes, and who ordered it is told every mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.assembly.transform import is_file_changed
from headrace.config.comparison import differing_keys
from headrace.errors import ErrorGroup, HeadraceError, Kind, in_one_line
from headrace.model.failpoints import reach
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Project, error_list
from headrace.pipeline.sink_watch import SinkWatch
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect
from headrace.state import Order, StateStore
from headrace.state.lease import Lease
from headrace.status.board import StatusBoard

# Reads the deployment's files: the project of those that are valid, and the mistakes of the others.
Load = Callable[[], tuple[Project | None, tuple[HeadraceError, ...]]]

# The keys of a deployment file that a running pipeline takes up.
_TAKEN_UP = frozenset({"indexes", "on_error", "on_quarantine", "large_change", "generations"})


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """What became another by a reload: the names of indexes.

    Attributes:
        added: indexes that were not there before; they are backfilled.
        removed: indexes that are not followed any more; what readers see of them stays as it is.
        rebuilt: indexes whose next generation is built beside the one that is served.
        adjusted: indexes that get other settings, which an index takes while it is served.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()

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
                ("settings changed", self.adjusted),
            )
            if names
        ]
        return "; ".join(parts) or "every index is as it was"


def check_fixed(running: Project, now: Project) -> list[HeadraceError]:
    """Return an error for each setting that changed and that a running pipeline does not take up."""
    return [
        HeadraceError(
            Kind.CONFIG,
            f"{now.deployment.file}: {key} changed, and a running pipeline cannot change it",
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


def in_words(error: HeadraceError) -> str:
    """Return every mistake of a refused reload as one text."""
    return in_one_line(error_list(error))


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


@dataclass(eq=False, slots=True)
class Reloads:
    """Reads the files of one run again; used from the run's thread, see `OrderPort`.

    Attributes:
        load: reads the files.
        definitions: goes on with them.
        endpoints: of the deployment.
        lease: holds the leases of the indexes.
        store: the state of the pipeline.
        board: shows why the files that lie there are not taken up.
        watches: of the sinks.
        results: what changed by a reload, by the order's id.
        refusals: every mistake for which the files that a reload has read are refused, by the order's id.
    """

    load: Load
    definitions: Definitions
    endpoints: Endpoints
    lease: Lease
    store: StateStore
    board: StatusBoard
    watches: Mapping[str, SinkWatch]
    results: dict[str, ReloadResult] = field(default_factory=dict, init=False)
    refusals: dict[str, HeadraceError] = field(default_factory=dict, init=False)

    def read(self, order: Order) -> None:
        """Read and check the files; `results` or `refusals` has the order then.

        Raises:
            HeadraceError: the database does not answer; it may be tried again.
        """
        project, errors = load_checked(self.load, self.definitions.project)
        if project is None:
            self._refuse(order, errors)
            return
        errors += check_code(project)
        with connect(self.endpoints.database, application_name="headrace run") as connection:
            inspection = inspect(project, self.endpoints, connection)
        errors += inspection.errors()
        if not errors:
            try:
                self.results[order.id] = self._adopt(project, inspection)
            except HeadraceError as error:  # another process has an index of theirs
                errors = [error]
        if errors:
            self._refuse(order, errors)

    def forget(self, order: Order) -> None:
        """Forget what came of an order, once it is answered."""
        self.results.pop(order.id, None)
        self.refusals.pop(order.id, None)

    def _adopt(self, project: Project, inspection: Inspection) -> ReloadResult:
        """Go on with files, with the leases of the indexes that they add.

        Raises:
            HeadraceError: SLOT_IN_USE: another process has taken an index of them.
        """
        before = {unit.index: hash_ for unit, hash_ in self.definitions.hashes.items() if not unit.sink}
        result = ReloadResult.between(before, inspection.hashes(inspection.project.primary))
        others = {*result.added, *result.rebuilt}
        adjusted = (name for name in project.specs if name not in others and self._is_adjusted(project, name))
        result = replace(result, adjusted=tuple(adjusted))
        # The leases first: where another process has an index, nothing has changed yet.
        self.lease.hold(project.specs)
        reach("checked")
        self.definitions.adopt(project)
        for watch in self.watches.values():
            watch.forget()  # a look gives the indexes their settings
        self.board.set_warning("reload", None)
        self.board.report.done(f"the run has read the files: {result}")
        return result

    def _is_adjusted(self, project: Project, index: str) -> bool:
        """Whether files give an index other settings in a sink than the files until now."""
        before = self.definitions.project.targets
        return any(
            name in before and before[name].index_options(index) != target.index_options(index)
            for name, target in project.targets.items()
        )

    def _refuse(self, order: Order, errors: Sequence[HeadraceError]) -> None:
        self.refusals[order.id] = error = ErrorGroup(tuple(errors))
        text = in_words(error)
        self.board.set_warning(
            "reload",
            f"the changed files have mistakes, and the run goes on with the files before: {text} Correct "
            "them, then run `headrace reload`.",
        )
