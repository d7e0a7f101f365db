"""Collect what a conversion has to tell: what is not the same thing, and what is left to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.config.problems import KeyPath, nearest_line


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
    """The notes on one file.

    Args:
        file: the file.
        lines: the line of each of its values, by the keys that lead there.
    """

    def __init__(self, file: Path, lines: Mapping[KeyPath, int]) -> None:
        self._file = file
        self._lines = lines
        self._found: dict[Note, None] = {}

    def differs(self, at: KeyPath, text: str, remedy: str = "", *, is_open: bool = False) -> None:
        """Note that the value at `at` means something else in Headrace."""
        self._found[Note(self._file, nearest_line(self._lines, at), text, remedy, is_open)] = None

    def left(self, at: KeyPath, text: str, remedy: str) -> None:
        """Note that the value at `at` could not be converted, and what to do about it."""
        self.differs(at, text, remedy, is_open=True)

    def in_file_order(self) -> tuple[Note, ...]:
        """Return all notes, each once."""
        return tuple(sorted(self._found, key=lambda note: note.line))
