"""Hold the state of a run: every thread may write to the board, and every thread may read it.

The pipeline's threads write, the HTTP server and the terminal read. Every method is safe from any thread, and
waits for nothing but the lock.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from headrace.errors import HeadraceError, Retry
from headrace.model.lsn import Lsn, format_lsn
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.slot import SlotFacts
from headrace.reporter import Reporter, SilentReporter
from headrace.state import Counters
from headrace.status.phases import Phase
from headrace.status.progress import LagSamples, bytes_behind
from headrace.status.sinks import SinkActivity, SinkReports, first_error
from headrace.status.stages import NO_STAGES, Stages
from headrace.status.stall import STALLED_SECONDS, Diagnosis, StallDetector


class IndexPhase(enum.StrEnum):
    """The phase of one index."""

    PENDING = "pending"
    BACKFILLING = "backfilling"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The status of one index.

    Attributes:
        generation: the concrete search index behind the alias; None until there is one.
        ranges_done: finished ranges of its backfill, of `ranges_total`; both 0 where there was nothing to
            backfill.
        documents: documents that the running backfill has written; after it, those that the index held at its
            end.
        building: the concrete index that is backfilled, the first or beside the served one; else None.
        documents_per_second: the current speed; None without a backfill.
        seconds_left: an estimate from the current speed; None where unknown.
        error: why the next generation could not be built, or why the served one is not kept up to date any
            more; None where there is no error.
        quarantined: documents that the sink refuses and that are in quarantine.
        held: documents that the served generation holds now; None where unknown.
        stored_bytes: what these take on the cluster's disks, without replicas; None where unknown.
        served_since: when readers began to see the generation (Unix time); None where unknown.
        verified: the result of the last `headrace verify`, with its time; None where there is none.
        drift: documents that were found wrong and not repaired; None where there is none.
    """

    name: str
    phase: IndexPhase = IndexPhase.PENDING
    generation: str | None = None
    ranges_done: int = 0
    ranges_total: int = 0
    documents: int = 0
    building: str | None = None
    documents_per_second: float | None = None
    seconds_left: float | None = None
    error: str | None = None
    quarantined: int = 0
    held: int | None = None
    stored_bytes: int | None = None
    served_since: float | None = None
    verified: str | None = None
    drift: int | None = None


class UnitPhase(enum.StrEnum):
    """How a unit is."""

    LIVE = "live"
    BACKFILLING = "backfilling"
    WAITING = "waiting"
    AWAY = "away"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """One index in one sink, and what is done about it.

    Attributes:
        sink: the name of a secondary sink; empty for the primary.
        why: the reason, where it is not live, or what is wrong though it is; else empty.
        next_try: seconds until it is tried again; None where nothing is to be tried.
        remedy: what an operator can do; empty where nothing is known.
        serves: whether readers see a complete generation, perhaps an old one.
    """

    sink: str
    index: str
    phase: UnitPhase
    why: str = ""
    next_try: float | None = None
    remedy: str = ""
    serves: bool = False

    @property
    def is_stuck(self) -> bool:
        """Whether somebody has to mend something."""
        is_wrong = self.phase is UnitPhase.LIVE and bool(self.why)
        return is_wrong or self.phase in (UnitPhase.WAITING, UnitPhase.FAILED)

    @property
    def text(self) -> str:
        """The reason and what can be done, in words."""
        return f"{self.why}. {self.remedy}" if self.remedy else self.why


@dataclass(frozen=True, slots=True)
class SecondaryStatus:
    """The status of a secondary sink.

    Attributes:
        deferred: documents that it lacks, because it did not accept them when they were due.
        away: why the sink is not written to; None where it is.
        indexes: its indexes, by name.
    """

    deferred: int = 0
    away: str | None = None
    indexes: Mapping[str, IndexStatus] = field(default_factory=dict)

    @property
    def phase(self) -> str:
        """The sink's phase in a word: away, backfilling, behind or live."""
        if self.away is not None:
            return "away"
        if not self.indexes or any(index.phase is not IndexPhase.LIVE for index in self.indexes.values()):
            return "backfilling"
        return "behind" if self.deferred else "live"


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions in the log (bytes); None where not known, or where there is no slot.

    Attributes:
        confirmed: the slot's `confirmed_flush_lsn`; every change before it is durable in the documents.
        applied: every change before it is durable, even where the slot is not confirmed so far.
        current: the server's newest position.
    """

    confirmed: Lsn | None = None
    applied: Lsn | None = None
    current: Lsn | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of the stream: since when (Unix time in seconds), and who ordered it."""

    since: float
    by: str


@dataclass(frozen=True, slots=True)
class LastError:
    """An error as the operator sees it; `time` is Unix time in seconds."""

    error: HeadraceError
    time: float


