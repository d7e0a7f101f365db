"""`headrace convert pgsync`: write a deployment from the files of PGSync, and say what is not the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.cli.init import check_sink, tell_of_password
from headrace.errors import HeadraceError, Kind
from headrace.model.units import are
from headrace.tools.convert import CONFIG, Conversion, convert_pgsync
from headrace.tools.next_steps import NEXT, next_commands
from headrace.tools.saved_files import save_files


def convert(
    context: CommandContext, schema: Path, database: str, folder: Path, sink: str, *, force: bool
) -> bool:
    """Convert, write the files, and return whether nothing is left to do by hand.

    Raises:
        HeadraceError: USAGE: a file exists already, or `sink` is no URL. DISK: one cannot be written. As
            `convert_pgsync` and `save_files`.
    """
    check_sink(sink)
    conversion = convert_pgsync(schema, database, sink, context.environ, folder / CONFIG)
    _write(folder, conversion.files, context.environ, force=force)
    _print(conversion)
    own_code = folder if any(file.endswith(".py") for file in conversion.files) else None
    commands = next_commands(folder / CONFIG, NEXT, imports_from=own_code)
    tell_of_password(database)
    terminal.say(f"next: {', '.join(commands)}")
    if context.as_json:
        written = [str(folder / name) for name in conversion.files]
        notes = [asdict(note) for note in conversion.notes]
        terminal.data({"written": written, "notes": notes, "general": conversion.general, "next": [commands]})
    return not any(note.is_open for note in conversion.notes)


def _print(conversion: Conversion) -> None:
    """Print what is not the same as before, and what is left to do."""
    for text in conversion.general:
        terminal.say(text)
    for note in conversion.notes:
        (terminal.wrong if note.is_open else terminal.warn)(str(note))
    left = sum(note.is_open for note in conversion.notes)
    if left:
        terminal.say(f"{left} of these {are(left)} left to do by hand")


def _write(folder: Path, files: Mapping[str, str], environ: Mapping[str, str], *, force: bool) -> None:
    # Looked at before any is written: a folder with files of two deployments would be neither.
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        remedy = "Name another --folder, or overwrite with --force."
        raise HeadraceError(Kind.USAGE, f"{folder / there[0]} exists already", remedy)
    save_files(folder, {folder / name: text.encode() for name, text in files.items()}, environ)
    for name in files:
        terminal.done(f"wrote {folder / name}")
