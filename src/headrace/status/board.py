"""Hold the state of a run: every thread may write to the board, and every thread may read it.

The pipeline's threads write, the HTTP server and the terminal read. Every method is safe from any thread, and
waits for nothing but the lock.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.lsn import Lsn, format_lsn
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.slot import SlotFacts
from headrace.reporter import Reporter, SilentReporter
from headrace.status.control import ControlStatus, Pause
from headrace.status.phases import Event, Phase, State
from headrace.status.progress import LagSamples, bytes_behind
from headrace.status.sinks import SinkActivity, SinkReports, first_error
from headrace.status.stages import NO_STAGES, Stages
from headrace.status.stall import STALLED_SECONDS, StallDetector, Stalled


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
        rows: root rows that its backfill has read.
        documents: documents that the running backfill has written; after it, those that the index held at its
            end.
        building: the concrete index that is backfilled, the first or beside the served one; else None.
        documents_per_second: the current speed; None without a backfill.
        seconds_left: an estimate from the current speed; None where unknown.
        error: why the last generation could not be built or is no longer retained, or why the served one is
            not kept up to date any more; None where there is no error.
        quarantined: documents that the sink refuses and that are in quarantine.
        held: documents that the served generation holds now; None where unknown.
        stored_bytes: what these take on the cluster's disks, without replicas; None where unknown.
        served_since: when readers began to see the generation (Unix time); None where unknown.
        verified: the result of the last `headrace verify`, with its time; None where there is none.
        drift: documents that it found wrong and did not repair; None where there is none.
    """

    name: str
    phase: IndexPhase = IndexPhase.PENDING
    generation: str | None = None
    ranges_done: int = 0
    ranges_total: int = 0
    rows: int = 0
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