@dataclass(frozen=True, slots=True)
class View:
    """The whole board at one moment."""

    phase: Phase = Phase.STARTING
    unready: str | None = None
    """Why the run is not ready; None where it is."""
    started: float = 0.0
    indexes: tuple[IndexStatus, ...] = ()
    units: tuple[UnitStatus, ...] = ()
    """How each index in each sink is."""
    counts: Counters = field(default_factory=Counters)
    counts_known: bool = False
    """Whether the totals were read: they go on where the run before has ended."""
    errors: Counter[str] = field(default_factory=Counter)
    """By code."""
    positions: Positions = Positions()
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    last_error: LastError | None = None
    warnings: tuple[str, ...] = ()
    gaps: int = 0
    rebuilds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By unit and cause."""
    sinks: tuple[SinkActivity, ...] = ()
    secondary: Mapping[str, SecondaryStatus] = field(default_factory=dict)
    failure: HeadraceError | None = None
    """Why the run is degraded, or what has ended it; None where neither holds."""
    slot: SlotFacts | None = None
    """The slot as the server shows it; None where there is none."""
    tables: tuple[TableCoverage, ...] = ()
    """What the log must carry of each table, and carries."""
    stages: Stages = NO_STAGES
    """What the stages of the stream have done since it was started last."""
    last_advance: float | None = None
    """When the applied position advanced last (Unix time); None where it has not yet."""
    stalled: Diagnosis | None = None
    paused: Pause | None = None
    control_requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests to the private address, by order and outcome; they outlive the orders, which are bounded."""

    def all_indexes(self) -> Iterator[tuple[str, IndexStatus]]:
        """Yield each index after its sink's name, which is empty for the primary."""
        yield from (("", index) for index in self.indexes)
        for sink, status in self.secondary.items():
            yield from ((sink, index) for index in status.indexes.values())


WarningOf = Literal["gap", "budget", "held log", "reload", "orders"]
"""What a warning that comes and goes is about; they are shown in this order."""


