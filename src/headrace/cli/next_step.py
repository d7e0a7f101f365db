"""`headrace` alone: say which command comes next in this folder; `headrace check` knows the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.cli import terminal
from headrace.config.load import load_deployment
from headrace.errors import HeadraceError
from headrace.postgres.connection import connect
from headrace.postgres.deployment_database import database_of
from headrace.postgres.slot import read_slot
from headrace.tools.next_steps import NEXT


def show_next_step(config: Path, environ: Mapping[str, str]) -> None:
    """Print what to do next, by the deployment file and by the slot in its database.

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
    name = environ.get("HEADRACE_SLOT") or deployment.source.slot
    try:
        with connect(database_of(deployment, name)) as connection:
            slot = read_slot(connection, name)
    except HeadraceError as error:
        return f"{config} describes a deployment. Its database cannot be asked: {error.cause}", NEXT
    if slot is None:
        return f"{config} describes a deployment, which has no slot yet", NEXT
    if slot.active_pid is None:
        return f"{config} describes a deployment, whose slot {slot.name} nobody reads", ("headrace run",)
    return f"{config} describes a deployment that runs", ("headrace status", "headrace indexes")
