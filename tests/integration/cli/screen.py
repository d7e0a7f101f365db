"""Read what stands on a terminal of a given width after a command was typed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from integration.cli.command_line import environment

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Screen:
    """What a command left on a terminal, without colours."""

    code: int
    lines: list[str]

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)


def shown(folder: Path, width: int, *words: str, variables: Mapping[str, str] | None = None) -> Screen:
    """Type `headrace WORDS` in `folder`, in a terminal of `width` columns."""
    screen, far_end = pty.openpty()
    fcntl.ioctl(far_end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    variables = {"TERM": "xterm-256color", **(variables or {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", *words],
        stdin=far_end,
        stdout=far_end,
        stderr=far_end,
        cwd=folder,
        env={name: value for name, value in environment(variables).items() if name != "COLUMNS"},
        start_new_session=True,
    )
    os.close(far_end)
    said = b""
    try:
        while chunk := os.read(screen, 65536):
            said += chunk
    except OSError:  # everyone has left it
        pass
    os.close(screen)
    lines = _CONTROLS.sub("", said.decode()).replace("\r\n", "\n").rstrip("\n").split("\n")
    return Screen(process.wait(60), [line.rpartition("\r")[2] for line in lines])
