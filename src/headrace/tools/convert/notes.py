"""Collect what a conversion has to say, by line of the file that it read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Note:
    """What a line of the file becomes, where that is not the same thing.

    Attributes:
        is_open: whether something is left to do by hand; else it is only good to know.
    """

    file: Path
    line: int
    text: str
    remedy: str = ""
    is_open: bool = False

    def __str__(self) -> str:
        """Return the note in one line, without its urgency."""
        return f"{self.file}:{self.line}: {self.text}" + (f". {self.remedy}" if self.remedy else "")


class Notes:
    """The notes on one file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: dict[Note, None] = {}

    def differs(self, line: int, text: str, remedy: str = "") -> None:
        """Note that something means something else in Headrace."""
        self._found[Note(self._file, line, text, remedy)] = None

    def left(self, line: int, text: str, remedy: str) -> None:
        """Note that something could not be converted, and what to do about it."""
        self._found[Note(self._file, line, text, remedy, is_open=True)] = None

    def in_file_order(self) -> tuple[Note, ...]:
        """Return all notes, each once."""
        return tuple(sorted(self._found, key=lambda note: note.line))