class StatusBoard:
    """The state of one run.

    Args:
        indexes: the names of the indexes that must be backfilled before the run is ready.
        secondary: the names of the secondary sinks; they do not decide whether the run is ready.
        reporter: gets messages about what happens.
        stalled_after: the seconds without progress that are a stall.
        clock: monotonic seconds.
        wall: Unix time in seconds.

    Attributes:
        report: the reporter.
        sinks: the reports of the writers; one that waits for its cluster makes the run degraded.
        stall: detects that the stream stands still; it is not ready then.
    """

    def __init__(
        self,
        indexes: Iterable[str] = (),
        *,
        secondary: Iterable[str] = (),
        reporter: Reporter | None = None,
        stalled_after: float = STALLED_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.report: Reporter = SilentReporter() if reporter is None else reporter
        self._lock = threading.RLock()
        self._clock = clock
        self._wall = wall
        self.sinks = SinkReports(clock)
        self.stall = StallDetector(clock, stalled_after)
        # As it was noted; `view` adds what follows from it.
        self._known = View(started=wall(), secondary={name: SecondaryStatus() for name in secondary})
        self._indexes = {name: IndexStatus(name) for name in indexes}
        self._phase = Phase.STARTING
        self._is_degraded = False
        self._samples = LagSamples()
        self._warnings: dict[WarningOf, str | None] = dict.fromkeys(get_args(WarningOf))
        self._accepted: tuple[str, ...] = ()
        self._holder: str | None = None
        self._follows = False

    # Methods that the pipeline calls.

    def enter(self, phase: Phase) -> None:
        """Note what the run does; that something fails stays true until it has `recovered`.

        A run that stopped stays so.
        """
        with self._lock:
            if self._phase is not Phase.STOPPED:
                self._phase = phase

    def recovered(self) -> None:
        """Note that what failed has succeeded: the run is in the phase that the failure interrupted."""
        with self._lock:
            self._is_degraded = False

    def note(self, **facts: Any) -> None:
        """Change fields of the `View` that follow from nothing else: units, slot, tables, stages."""
        with self._lock:
            self._known = replace(self._known, **facts)

    def stand_by(self, holder: str) -> None:
        """Note behind which process this run stands by."""
        self._holder = holder

    def mark_following(self, *, follows: bool = True) -> None:
        """Note whether the stream follows: indexes are served then while others are backfilled."""
        self._follows = follows

    def record_error(self, error: HeadraceError, *, degrades: bool = False) -> None:
        """Note `error`; a retryable one, or where it `degrades`, makes the run degraded until it recovers."""
        with self._lock:
            errors = self._known.errors + Counter([error.code])
            self.note(errors=errors, last_error=LastError(error, self._wall()))
            if degrades or error.retry is Retry.BACK_OFF:
                self._is_degraded = True

    def ended(self, error: HeadraceError) -> None:
        """Note that `error` has ended the run."""
        self.record_error(error)
        self.note(failure=error)
        self.enter(Phase.STOPPED)

    def index(self, name: str, *, sink: str = "", **changes: Any) -> None:
        """Change fields of an index's `IndexStatus`, perhaps in a secondary sink; an unknown one is added."""
        with self._lock:
            if not sink:
                self._indexes[name] = replace(self._indexes.get(name, IndexStatus(name)), **changes)
                return
            known = self._known.secondary.get(sink, SecondaryStatus()).indexes
            index = replace(known.get(name, IndexStatus(name)), **changes)
            self.secondary(sink, indexes={**known, name: index})

    def set_indexes(self, names: Collection[str]) -> None:
        """Show these indexes and no others, in every sink; what is known of one stays."""
        with self._lock:
            self._indexes = {name: self._indexes.get(name, IndexStatus(name)) for name in names}
            for sink, known in self._known.secondary.items():
                kept = {name: index for name, index in known.indexes.items() if name in names}
                self.secondary(sink, indexes=kept)

    def secondary(self, name: str, **changes: Any) -> None:
        """Change fields of a secondary sink's `SecondaryStatus`."""
        with self._lock:
            known = self._known.secondary
            status = replace(known.get(name, SecondaryStatus()), **changes)
            self.note(secondary={**known, name: status})

    def set_counts(self, counts: Counters) -> None:
        """Set the totals; a smaller number than before is ignored."""
        with self._lock:
            most = Counters(*map(max, astuple(self._known.counts), astuple(counts)))
            self.note(counts=most, counts_known=True)

    def set_positions(self, positions: Positions) -> None:
        """Set the positions of slot, documents and server; called about once a second, for the lag."""
        with self._lock:
            before, advance = self._known.positions.applied, self._known.last_advance
            if before is not None and positions.applied is not None and positions.applied > before:
                advance = self._wall()
            self.note(positions=positions, last_advance=advance)
            if positions.current is not None:
                self._samples = self._samples.observed(positions.current, self._clock())

    def record_gap(self, text: str) -> None:
        """Note a gap in the log; it is a warning until every index is built again."""
        self.set_warning("gap", text)
        with self._lock:
            self.note(gaps=self._known.gaps + 1)

    def count_rebuild(self, unit: str, cause: str) -> None:
        """Count that an index which readers see is built again, or is followed no more until it is."""
        with self._lock:
            self.note(rebuilds=self._known.rebuilds + Counter([(unit, cause)]))

    def pause(self, by: str) -> bool:
        """Pause the stream; return False where it is paused already, which changes nothing.

        It lasts through retries, and ends with the run.
        """
        with self._lock:
            if self._known.paused is not None:
                return False
            self.note(paused=Pause(self._wall(), by))
            return True

    def resume(self) -> bool:
        """End the pause; return False where there is none."""
        with self._lock:
            was_paused = self._known.paused is not None
            self.note(paused=None)
            return was_paused

    def count_request(self, order: str, outcome: str) -> None:
        """Count a request to the private address: what was ordered, and how it was answered."""
        with self._lock:
            self.note(control_requests=self._known.control_requests + Counter([(order, outcome)]))

    def set_warning(self, of: WarningOf, text: str | None) -> None:
        """Set a warning that holds until it is removed (None); a new one is reported once."""
        with self._lock:
            before, self._warnings[of] = self._warnings[of], text
        if before is None and text is not None:
            self.report.warning(text)

    def set_warnings(self, warnings: Iterable[str]) -> None:
        """Replace the accepted risks, one sentence each."""
        self._accepted = tuple(warnings)

    # What readers of the board use.

    @property
    def phase(self) -> Phase:
        """What the run is doing."""
        return self.view().phase

    @property
    def paused(self) -> Pause | None:
        """The pause; None while the stream goes on."""
        return self._known.paused

    @property
    def ready(self) -> bool:
        """Whether every index is backfilled and the stream is up to date."""
        return self.view().unready is None

    def view(self) -> View:
        """Return the whole board at one moment."""
        # These have locks of their own. They are asked before ours is held, so no two locks are ever taken
        # crosswise.
        sinks = self.sinks.view()
        # A secondary sink that takes nothing is deferred; only the primary's holds the stream up.
        waiting = first_error(sink for sink in sinks if sink.name not in self._known.secondary)
        stalled = self.stall.view(self.sinks.last)
        with self._lock:
            known, positions = self._known, self._known.positions
            # A writer that waits reports no error to the run, which works on a batch: the board shows it all
            # the same.
            is_degraded = self._is_degraded or waiting is not None
            phase, failure, last = self._phase, known.failure, known.last_error
            if is_degraded and phase is not Phase.STOPPED:
                phase, failure = Phase.DEGRADED, waiting or (None if last is None else last.error)
            return replace(
                known,
                phase=phase,
                unready=self._why_unready(phase, failure, stalled),
                indexes=tuple(self._indexes.values()),
                lag_bytes=bytes_behind(positions.confirmed, positions.current),
                lag_seconds=self._samples.seconds_behind(positions.confirmed, self._clock()),
                warnings=self._shown_warnings(),
                sinks=sinks,
                failure=failure,
                stalled=stalled,
            )

    def _shown_warnings(self) -> tuple[str, ...]:
        units = [_describe_unit(unit) for unit in self._known.units if unit.is_stuck]
        pause = _describe_pause(self._known.paused)
        return tuple(filter(None, (pause, *self._warnings.values(), *units, *self._accepted)))

    def _why_unready(
        self, phase: Phase, failure: HeadraceError | None, stalled: Diagnosis | None
    ) -> str | None:
        if stalled is not None:
            return f"stalled: {stalled.error}"
        if phase is Phase.LIVE or (phase is Phase.BACKFILLING and self._follows):
            return self._why_incomplete()
        because = {
            Phase.STARTING: self._warnings["gap"],
            Phase.STANDBY: self._holder and f"the run on {self._holder} works",
            Phase.DEGRADED: failure and str(failure),
        }.get(phase)
        return f"{phase.value}: {because}" if because else phase.value

    def _why_incomplete(self) -> str | None:
        """Return which indexes have no complete generation for readers, or which gap is open; else None."""
        served = {unit.index for unit in self._known.units if unit.serves and not unit.sink}
        served |= {index.name for index in self._indexes.values() if index.phase is IndexPhase.LIVE}
        incomplete = [name for name in self._indexes if name not in served]
        # After a gap readers see documents of before it, and no change comes to them.
        return f"not backfilled: {', '.join(incomplete)}" if incomplete else self._warnings["gap"]

    def snapshot(self) -> dict[str, Any]:
        """Return the board at one moment as JSON values: the body of `/status`.

        Times are ISO 8601 in UTC, positions PostgreSQL's text and bytes; unknown values are null.
        """
        view = self.view()
        last = view.last_error
        return {
            "phase": view.phase.value,
            "ready": view.unready is None,
            "reason": view.unready,
            "paused": view.paused and {"since": _iso(view.paused.since), "by": view.paused.by},
            "started": _iso(view.started),
            "indexes": [_index(index) for index in view.indexes],
            "units": [asdict(unit) for unit in view.units],
            "counters": {**asdict(view.counts), "errors": sum(view.errors.values()), "gaps": view.gaps},
            "positions": {name: _position(lsn) for name, lsn in asdict(view.positions).items()},
            "lag": {"bytes": view.lag_bytes, "seconds": view.lag_seconds},
            "sinks": _sinks(view),
            "last_error": last
            and {"code": last.error.code, "text": str(last.error), "time": _iso(last.time)},
            "warnings": list(view.warnings),
        }


def _describe_unit(unit: UnitStatus) -> str:
    name = f"{unit.sink}: {unit.index}" if unit.sink else unit.index
    again = "" if unit.next_try is None else f"; it is tried again in {unit.next_try:.0f} s"
    remedy = f". {unit.remedy}" if unit.remedy else ""
    return f"{name} is {unit.phase.value}: {unit.why}{again}{remedy}"


def _describe_pause(pause: Pause | None) -> str | None:
    if pause is None:
        return None
    return (
        f"paused since {_iso(pause.since)} by {pause.by}: changes wait in the log, which the slot retains; "
        "`headrace resume` goes on"
    )


def _sinks(view: View) -> dict[str, Any]:
    sinks: dict[str, Any] = {activity.name: _sink(activity) for activity in view.sinks}
    for name, secondary in view.secondary.items():
        indexes = [_index(index) for index in secondary.indexes.values()]
        status = {"phase": secondary.phase, **asdict(secondary), "indexes": indexes}
        sinks[name] = sinks.get(name, {}) | status
    return sinks


def _index(index: IndexStatus) -> dict[str, Any]:
    since = None if index.served_since is None else _iso(index.served_since)
    return {**asdict(index), "phase": index.phase.value, "served_since": since}


def _sink(activity: SinkActivity) -> dict[str, Any]:
    return {
        "bulk_bytes": activity.bulk_bytes,
        "in_flight": activity.in_flight,
        "retries": activity.retries,
        "error": None if activity.error is None else str(activity.error),
    }


def _position(lsn: Lsn | None) -> dict[str, Any] | None:
    return None if lsn is None else {"lsn": format_lsn(lsn), "bytes": lsn}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
