"""Collect what a conversion has to tell: what is not the same thing, and what is left to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes on one file, from a value in it on.

    Attributes:
        lines: the line of each value of the file, by the keys that lead there.
        place: the keys that lead to the value.
        found: the notes on the whole file, each once.
    """

    file: Path
    lines: Mapping[KeyPath, int]
    place: KeyPath = ()
    found: dict[Note, None] = field(default_factory=dict)

    def below(self, *keys: str | int) -> Notes:
        """Return what takes notes on a value below."""
        return replace(self, place=(*self.place, *keys))

    def differs(self, text: str, remedy: str = "", *, is_open: bool = False) -> None:
        """Note that the value means something else in Headrace."""
        self.found[Note(self.file, nearest_line(self.lines, self.place), text, remedy, is_open)] = None

    def left(self, text: str, remedy: str) -> None:
        """Note that the value could not be converted, and what to do about it."""
        self.differs(text, remedy, is_open=True)

    def in_file_order(self) -> tuple[Note, ...]:
        """Return the notes on the whole file."""
        return tuple(sorted(self.found, key=lambda note: note.line))
