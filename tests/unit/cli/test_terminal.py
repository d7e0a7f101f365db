"""Can tables and messages be read on a terminal of any width, and by programs?"""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from headrace.cli import terminal

_HEAD = ("slot", "read by", "behind", "state")
_ROWS = [
    ("headrace_library", "pid 4711, headrace/library of postgres, from 127.0.0.1", "12.5 MB", "reserved"),
    ("other", "nobody", "3 B", "[lost]: its log is removed"),
]
_RIGHT = (2,)


def shown(monkeypatch: pytest.MonkeyPatch, width: int | None) -> list[str]:
    """The lines of the table on a terminal of this width; None: in a pipe."""
    output = io.StringIO()
    is_terminal = width is not None
    console = Console(
        file=output, force_terminal=is_terminal, no_color=True, width=width, highlight=False, soft_wrap=True
    )
    monkeypatch.setattr(console, "_color_system", None)
    monkeypatch.setattr(terminal, "out", console)
    terminal.table(_HEAD, _ROWS, right=_RIGHT)
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_a_row_is_one_line_where_there_is_room_or_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (None, 200):
        lines = shown(monkeypatch, width)
        assert len(lines) == 1 + len(_ROWS)
        assert lines[1].index("12.5 MB") + len("12.5 MB") == lines[0].index("behind") + len("behind")
        assert "[lost]: its log is removed" in lines[2]


@pytest.mark.parametrize("width", [88, 50])
def test_a_narrow_table_is_wrapped_and_cuts_nothing(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    lines = shown(monkeypatch, width)
    assert len(lines) > 1 + len(_ROWS)
    assert all(cell_len(line) <= width for line in lines)
    texts = "".join(cell for row in (_HEAD, *_ROWS) for cell in row)
    assert sorted("".join("".join(lines).split())) == sorted("".join(texts.split()))


def test_what_is_wrapped_of_a_message_stands_below_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=20, highlight=False, soft_wrap=True)
    monkeypatch.setattr(console, "_color_system", None)
    monkeypatch.setattr(terminal, "err", console)
    terminal.warn("the [slot] is about to be lost")
    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    assert lines == ["! the [slot] is", "  about to be lost"]


def test_a_file_is_no_terminal_whatever_the_environment_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program reads it, or it is a log, which may have no values of rows."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not terminal._Console(file=io.StringIO()).is_terminal
