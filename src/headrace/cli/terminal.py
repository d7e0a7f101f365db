"""How does Headrace speak to a person? Everything that is printed goes through here."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from headrace.cli.wrapping import is_stacked, table_lines, wrap, wrap_sql
from headrace.errors import HeadraceError, Kind, Retry
from headrace.postgres.ddl_plan import Step, render

out = Console(highlight=False, soft_wrap=True)
"""What a command was asked for."""

err = Console(stderr=True, highlight=False, soft_wrap=True)
"""What it does meanwhile, and what goes wrong."""


_timed = threading.Event()


@contextlib.contextmanager
def timed() -> Iterator[None]:
    """Begin each line with its time, and elsewhere than on a terminal with its level, as a log has it."""
    _timed.set()
    try:
        yield
    finally:
        _timed.clear()


def _head(level: str, mark: str) -> str:
    """What stands before a line."""
    if not _timed.is_set():
        return f"{mark} " if mark else ""
    now = datetime.now(UTC)
    if err.is_terminal:
        return f"[dim]{now.astimezone():%H:%M:%S}[/dim] {f'{mark} ' if mark else ''}"
    return f"{now:%Y-%m-%dT%H:%M:%S}Z {level} "


def _print(console: Console, head: str, text: str) -> None:
    """Print a line; on a terminal it is broken between words, elsewhere it stays one line."""
    if console.is_terminal:
        first = Text.from_markup(head).cell_len
        text = "\n".join(wrap(text, console.width, first=first))
    console.print(f"{head}{escape(text)}")


def answer(text: str) -> None:
    """Tell what a command was asked for, in one line."""
    _print(out, "", text)


def say(text: str) -> None:
    """Tell what is being done."""
    _print(err, _head("INFO", ""), text)


def done(text: str) -> None:
    """Tell what has been done."""
    _print(err, _head("INFO", "[green]✓[/green]"), text)


def warn(text: str, excerpt: str = "") -> None:
    """Tell what is not as it should be, but no reason to stop."""
    _print(err, _head("WARNING", "[yellow]![/yellow]"), text)
    _quote(excerpt)


def wrong(text: str, excerpt: str = "") -> None:
    """Tell what is a reason to stop."""
    _print(err, "[bold red]error[/bold red] ", text)
    _quote(excerpt)


def _quote(excerpt: str) -> None:
    if excerpt:
        err.print(f"[dim]{escape(excerpt)}[/dim]")


def fail(error: HeadraceError) -> None:
    """Show an error, its line or its lines; to a person also what it quotes, which no log is to have."""
    for line in str(error).splitlines():
        wrong(line)
    _quote(error.detail if err.is_terminal else "")


def error_data(error: HeadraceError) -> dict[str, object]:
    """An error for programs."""
    return {
        "code": error.code,
        "cause": error.cause,
        "remedy": error.remedy,
        "waits": error.retry is Retry.BACK_OFF,
        "exit_code": error.exit_code,
    }


def data(value: object) -> None:
    """Show a value as JSON; coloured for people alone, which takes its time."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if out.is_terminal:
        out.print_json(text)
    else:
        out.file.write(f"{text}\n")


def script(title: str, steps: Sequence[Step]) -> None:
    """Show SQL that can be run as it is; what is no SQL is a comment in it."""
    out.print(f"[bold]-- {escape(title)}[/bold]\n")
    for line in render(steps).splitlines():
        is_dim = line.startswith(("--", "COMMENT"))
        for part in wrap_sql(line, out.width) if out.is_terminal else [line]:
            out.print(f"[dim]{escape(part)}[/dim]" if is_dim else escape(part))
    out.print()


def sql(statement: str, indent: str = "") -> None:
    """Show a statement that may be long."""
    lines = [f"{indent}{line}" for line in statement.splitlines()]
    for line in lines:
        for part in wrap_sql(line, out.width) if out.is_terminal else [line]:
            out.print(part, markup=False)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Show rows under a head; the columns whose places are in `right` hold numbers.

    Where a terminal is too narrow, cells are broken between words, or each row is a block of lines. Elsewhere
    one row is one line. Nothing is cut.
    """
    width = out.width if out.is_terminal else None
    is_headed = not is_stacked(head, rows, right, width)
    for number, line in enumerate(table_lines(head, rows, right, width)):
        out.print(f"[bold]{escape(line)}[/bold]" if is_headed and not number else escape(line))


def agreed(question: str, *, yes: bool) -> bool:
    """Ask before something is altered; `yes` answers for whoever is not there.

    Raises:
        HeadraceError: USAGE, where nobody can answer.
    """
    if yes:
        return True
    err.print(escape(f"{question} [y/N] "), end="")
    try:
        answer = input()
    except EOFError as error:
        err.print()
        raise HeadraceError(
            Kind.USAGE, "nobody is there to answer the question; nothing was changed", "Add --yes."
        ) from error
    if answer.strip().lower() in {"y", "yes"}:
        return True
    say("nothing was changed")
    return False


@contextlib.contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for what takes long; yields a function that is told how much is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda finished: bar.update(task, completed=finished)


@contextlib.contextmanager
def download(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that appears with the first report of (finished, all)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(title, total=None, visible=False)
        yield lambda finished, total: bar.update(task, completed=finished, total=total, visible=True)


def working(text: str) -> contextlib.AbstractContextManager[object]:
    """Tell what is being done, with a sign of life on a terminal while it lasts."""
    if err.is_terminal:
        return err.status(escape(text))
    say(text)
    return contextlib.nullcontext()


class TerminalReporter:
    """Tells a person, or whoever reads the standard error."""

    def info(self, text: str) -> None:
        """Tell what is being done."""
        say(text)

    def done(self, text: str) -> None:
        """Tell what has been done."""
        done(text)

    def warning(self, text: str) -> None:
        """Tell what is not as it should be, but no reason to stop."""
        warn(text)

    def working(self, text: str) -> contextlib.AbstractContextManager[object]:
        """Tell what is being done, with a sign of life on a terminal while it lasts."""
        return working(text)

    def progress(self, title: str, total: int) -> contextlib.AbstractContextManager[Callable[[int], None]]:
        """Show a bar on a terminal."""
        return progress(title, total)