@dataclass(frozen=True, slots=True)
class UnitOnBoard:
    """One index in one sink, and what is done about it.

    Attributes:
        sink: the name of a secondary sink; empty for the primary.
        phase: live, backfilling, waiting, away or failed.
        why: the reason, where it is not live; else empty.
        next_try: seconds until it is tried again; None where nothing is to be tried.
        remedy: what an operator can do; empty where nothing is known.
        serves: whether readers see a complete generation, perhaps an old one.
    """

    sink: str
    index: str
    phase: str
    why: str = ""
    next_try: float | None = None
    remedy: str = ""
    serves: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing is to be said of it."""
        return self.phase == "live"


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
class Counts:
    """What the run has done, in whole numbers that only grow."""

    changes: int = 0
    upserts: int = 0
    deletes: int = 0
    batches: int = 0
    rejected: int = 0


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
class LastError:
    """An error as the operator sees it; `time` is Unix time in seconds."""

    code: str
    text: str
    time: float
    cause: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """The whole board at one moment."""

    phase: Phase
    unready: str | None
    """Why the run is not ready; None where it is."""
    started: float
    indexes: tuple[IndexStatus, ...]
    units: tuple[UnitOnBoard, ...]
    counts: Counts
    counts_known: bool
    """Whether the totals were read: they go on where the run before has ended."""
    errors: dict[str, int]
    positions: Positions
    lag_bytes: int | None
    lag_seconds: float | None
    last_error: LastError | None
    warnings: tuple[str, ...]
    gaps: int = 0
    rebuilds: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By unit and cause."""
    sinks: tuple[SinkActivity, ...] = ()
    secondary: Mapping[str, SecondaryStatus] = field(default_factory=dict)
    failure: LastError | None = None
    """Why the run is degraded, or what has ended it; None where neither holds."""
    slot: SlotFacts | None = None
    tables: tuple[TableCoverage, ...] = ()
    stages: Stages = NO_STAGES
    last_advance: float | None = None
    """When the applied position advanced last (Unix time); None where it has not yet."""
    stalled: Stalled | None = None
    paused: Pause | None = None
    control_requests: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class _Content:
    state: State = field(default_factory=State)
    indexes: dict[str, IndexStatus] = field(default_factory=dict)
    units: tuple[UnitOnBoard, ...] = ()
    counts: Counts = Counts()
    counts_known: bool = False
    errors: dict[Kind, int] = field(default_factory=dict)
    positions: Positions = Positions()
    samples: LagSamples = field(default_factory=LagSamples)
    last_error: LastError | None = None
    warnings: tuple[str, ...] = ()
    holder: str | None = None
    follows: bool = False
    gaps: int = 0
    rebuilds: dict[tuple[str, str], int] = field(default_factory=dict)
    gap: str | None = None
    budget_warning: str | None = None
    held_log: str | None = None
    refused_reload: str | None = None
    secondary: dict[str, SecondaryStatus] = field(default_factory=dict)
    ended_by: LastError | None = None
    slot: SlotFacts | None = None
    tables: tuple[TableCoverage, ...] = ()
    stages: Stages = NO_STAGES
    last_advance: float | None = None


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
        control: what operators have ordered of the run.
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
        self._lock = threading.Lock()
        self._clock = clock
        self._wall = wall
        self._started = wall()
        self.sinks = SinkReports(clock)
        self.stall = StallDetector(clock, stalled_after)
        self.control = ControlStatus(wall)
        self._content = _Content(
            indexes={name: IndexStatus(name) for name in indexes},
            secondary={name: SecondaryStatus() for name in secondary},
        )

    # Methods that the pipeline calls.

    def apply_event(self, event: Event) -> None:
        """Move the phase to the one that `event` leads to."""
        with self._lock:
            self._content.state = self._content.state.after(event)

    def stand_by(self, holder: str) -> None:
        """Note behind which process this run stands by."""
        with self._lock:
            self._content.holder = holder

    def mark_following(self) -> None:
        """Note that the stream is up to date; from now on indexes are served while others are backfilled."""
        with self._lock:
            self._content.follows = True

    def record_error(self, error: HeadraceError) -> None:
        """Note `error`; a retryable one makes the run degraded until `Event.RECOVERED`."""
        with self._lock:
            content = self._content
            content.errors[error.kind] = content.errors.get(error.kind, 0) + 1
            content.last_error = _last_error(error, self._wall())
            if error.retry is Retry.BACK_OFF:
                content.state = content.state.after(Event.FAILED)

    def ended(self, error: HeadraceError) -> None:
        """Note that `error` has ended the run."""
        self.record_error(error)
        with self._lock:
            self._content.ended_by = self._content.last_error
            self._content.state = self._content.state.after(Event.STOPPED)

    def index(self, name: str, *, sink: str = "", **changes: Any) -> None:
        """Change fields of an index's `IndexStatus`, perhaps in a secondary sink; an unknown one is added."""
        if sink:
            self.secondary_index(sink, name, **changes)
            return
        with self._lock:
            known = self._content.indexes.get(name, IndexStatus(name))
            self._content.indexes[name] = replace(known, **changes)

    def set_units(self, units: Iterable[UnitOnBoard]) -> None:
        """Set how each index in each sink is."""
        with self._lock:
            self._content.units = tuple(units)

    def set_indexes(self, names: Iterable[str]) -> None:
        """Show these indexes and no others; what is known of one stays."""
        with self._lock:
            known = self._content.indexes
            self._content.indexes = {name: known.get(name, IndexStatus(name)) for name in names}

    def secondary(self, name: str, **changes: Any) -> None:
        """Change fields of a secondary sink's `SecondaryStatus`."""
        with self._lock:
            known = self._content.secondary.get(name, SecondaryStatus())
            self._content.secondary[name] = replace(known, **changes)

    def secondary_index(self, sink: str, name: str, **changes: Any) -> None:
        """Change fields of one index's `IndexStatus` in a secondary sink."""
        with self._lock:
            known = self._content.secondary.get(sink, SecondaryStatus())
            index = replace(known.indexes.get(name, IndexStatus(name)), **changes)
            self._content.secondary[sink] = replace(known, indexes={**known.indexes, name: index})

    def set_counts(self, counts: Counts) -> None:
        """Set the totals; a smaller number than before is ignored."""
        with self._lock:
            self._content.counts_known = True
            before, now = asdict(self._content.counts), asdict(counts)
            self._content.counts = Counts(**{name: max(before[name], now[name]) for name in now})

    def set_positions(self, positions: Positions) -> None:
        """Set the positions of slot, documents and server; called about once a second, for the lag."""
        with self._lock:
            before = self._content.positions.applied
            if before is not None and positions.applied is not None and positions.applied > before:
                self._content.last_advance = self._wall()
            self._content.positions = positions
            if positions.current is not None:
                self._content.samples = self._content.samples.observed(positions.current, self._clock())

    def staged(self, stages: Stages) -> None:
        """Set what the stages of the stream have done since it was started last."""
        with self._lock:
            self._content.stages = stages

    def slot_seen(self, slot: SlotFacts | None) -> None:
        """Set the slot as the server shows it; None where there is none."""
        with self._lock:
            self._content.slot = slot

    def tables_seen(self, tables: Iterable[TableCoverage]) -> None:
        """Set what the log must carry of each table, and carries."""
        with self._lock:
            self._content.tables = tuple(tables)

    def record_gap(self, text: str) -> None:
        """Note a gap in the log; it is a warning until `close_gap`."""
        with self._lock:
            self._content.gaps += 1
            self._content.gap = text

    def count_rebuild(self, unit: str, cause: str) -> None:
        """Count that an index which readers see is built again, or is followed no more until it is."""
        with self._lock:
            counted = self._content.rebuilds
            counted[unit, cause] = counted.get((unit, cause), 0) + 1

    def close_gap(self) -> None:
        """Note that every index is built again after a gap."""
        with self._lock:
            self._content.gap = None

    def set_budget_warning(self, text: str | None) -> None:
        """Set or remove the warning that the slot retains much of the log that it may retain."""
        with self._lock:
            self._content.budget_warning = text

    def set_held_log(self, text: str | None) -> None:
        """Set or remove the warning that an open transaction makes the server keep log for the slot."""
        with self._lock:
            self._content.held_log = text

    def record_refused_reload(self, text: str | None) -> None:
        """Note why the files that lie there are not taken up; None where they are."""
        with self._lock:
            self._content.refused_reload = text

    def set_warnings(self, warnings: Iterable[str]) -> None:
        """Replace the warnings: accepted risks, one sentence each."""
        with self._lock:
            self._content.warnings = tuple(warnings)

    # What readers of the board use.

    @property
    def phase(self) -> Phase:
        """What the run is doing."""
        return self.view().phase

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
        waiting = first_error(sink for sink in sinks if sink.name not in self._content.secondary)
        paused = self.control.paused
        stalled = self.stall.view(self.sinks.last)
        with self._lock:
            content = self._content
            confirmed = content.positions.confirmed
            # A writer that waits reports no error to the run, which works on a batch: the board shows it all
            # the same.
            state = content.state if waiting is None else content.state.after(Event.FAILED)
            return View(
                phase=state.phase,
                unready=_why_unready(content, state.phase, waiting, stalled),
                started=self._started,
                indexes=tuple(content.indexes.values()),
                units=content.units,
                counts=content.counts,
                counts_known=content.counts_known,
                errors={f"HEADRACE_{kind.value}": count for kind, count in content.errors.items()},
                positions=content.positions,
                lag_bytes=bytes_behind(confirmed, content.positions.current),
                lag_seconds=content.samples.seconds_behind(confirmed, self._clock()),
                last_error=content.last_error,
                warnings=_warnings(content, paused),
                gaps=content.gaps,
                rebuilds=dict(content.rebuilds),
                sinks=sinks,
                secondary=dict(content.secondary),
                failure=self._failure(state.phase, waiting),
                slot=content.slot,
                tables=content.tables,
                stages=content.stages,
                last_advance=content.last_advance,
                stalled=stalled,
                paused=paused,
                control_requests=self.control.requests(),
            )

    def _failure(self, phase: Phase, waiting: HeadraceError | None) -> LastError | None:
        if phase is Phase.DEGRADED and waiting is not None:
            return _last_error(waiting, self._wall())
        if phase is Phase.STOPPED:
            return self._content.ended_by
        return self._content.last_error if phase is Phase.DEGRADED else None

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
            "last_error": last and {"code": last.code, "text": last.text, "time": _iso(last.time)},
            "warnings": list(view.warnings),
        }


