"""`headrace` alone: say how far the deployment of this folder is, and which command comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.cli import errors_as_json, terminal
from headrace.config.load import load_deployment
from headrace.config.resolve import resolve_database, resolve_mirror
from headrace.errors import HeadraceError
from headrace.pipeline.project import open_project
from headrace.postgres.connection import connect
from headrace.postgres.slot import SlotFacts, read_slot

_MIRROR = "headrace mirror"
_RESEED = "headrace run --on-gap reseed"


@dataclass(frozen=True)
class NextStep:
    """How far a deployment is.

    Attributes:
        found: what was found.
        commands: what to type next, the likeliest first.
    """

    found: str
    commands: tuple[str, ...]


def show_next_step(config: Path, environ: Mapping[str, str]) -> None:
    """Print what to do next; nothing is changed.

    Raises:
        HeadraceError: CONFIG, SCHEMA: a mistake in the files.
    """
    step = _find_step(config, environ)
    if errors_as_json.get():
        terminal.data({"found": step.found, "next": list(step.commands)})
        return
    terminal.answer(f"{step.found}. Next:")
    for command in step.commands:
        terminal.answer(f"  {command}")
    terminal.answer("`headrace -h` lists all commands.")


def _find_step(config: Path, environ: Mapping[str, str]) -> NextStep:
    if not config.exists():
        return NextStep(
            f"There is no {config} in this folder. Try Headrace, or write a first deployment",
            ("headrace demo", "headrace init postgresql://USER@HOST/DATABASE --table TABLE"),
        )
    deployment = load_deployment(config, environ)
    if deployment.mirror is not None and not deployment.indexes:
        address, mirror = resolve_mirror(deployment)
        return _by_slot(address.reveal(), mirror.slot, ("headrace mirror check", _MIRROR))
    project = open_project(config, environ)
    return _by_slot(
        resolve_database(deployment).reveal(),
        project.slot,
        ("headrace check", "headrace setup", "headrace run"),
    )


def _by_slot(address: str, slot: str, fresh: tuple[str, ...]) -> NextStep:
    """Return the step by the state of the slot.

    Args:
        address: the database's address.
        slot: the deployment's slot.
        fresh: the commands where there is no slot yet; the last one runs the deployment.
    """
    try:
        with connect(address) as connection:
            facts = read_slot(connection, slot)
    except HeadraceError as error:
        # A database that is away is no mistake in the files, and what comes next can be said all the same.
        return NextStep(f"The files are valid. The database cannot be asked: {error.cause}", fresh[:1])
    if facts is None:
        return NextStep(f"The files are valid. There is no slot {slot} in the database yet", fresh)
    return _with_slot(facts, fresh)


def _with_slot(facts: SlotFacts, fresh: tuple[str, ...]) -> NextStep:
    if facts.reader is not None:
        look = (
            ("headrace mirror verify",) if fresh[-1] == _MIRROR else ("headrace status", "headrace indexes")
        )
        return NextStep(f"The deployment is running: slot {facts.name} is being read.", look)
    if facts.lost:
        found = f"Slot {facts.name} is lost ({facts.why_lost}): the log has a gap"
        return NextStep(found, fresh if fresh[-1] == _MIRROR else (fresh[0], _RESEED))
    return NextStep(f"The slot {facts.name} is there, and nothing reads it", (fresh[-1], fresh[0]))
