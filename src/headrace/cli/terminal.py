"""Print to the terminal or to a log; everything that the command line prints goes through this module."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from headrace.errors import ErrorGroup, HeadraceError, Kind, Retry
from headrace.postgres.ddl_plan import Step, render


class _Console(Console):
    @property
    def is_terminal(self) -> bool:
        """Whether it prints to a terminal; FORCE_COLOR makes none of a file, which programs read."""
        return self.file.isatty()


# What goes to no terminal is read by programs: a line stays one line, and digits are not coloured.
out = _Console(highlight=False, soft_wrap=True)
"""For the result of a command."""

err = _Console(stderr=True, highlight=False, soft_wrap=True)
"""For progress, warnings and errors."""


_NO_LIMIT = 1_000_000
# Several threads print, so this is no plain variable.
_timed = threading.Event()


@contextlib.contextmanager
def timed() -> Iterator[None]:
    """Begin each line with its time, where the standard error is a terminal."""
    _timed.set()
    try:
        yield
    finally:
        _timed.clear()


def _head(mark: str) -> str:
    """Return the beginning of a line."""
    head = f"{mark} " if mark else ""
    is_timed = _timed.is_set() and err.is_terminal
    return f"[dim]{datetime.now(UTC).astimezone():%H:%M:%S}[/dim] {head}" if is_timed else head


def _print(console: Console, head: str, text: str) -> None:
    """Print a line; on a terminal it is wrapped between words, elsewhere it stays one line."""
    if not console.is_terminal:
        console.print(f"{head}{escape(text)}")
        return
    # A grid of two cells: what is wrapped stands below the text, and not below the mark.
    line = Table.grid()
    line.add_row(head, escape(text))
    console.print(line, soft_wrap=False)


def answer(text: str) -> None:
    """Print the result of a command, in one line."""
    _print(out, "", text)


def say(text: str) -> None:
    """Print what is being done."""
    _print(err, _head(""), text)


def done(text: str) -> None:
    """Print what has been done."""
    _print(err, _head("[green]✓[/green]"), text)


def warn(text: str, excerpt: str = "") -> None:
    """Print a warning."""
    _print(err, _head("[yellow]![/yellow]"), text)
    _quote(excerpt)


def wrong(text: str, excerpt: str = "") -> None:
    """Print an error."""
    _print(err, "[bold red]error[/bold red] ", text)
    _quote(excerpt)


def _quote(excerpt: str) -> None:
    if excerpt:
        err.print(f"[dim]{escape(excerpt)}[/dim]")


def fail(error: HeadraceError) -> None:
    """Print an error and, only on a terminal, its detail, which quotes values that no log should have."""
    # A group of errors has a line for each of them.
    for line in str(error).splitlines():
        wrong(line)
    _quote(error.detail if err.is_terminal else "")


def error_data(error: HeadraceError) -> dict[str, object]:
    """Return an error as JSON data; of several, the first, with the others as `more`."""
    first, *others = error.errors if isinstance(error, ErrorGroup) else (error,)
    return {
        "code": first.code,
        "cause": first.cause,
        "remedy": first.remedy,
        "waits": first.retry is Retry.BACK_OFF,
        "exit_code": error.exit_code,
        "more": [error_data(other) for other in others],
    }


def data(value: object) -> None:
    """Print a value as JSON, coloured on a terminal; what JSON does not have becomes text."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if out.is_terminal:
        out.print_json(text)
    else:
        # rich would wrap long values; a program reads this.
        out.file.write(f"{text}\n")


def script(title: str, steps: Sequence[Step]) -> None:
    """Print SQL that can be run as it is; other text is a comment in it."""
    out.print(f"[bold]-- {escape(title)}[/bold]\n")
    for line in render(steps).splitlines():
        is_dim = line.startswith(("--", "COMMENT"))
        out.print(f"[dim]{escape(line)}[/dim]" if is_dim else escape(line))
    out.print()


def sql(statement: str, indent: str = "") -> None:
    """Print a statement that may be long.

    Only the terminal wraps it: what is copied from there is the statement as it is.
    """
    for line in statement.splitlines():
        out.print(f"{indent}{line}", markup=False)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print a table; the columns whose numbers are in `right` are aligned to the right.

    Where a terminal is too narrow, texts are wrapped. Elsewhere one row is one line. Nothing is cut.
    """
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(head):
        grid.add_column(name, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*map(escape, row))
    if out.is_terminal:
        out.print(grid, soft_wrap=False)
        return
    # rich takes what is no terminal to have 80 columns; a program wants each row on one line.
    grid.width = Measurement.get(out, out.options.update(max_width=_NO_LIMIT), grid).maximum
    with out.capture() as printed:
        out.print(grid, crop=False, soft_wrap=False)
    for line in printed.get().splitlines():
        out.file.write(f"{line.rstrip()}\n")


def agreed(question: str) -> bool:
    """Ask the operator before something is altered.

    Raises:
        HeadraceError: USAGE where the question cannot be answered.
    """
    # On the standard error: the standard output may lead to a file.
    err.print(escape(f"{question} [y/N] "), end="")
    try:
        answer = input()
    except EOFError as error:
        err.print()
        cause = "a confirmation is needed, and no terminal is there to ask; nothing was changed"
        raise HeadraceError(Kind.USAGE, cause, "Add --yes.") from error
    if answer.strip().lower() in {"y", "yes"}:
        return True
    say("nothing was changed")
    return False


@contextlib.contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a progress bar; yield a function that takes how much is finished, and how much that is of.

    Args:
        title: what is done.
        total: how much there is to do; None: the function is told, and the bar shows from then on.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(title, total=total, visible=total is not None)

        def show(finished: int, of: int | None = total) -> None:
            bar.update(task, completed=finished, total=of, visible=True)

        yield show


def working(text: str) -> contextlib.AbstractContextManager[object]:
    """Print what is being done, with a spinner on a terminal."""
    if err.is_terminal:
        return err.status(escape(text))
    say(text)
    return contextlib.nullcontext()


class TerminalReporter:
    """Reports to the terminal, or to the standard error as a log."""

    info = staticmethod(say)
    done = staticmethod(done)
    warning = staticmethod(warn)
    working = staticmethod(working)
    progress = staticmethod(progress)