def _warnings(content: _Content, paused: Pause | None) -> tuple[str, ...]:
    refused = content.refused_reload and f"the changed files are not taken up: {content.refused_reload}"
    now = (_describe_pause(paused), content.gap, content.budget_warning, content.held_log, refused)
    units = [_describe_unit(unit) for unit in content.units if unit.phase in ("waiting", "failed")]
    return tuple(filter(None, (*now, *units, *content.warnings)))


def _describe_unit(unit: UnitOnBoard) -> str:
    name = f"{unit.sink}: {unit.index}" if unit.sink else unit.index
    again = "" if unit.next_try is None else f"; it is tried again in {unit.next_try:.0f} s"
    remedy = f". {unit.remedy}" if unit.remedy else ""
    return f"{name} is {unit.phase}: {unit.why}{again}{remedy}"


def _last_error(error: HeadraceError, time: float) -> LastError:
    return LastError(error.code, str(error), time, error.cause, error.remedy)


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
        status = {
            "phase": secondary.phase,
            "deferred": secondary.deferred,
            "away": secondary.away,
            "indexes": indexes,
        }
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


def _why_unready(
    content: _Content, phase: Phase, waiting: HeadraceError | None, stalled: Stalled | None
) -> str | None:
    if stalled is not None:
        return f"stalled: {stalled.diagnosis.error}"
    if phase is Phase.LIVE or (phase is Phase.BACKFILLING and content.follows):
        return _why_incomplete(content)
    last = content.last_error and content.last_error.text
    because = {
        Phase.STANDBY: content.holder and f"the run on {content.holder} works",
        Phase.DEGRADED: last if waiting is None else str(waiting),
    }.get(phase)
    return f"{phase.value}: {because}" if because else phase.value


def _why_incomplete(content: _Content) -> str | None:
    """Return why readers do not see all documents of now, although the stream follows; None where they do."""
    served = {unit.index for unit in content.units if unit.serves and not unit.sink}
    incomplete = [
        index.name
        for index in content.indexes.values()
        if index.phase is not IndexPhase.LIVE and index.name not in served
    ]
    # Behind a gap readers see documents of before it, and no change comes to them.
    return f"not backfilled: {', '.join(incomplete)}" if incomplete else content.gap


def _position(lsn: Lsn | None) -> dict[str, Any] | None:
    return None if lsn is None else {"lsn": format_lsn(lsn), "bytes": lsn}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
