"""Decide whether the stream stands still, and hold the diagnosis."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.errors import HeadraceError, Kind
from headrace.model.stage import Stage

STALLED_SECONDS = 40.0
"""A stream without progress for so long has stalled; it shows within 60 s of its cause, as an idle slot
moves every ten."""
_FIRST_SECONDS = 60.0
"""The first batch may take so much longer: Python processes start for it, on a busy machine slowly."""
_FRESH_SECONDS = 20.0
"""A look at the server that is older says nothing about now."""


class StallCause(enum.StrEnum):
    """The likely cause of a stall; the values are labels of a metric."""

    SERVER = "server"
    NETWORK = "network"
    CLUSTER = "cluster"
    LOCK = "lock"
    TRANSACTION = "transaction"
    READER = "reader"
    WORKER = "worker"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Which stage stands still, and why.

    Attributes:
        stage: the stage; None where unknown.
        cause: the likely cause.
        text: the cause for people, without a full stop; it does not change from one look to the next.
        remedy: what to do.
    """

    stage: Stage | None
    cause: StallCause
    text: str
    remedy: str

    @property
    def error(self) -> HeadraceError:
        """The error that the operator sees."""
        where = "" if self.stage is None else f" at the stage {self.stage}"
        return HeadraceError(Kind.STALLED, f"the stream stands still{where}: {self.text}", self.remedy)


NOT_DIAGNOSED = Diagnosis(
    None,
    StallCause.UNKNOWN,
    "no batch has ended, no document was written and the database has worked on no statement of it",
    "Look for locks in pg_stat_activity and at the workers' memory, or restart the run: it continues from "
    "the slot's position.",
)
"""Shown where nothing was found, or where the look itself hangs."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at the server: when it was (the clock's seconds), and how far the stream was behind (s)."""

    at: float
    behind: float


class StallDetector:
    """Detects a stream that stands still: in the middle of a batch, or while the server moves on.

    Signs of progress are a position that advances, a batch that ends, a document that is written, and a
    statement of the stream that the database executes. So neither a long batch nor a large transaction is a
    stall, and a server without news is none. Readers of the board do the check, so a stall shows even when
    the thread that writes the board hangs. The methods are safe from any thread.

    Args:
        clock: monotonic seconds.
        limit: the seconds without progress that are a stall.
    """

    def __init__(self, clock: Callable[[], float], limit: float = STALLED_SECONDS) -> None:
        self.limit = limit
        self._clock = clock
        self.watch(None)

    def watch(self, beat: Callable[[], float | None] | None) -> None:
        """Set the function that returns how many seconds ago the source was asked for a batch.

        The function returns None before the first batch. Where `beat` is None there is no source to watch.
        """
        self._beat = beat
        self._has_batch = False
        self._began = self._worked = self._moved = self._clock()
        self._reached: dict[str, int] = {}
        self._look: _Look | None = None
        self.diagnosis: Diagnosis | None = None

    def note_first_batch(self) -> None:
        """Note that the first batch has ended; until then nothing counts as a stall for a while."""
        self._has_batch = True

    def note_work(self) -> None:
        """Note that the database is at work for the stream right now."""
        self._worked = self._clock()

    def note_pause(self) -> None:
        """Note that the stream is paused on request, so that it does not stand still by itself."""
        self._began = self._moved = self._clock()

    def note_look(self, reached: Mapping[str, int], behind: float | None, *, decodes: bool = False) -> None:
        """Note a look at the server.

        Args:
            reached: positions and counters; one that is higher than ever before is progress.
            behind: since when the slot's position has not been the server's newest (s); None where unknown.
            decodes: whether the server decodes the log right now; its position stands still in a large
                transaction.
        """
        now = self._clock()
        higher = {name: value for name, value in reached.items() if value > self._reached.get(name, -1)}
        self._reached |= higher
        if decodes or higher:
            self._moved = now
        self._look = None if behind is None else _Look(now, behind)

    def still_seconds(self, heard: float) -> float:
        """Return for how long the stream stands still (s); 0 where it does not.

        Args:
            heard: when a writer made progress last (the clock's seconds).
        """
        since = None if self._beat is None else self._beat()
        if since is None:
            return 0.0
        now, look = self._clock(), self._look
        signs = max(self._worked, heard, self._began + (0.0 if self._has_batch else _FIRST_SECONDS))
        # A batch that was asked for a moment ago cannot stand still for longer than that.
        inside_batch = min(since, now - signs)
        # An old look would call a server without news a stall: only the batch itself counts then.
        if look is None or now - look.at > _FRESH_SECONDS:
            return max(0.0, inside_batch)
        behind = min(look.behind + now - look.at if look.behind else 0.0, now - max(signs, self._moved))
        return max(0.0, inside_batch, behind)

    def view(self, heard: float) -> Diagnosis | None:
        """Return the diagnosis of the stall; None where there is none."""
        return (self.diagnosis or NOT_DIAGNOSED) if self.still_seconds(heard) > self.limit else None
