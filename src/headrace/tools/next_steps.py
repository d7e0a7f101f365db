"""Say which commands come next, as they work in the present folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

NEXT = ("headrace check", "headrace setup", "headrace run")
"""What comes after the files of a deployment, in this order."""


def next_commands(config: Path, commands: Sequence[str], *, imports_from: Path | None = None) -> list[str]:
    """Return command lines for a deployment file.

    Args:
        config: the deployment file.
        commands: like `headrace check`.
        imports_from: the folder of its own Python, which must be importable.
    """
    before = "" if imports_from is None else f"PYTHONPATH={shlex.quote(str(imports_from))} "
    option = "" if config == Path("headrace.toml") else f" --config {shlex.quote(str(config))}"
    return [f"{before}{command}{option}" for command in commands]
