"""Decode the messages of a slot into the buffer, whichever way they are read."""

from __future__ import annotations

import numpy as np

from headrace.capture.buffer import ChangeBuffer
from headrace.capture.changes import ChangeEnds, ChangeRows
from headrace.capture.columns import changes_batch
from headrace.capture.offset import Offset
from headrace.capture.recognition import Recognition
from headrace.capture.relation_routing import (
    DocumentRouting,
    GuardedRouting,
    OnInvisible,
    RelationRouting,
    RootRouting,
)
from headrace.capture.settings import StreamSettings
from headrace.capture.transactions import COMMIT
from headrace.capture.translation import Translation
from headrace.errors import HeadraceError, Retry
from headrace.model.lsn import Lsn
from headrace.pgoutput.batch import MessageBatch


class ChangeFeed:
    """Puts the changes after a position into a buffer.

    Args:
        on_invisible: see `RootRouting`.

    Attributes:
        recognition: tells whether the log is the one that was read before.
        routing: maps relations to the tables that their changes are reported under.
        translation: turns messages into changes.
    """

    def __init__(
        self, settings: StreamSettings, start: Offset, buffer: ChangeBuffer, on_invisible: OnInvisible
    ) -> None:
        self._buffer = buffer
        self._projection = settings.projection
        for_rows = GuardedRouting if settings.expected else RootRouting
        routing = for_rows if settings.documents is None else DocumentRouting
        self.routing: RelationRouting = routing(settings, on_invisible)
        self.recognition = Recognition(settings.read or start)
        self.translation = Translation(start, settings.tables, self.routing, self.recognition)

    @property
    def position(self) -> Offset:
        """Where the decoded changes end."""
        return self.translation.position

    def restart(self) -> Lsn:
        """Prepare for messages from a new connection; return where it has to begin (bytes)."""
        position = self.position
        self.translation.restart(position)
        # Not at the position: the last transaction before it must come again, to be recognised.
        return self.recognition.beginning(position.lsn)

    def reach(self, lsn: Lsn) -> None:
        """Note that every change before `lsn` was decoded."""
        # First the comparison: a buffer that is idle here lets the position be stored.
        self.recognition.passed(lsn)
        self._idle_at(lsn)

    def idle(self, upto: Lsn | None) -> None:
        """Note, unless a transaction is open, that no change lies between the last commit and `upto`."""
        # Inside a transaction no position is idle: its changes lie after the last commit.
        if self.translation.xid is None and self.position.transaction is None:
            # A transaction without a wanted change ends no batch: only this moves the slot past it.
            self._idle_at(self.position.lsn)
            if upto is not None:
                self.reach(upto)

    def _idle_at(self, lsn: Lsn) -> None:
        self._buffer.idle_at(lsn, self.recognition.last)

    def decode(self, batch: MessageBatch, *, streamed: bool = False) -> None:
        """Put the changes of `batch` into the buffer; before a final error, those of transactions before it.

        A reader that starts again behind the error, after a table was altered, could not read them: they need
        the old columns.
        """
        try:
            rows, ends = self.translation.take(batch, streamed=streamed)
        except HeadraceError as error:
            # An error that passes comes with a new connection, which sends all of it again.
            if error.retry is Retry.NEVER and not streamed:
                self._decode_before_error(batch)
            raise
        self._put(rows, ends)

    def _decode_before_error(self, batch: MessageBatch) -> None:
        """Decode the transactions before the one that fails."""
        first = 0
        for commit in np.flatnonzero(batch.data[batch.begin] == COMMIT).tolist():
            try:
                rows, ends = self.translation.take(batch.slice(first, commit + 1))
            except HeadraceError:
                return
            self._put(rows, ends)
            first = commit + 1

    def _put(self, rows: ChangeRows, ends: ChangeEnds) -> None:
        if len(rows) or len(ends):
            self._buffer.put(changes_batch(rows, self._projection), int(rows.weight.sum()), ends)
