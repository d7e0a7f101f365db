"""`headrace` alone: say which command comes next in this folder; `headrace check` knows the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.cli import terminal
from headrace.config.load import load_deployment
from headrace.tools.next_steps import NEXT


def show_next_step(config: Path, environ: Mapping[str, str]) -> None:
    """Print what to do next; only the deployment file is read.

    Raises:
        HeadraceError: CONFIG: a mistake in the file.
    """
    found, commands = _find_step(config, environ)
    if environ.get("HEADRACE_FORMAT") == "json":
        terminal.data({"found": found, "next": list(commands)})
        return
    terminal.answer(f"{found}. Next:")
    for command in commands:
        terminal.answer(f"  {command}")
    terminal.answer("`headrace -h` lists all commands.")


def _find_step(config: Path, environ: Mapping[str, str]) -> tuple[str, Sequence[str]]:
    """Return what was found, and what to type next."""
    if not config.exists():
        found = f"There is no {config} in this folder. Try Headrace, or write a first deployment"
        return found, ("headrace demo", "headrace init postgresql://USER@HOST/DATABASE --table TABLE")
    deployment = load_deployment(config, environ)
    if deployment.mirror is not None and not deployment.indexes:
        return f"{config} describes a mirror", ("headrace mirror check", "headrace mirror")
    return f"{config} describes a deployment", NEXT
