"""The part of the status board that shows the indexes of one sink."""

from __future__ import annotations

from typing import Any, Protocol

from headrace.reporter import Reporter
from headrace.status.board import StatusBoard
from headrace.status.sinks import SinkReports


class IndexBoard(Protocol):
    """Takes the status of indexes."""

    @property
    def report(self) -> Reporter:
        """The reporter that gets messages about what happens."""
        ...

    @property
    def sinks(self) -> SinkReports:
        """What writers and the tasks of backfills report."""
        ...

    def index(self, name: str, **changes: Any) -> None:
        """Change fields of one index's `IndexStatus`."""
        ...


class SecondaryIndexBoard:
    """Shows the indexes of one secondary sink."""

    def __init__(self, board: StatusBoard, sink: str) -> None:
        self._board = board
        self._sink = sink

    @property
    def report(self) -> Reporter:
        """The reporter of the board."""
        return self._board.report

    @property
    def sinks(self) -> SinkReports:
        """The reports of the board."""
        return self._board.sinks

    def index(self, name: str, **changes: Any) -> None:
        """Change fields of an index's `IndexStatus`."""
        self._board.secondary_index(self._sink, name, **changes)
