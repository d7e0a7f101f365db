"""Watch whether a running query makes progress, and explain where it does not.

The health monitor passes on what it sees each second. While a step keeps the run's thread busy, nothing is
passed on, and the status board decides by what it knows by itself: see `StallDetector`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from headrace.capture.signals import SignalFiles
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.stall_diagnosis import StallFacts, diagnose_stall
from headrace.postgres.address import stream_name
from headrace.postgres.connection import Connection
from headrace.postgres.reachability import is_reachable
from headrace.postgres.server import is_at_work
from headrace.postgres.slot import SlotFacts
from headrace.postgres.stream_waits import NO_WAITS, StreamWaits, read_stream_waits
from headrace.state import PipelineState
from headrace.status.board import StatusBoard
from headrace.status.sinks import SinkActivity
from headrace.status.stall import Diagnosis

_QUIET_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What a look at the server and the cluster found; after an error the last known value.

    Attributes:
        slot: the slot.
        state: the state of the pipeline.
        server: the error of the look at the server.
        cluster: the error of the look at the cluster.
    """

    slot: SlotFacts | None = None
    state: PipelineState | None = None
    server: HeadraceError | None = None
    cluster: HeadraceError | None = None

    def reached(self) -> dict[str, int]:
        """Return what grows while the stream moves; nothing of a server that does not answer."""
        slot, state = self.slot, self.state
        found = {} if state is None else {"applied": state.applied, "batches": state.counters.batches}
        if slot is not None and self.server is None:
            found |= {"confirmed": slot.confirmed_flush or 0, "sent": slot.sent or 0}
        return found


@dataclass(eq=False, slots=True)
class StallMonitor:
    """Tells the board of the progress of one query, and diagnoses a stall; used from the run's thread.

    Args:
        board: its detector decides; a stall is an error there.
        signals: between the driver and the source.
        url: the database.
        slot: the name of the slot.
        sink: the name of the primary sink.
    """

    board: StatusBoard
    signals: SignalFiles
    url: str
    slot: str
    sink: str
    _answered_at: float = field(default_factory=time.monotonic, init=False)
    _diagnosis: Diagnosis | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.board.sinks.forget_tasks()
        self.board.stall.watch(self.signals.seconds_since_beat)

    def close(self) -> None:
        """End the watch."""
        self.board.stall.watch(None)

    @property
    def is_stalled(self) -> bool:
        """Whether the board shows a stall, as an error."""
        return self._diagnosis is not None

    def look(self, sighting: Sighting, connection: Connection | None) -> None:
        """Judge what the health monitor has seen, with its connection to the server, if it has one."""
        self._note_progress(sighting)
        waits = NO_WAITS
        if connection is not None and sighting.server is None:
            try:
                waits = self._read_waits(connection)
            except HeadraceError as error:
                sighting = replace(sighting, server=error)
        still, limit = self.board.stall.still_seconds(self.board.sinks.last), self.board.stall.limit
        is_near = still > limit / 2  # so that the diagnosis is there when the stall is shown
        diagnosis = self._diagnose(sighting, waits) if is_near else None
        self.board.stall.diagnosis = diagnosis
        shown, self._diagnosis = self._diagnosis, diagnosis if still > limit else None
        if self._diagnosis is not None and self._diagnosis != shown:
            self.board.record_error(self._diagnosis.error)

    def _note_progress(self, sighting: Sighting) -> None:
        reached, behind = sighting.reached(), self.board.view().lag_seconds
        if sighting.server is None:
            self._answered_at = time.monotonic()
        else:
            behind = max(behind or 0.0, time.monotonic() - self._answered_at)
        decodes = sighting.server is None and sighting.slot is not None and sighting.slot.decodes
        if self.signals.is_invisible():  # then it is no progress that the server sends more
            decodes = False
            reached.pop("sent", None)
        elif decodes and not self.signals.is_planned():  # a batch of an earlier process may be sent again
            self.board.stall.note_work()
        self.board.stall.note_look(reached, behind, decodes=decodes)
        if self.board.paused is not None:
            self.board.stall.note_pause()

    def _read_waits(self, connection: Connection) -> StreamWaits:
        """Ask the server what the stream waits for, where nothing has moved for a while.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        still = self.board.stall.still_seconds(self.board.sinks.last)
        if still < min(_QUIET_SECONDS, self.board.stall.limit / 4):
            return NO_WAITS
        name, activity = stream_name(self.slot), self._activity()
        waits = read_stream_waits(connection, self.slot, name)
        is_refused = activity is not None and activity.error is not None  # it assembles again and again
        if not is_refused and is_at_work(connection, name):
            self.board.stall.note_work()
        return waits

    def _activity(self) -> SinkActivity | None:
        """Return what the stream's writers do, without those of jobs beside it."""
        return self.board.sinks.of_tasks(self.sink)

    def _diagnose(self, sighting: Sighting, waits: StreamWaits) -> Diagnosis:
        server, state = sighting.server, sighting.state
        is_unreachable = server is not None and server.kind is Kind.CONNECTION and not is_reachable(self.url)
        return diagnose_stall(
            StallFacts(
                asked_seconds=self.signals.seconds_since_beat(),
                planned=self.signals.is_planned(),
                is_invisible=self.signals.is_invisible(),
                task=self.board.sinks.oldest_task(self.sink),
                sink=self._activity(),
                slot=sighting.slot,
                waits=waits,
                applied=None if state is None else state.applied,
                reached=None if state is None else state.ahead,
                server=server,
                is_unreachable=is_unreachable,
                reader=self.signals.reader_error(),
                cluster=sighting.cluster,
            )
        )
