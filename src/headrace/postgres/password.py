"""Read and run the password command, and hide passwords in messages."""

from __future__ import annotations

import errno
import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

from headrace.errors import HeadraceError, Kind

CLOUDS = ("aws", "azure", "google")
"""The clouds whose tokens `iam:CLOUD` asks for, in the place of a command."""

SECONDS = 15.0
"""How long a password command may take."""

_NO_PROGRAM = frozenset({errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC})
_IAM = "iam:"
_SHOWN = "********"
_FIELD = re.compile(r"(?i)\b((?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*(?:'|$)|[^\s&'\"]+)")
_IN_URL = re.compile(r"(://[^\s/:@]*:)\S*@")


def hide_passwords(text: str) -> str:
    """Replace each password in a keyword string or a URL by asterisks.

    Only password fields are hidden, never other text that equals a password: to hide each `r` would reveal
    it.
    """
    return _IN_URL.sub(rf"\1{_SHOWN}@", _FIELD.sub(rf"\1{_SHOWN}", text))


def split_command(command: str | Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command: a list, its JSON, or a text that is split as a shell would split it.

    Raises:
        HeadraceError: CONFIG; the command is not shown.
    """
    try:
        words = _words(command)
    except ValueError as error:
        raise _invalid_command() from error
    if not words or not words[0] or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise _invalid_command()
    if words[0].startswith(_IAM) and cloud_of(words) is None:
        raise HeadraceError(
            Kind.CONFIG,
            "password_command names a cloud that is not known",
            f"Write {', '.join(_IAM + cloud for cloud in CLOUDS)}, or a command that prints the password.",
        )
    return tuple(words)


def _words(command: str | Sequence[str]) -> list[Any]:
    if not isinstance(command, str):
        return list(command)
    # libpq's connection strings and the environment have no lists: there the list is JSON.
    return list(json.loads(command)) if command.startswith("[") else shlex.split(command)


def cloud_of(command: Sequence[str]) -> str | None:
    """Return the cloud that a command `iam:CLOUD` names; None for a program."""
    return next((cloud for cloud in CLOUDS if list(command) == [_IAM + cloud]), None)


def _invalid_command() -> HeadraceError:
    return HeadraceError(
        Kind.CONFIG, "password_command is not a command", 'Write a list of words, as in ["program", "word"].'
    )


def run_password_command(command: Sequence[str], *, seconds: float = SECONDS, what: str = "password") -> str:
    """Run `command` without a shell and without input; return the line that it prints.

    Args:
        command: the program and its words.
        seconds: how long it may take.
        what: what it prints, as messages call it: `password` or `token`.

    Raises:
        HeadraceError: CONFIG where there is no such program; PASSWORD_COMMAND where it fails, prints no
            single line, or takes longer than `seconds`. What it printed is never part of the message.
    """
    name = command[0]
    try:
        result = subprocess.run(  # noqa: S603 - the operator's own command, and no shell
            list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise _failed(what, name, f"did not answer within {seconds:g} s") from None
    except OSError as error:
        # Others pass: no memory, no process or file is left, or the program is being replaced.
        if error.errno not in _NO_PROGRAM:
            raise _failed(what, name, f"could not be started: {error.strerror}") from error
        raise HeadraceError(
            Kind.CONFIG,
            f"the {what} command {name!r} cannot be started: {error.strerror}",
            f"Correct {what}_command; it is run without a shell.",
        ) from error
    if result.returncode:
        errors = result.stderr.decode(errors="replace").strip().splitlines()
        last = f": {errors[-1].strip()[:300]}" if errors else ""
        raise _failed(what, name, f"ended with exit code {result.returncode}{last}")
    lines = result.stdout.decode(errors="replace").rstrip("\r\n").splitlines()
    if len(lines) != 1 or not lines[0] or "\0" in lines[0]:
        raise _failed(what, name, "printed nothing" if not any(lines) else "printed more than one line")
    return lines[0]


def _failed(what: str, name: str, how: str) -> HeadraceError:
    return HeadraceError(
        Kind.PASSWORD_COMMAND,
        f"the {what} command {name!r} {how}",
        f"Run it by hand as the user that runs Headrace; it must print the {what} and nothing else.",
    )
