"""What can be typed at a terminal? The composition root: the only room that knows all the others."""

from __future__ import annotations

import sys

from headrace.errors import HeadraceError

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run one command; exit 0 done, 1 failed, 2 wrong usage or configuration."""
    from headrace.cli import terminal  # noqa: PLC0415 - `import headrace.cli` stays light
    from headrace.cli.app import app  # noqa: PLC0415

    try:
        app(arguments)
    except HeadraceError as error:
        terminal.fail(error)
        sys.exit(error.exit_code)
