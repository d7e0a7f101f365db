"""How far are the documents of a running query? What Spark's own log calls done is noted in the meta index.

Beside the query: while a position is written, the next batch is under way. The source confirms to the slot no
more than what is noted; it is told by a file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from headrace.capture.held import HeldPosition
from headrace.capture.offset import Offset
from headrace.errors import HeadraceError, patiently
from headrace.model.failpoints import reach
from headrace.sinks.opensearch import Client, Counters, MetaIndex, Parked
from headrace.spark.commits import CommitLog
from headrace.spark.plan import Work

_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 5.0


class Noting:
    """A thread that notes what a query has applied, from `open` to `close`.

    Args:
        checkpoint: of the query.
        held: where the source reads how far it may confirm.
        counted: what was done by the batches up to a number, and not told before.
    """

    def __init__(
        self, work: Work, checkpoint: Path, held: HeldPosition, counted: Callable[[int], Counters]
    ) -> None:
        self._client, plan = Client(work.connections.sink), work.plan
        self._meta = MetaIndex(self._client, plan.slot, plan.prefix)
        self._parked = Parked(self._client, plan.slot, plan.prefix)
        self._commits = CommitLog(checkpoint)
        self._held = held
        self._counted = counted
        self._noted = -1
        self._failure: HeadraceError | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._note_all, name="headrace noting", daemon=True)

    def open(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Note what is done by now, and end; a cluster that does not answer soon is left alone."""
        self._ending.set()
        self._thread.join(_PATIENCE_SECONDS)
        self._client.close()

    def failure(self) -> HeadraceError | None:
        """Why nothing is noted any more; None while it is."""
        return self._failure

    def _note_all(self) -> None:
        try:
            for attempt in patiently():
                with attempt:
                    self._meta.load()
            ending = False
            while not ending:
                ending = self._ending.wait(_LOOK_SECONDS)
                done = self._commits.last()
                if done > self._noted:
                    self._note(done)
        except HeadraceError as error:
            self._failure = error

    def _note(self, batch: int) -> None:
        """Everything up to the end of a batch is durable or parked."""
        reached = Offset.from_json(self._commits.end_of(batch)).lsn
        counters = self._counted(batch)
        for attempt in patiently():
            with attempt:
                state = self._meta.advance(reached, counters, parked=self._parked.count() > 0)
        self._held.set(state.applied)
        self._noted = batch
        if counters.changes:
            reach("applied")
