"""Record a command's terminal as a moving picture.

`PYTHONPATH=src:docs python -m builder.recording docs/images/demo.svg headrace demo --once` makes that of the
README. The command runs in a terminal of its own (Linux, macOS). What it printed becomes an SVG that scrolls
as the output came, with long pauses cut; without animation it shows the end. Passwords in URLs are left out.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMNS, ROWS = 100, 24
_PAUSE, _LAST_PAUSE = 1.1, 6.0
_LINE, _SIZE, _LEFT, _TOP = 19, 13, 18, 46
_WIDTH, _HEIGHT = 840, _TOP + ROWS * _LINE + 14
_PARTS = re.compile(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)")
_PASSWORD = re.compile(r"(postgresql://[^:/@\s]+:)[^@\s]+(?=@)")
_THEME = TerminalTheme(
    (15, 23, 34),
    (220, 227, 236),
    [
        (72, 84, 101),
        (242, 128, 111),
        (94, 207, 168),
        (233, 196, 106),
        (110, 168, 254),
        (201, 149, 236),
        (86, 200, 216),
        (220, 227, 236),
    ],
)


@dataclass(slots=True)
class Line:
    """A line of the terminal: when it came (seconds), and its text with colours as ANSI escapes."""

    seconds: float
    text: str = ""


def record(command: Sequence[str]) -> list[tuple[float, str]]:
    """Run a command in a terminal; return what it printed, piece by piece.

    Raises:
        SystemExit: the command failed.
    """
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.execvp(command[0], list(command))  # noqa: S606 - the caller's own command
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    begin, pieces = time.monotonic(), []
    while piece := _read(terminal):
        pieces.append((time.monotonic() - begin, piece.decode(errors="replace")))
    _, status = os.waitpid(process, 0)
    if code := os.waitstatus_to_exitcode(status):
        sys.exit(f"{command[0]} failed with {code}")
    return pieces


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux tells that the command has ended
        return b""


def lines(pieces: Iterable[tuple[float, str]]) -> list[Line]:
    """Return the lines that stay on the screen; a line that is overwritten or erased does not."""
    found = [Line(0.0)]
    for seconds, piece in pieces:
        for part in filter(None, _PARTS.split(piece)):
            if part == "\n":
                found.append(Line(seconds))
            elif part == "\x1b[2K":
                found[-1].text = ""
            elif part == "\x1b[1A":
                found.pop()
            elif part != "\r" and (not part.startswith("\x1b") or part.endswith("m")):
                found[-1].text += part
                found[-1].seconds = seconds
    return [line for line in found if line.text]


def drawing(command: str, output: Sequence[Line]) -> str:
    """Return the SVG."""
    shown = [Line(0.0, f"\x1b[1m$ {command}\x1b[0m"), *output]
    texts = "\n".join(_text(number, line.text) for number, line in enumerate(shown))
    frames, duration = _frames(shown)
    last = min(0, ROWS - len(shown)) * _LINE
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"
  aria-label="A recording of {escape(command)}">
  <style>
    .screen text {{
      font: {_SIZE}px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
      white-space: pre;
    }}
    .roll {{ transform: translateY({last}px); animation: roll {duration:.1f}s step-end infinite; }}
    @media (prefers-reduced-motion: reduce) {{ .roll {{ animation: none; }} }}
    @keyframes roll {{
{frames}
    }}
  </style>
  <clipPath id="screen">
    <rect x="0" y="{_TOP - 14}" width="{_WIDTH}" height="{_HEIGHT - _TOP + 8}"/>
  </clipPath>
  <rect width="{_WIDTH}" height="{_HEIGHT}" rx="10" fill="{_THEME.background_color.hex}"/>
  <g fill="#48546580">
    <circle cx="22" cy="18" r="6"/><circle cx="42" cy="18" r="6"/><circle cx="62" cy="18" r="6"/>
  </g>
  <g class="screen" clip-path="url(#screen)"><g class="roll" fill="{_THEME.foreground_color.hex}">
{texts}
  </g></g>
</svg>
"""


def _frames(shown: Sequence[Line]) -> tuple[str, float]:
    """Return the key frames, in which each line scrolls in when it came, and how long all takes (seconds)."""
    moments, now = [], 0.0
    for before, line in zip([shown[0], *shown], shown, strict=False):
        now += min(max(line.seconds - before.seconds, 0.0), _PAUSE)
        moments.append(now)
    duration = now + _LAST_PAUSE
    offsets = {
        round(100 * moment / duration, 2): (ROWS - number) * _LINE for number, moment in enumerate(moments, 1)
    }
    frames = (
        f"      {percent:g}% {{ transform: translateY({offset}px); }}" for percent, offset in offsets.items()
    )
    return "\n".join(frames), duration


def _text(number: int, ansi: str) -> str:
    console = Console(color_system="truecolor", width=COLUMNS, legacy_windows=False)
    text = Text.from_ansi(_PASSWORD.sub(r"\1…", ansi))
    spans = "".join(_span(segment.text, segment.style) for segment in text.render(console))
    return f'<text x="{_LEFT}" y="{_TOP + number * _LINE}">{spans}</text>'


def _span(text: str, style: Style | None) -> str:
    attributes = "".join(_attributes(style)) if style else ""
    return f"<tspan{attributes}>{escape(text)}</tspan>" if attributes else escape(text)


def _attributes(style: Style) -> Iterator[str]:
    if isinstance(style.color, Color):
        yield f' fill="{style.color.get_truecolor(_THEME).hex}"'
    if style.bold:
        yield ' font-weight="700"'
    if style.dim:
        yield ' opacity="0.65"'


if __name__ == "__main__":
    target, *words = sys.argv[1:]
    Path(target).write_text(drawing(" ".join([Path(words[0]).name, *words[1:]]), lines(record(words))))
