"""Where does the password of the next connection come from, and how is it kept out of messages?"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence

from headrace.errors import HeadraceError, Kind

Password = Callable[[], str]
"""Asked at each connect; what it raises goes to whoever connects."""

SECONDS = 15.0
"""How long a password command may take."""

_SHOWN = "********"
_FIELD = re.compile(r"(?i)\b((?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*(?:'|$)|[^\s&'\"]+)")
_IN_URL = re.compile(r"(://[^\s/:@]*:)\S*@")


def hide_passwords(text: str) -> str:
    """Put asterisks in the place of each password that stands as such in a keyword string or a URL.

    Only fields are hidden, never text that is equal to a password: to hide each `r` would show what it is.
    """
    return _IN_URL.sub(rf"\1{_SHOWN}@", _FIELD.sub(rf"\1{_SHOWN}", text))


def words_of(command: str | Sequence[str]) -> tuple[str, ...]:
    """The words of a command: a list, its JSON, or one text that is split as a shell would split it.

    Raises:
        HeadraceError: CONFIG; the command is not shown.
    """
    try:
        given = json.loads(command) if isinstance(command, str) and command.startswith("[") else command
        words = shlex.split(given) if isinstance(given, str) else list(given)
    except ValueError as error:
        raise _no_command() from error
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words) or not words[0]:
        raise _no_command()
    return tuple(words)


def _no_command() -> HeadraceError:
    return HeadraceError(
        Kind.CONFIG, "password_command is no command", 'Write a list of words, as in ["program", "word"].'
    )


def ask(command: Sequence[str], *, seconds: float = SECONDS) -> str:
    """What `command` prints, without the line's end; it runs without a shell and reads nothing.

    Raises:
        HeadraceError: CONFIG where there is no such program; PASSWORD_COMMAND where it fails, prints no
            single line, or takes longer than `seconds`. What it printed is never part of the message.
    """
    name = command[0]
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own command, and no shell
            list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise _failed(name, f"did not answer within {seconds:g} s") from None
    except OSError as error:
        raise HeadraceError(
            Kind.CONFIG,
            f"the password command {name!r} cannot be started: {error.strerror}",
            "Correct password_command; it is run without a shell.",
        ) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        last = f": {said[-1].strip()[:300]}" if said else ""
        raise _failed(name, f"ended with exit code {done.returncode}{last}")
    lines = done.stdout.decode(errors="replace").rstrip("\r\n").splitlines()
    if len(lines) != 1 or not lines[0] or "\0" in lines[0]:
        raise _failed(name, "printed nothing" if not any(lines) else "printed more than one line")
    return lines[0]


def _failed(name: str, how: str) -> HeadraceError:
    return HeadraceError(
        Kind.PASSWORD_COMMAND,
        f"the password command {name!r} {how}",
        "Run it by hand as the user that runs Headrace; it must print the password and nothing else.",
    )
