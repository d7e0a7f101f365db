"""Read changed files for a run, and say what they change, or every mistake in them (decision 0088)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.assembly.transform import is_file_changed
from headrace.config.comparison import differing_keys
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.project import Project, error_list

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
