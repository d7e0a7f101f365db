"""Turn the board and its history into the figures and tables that the page shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from headrace.model.lsn import format_lsn
from headrace.model.units import duration, quantity, size
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.slot import SlotFacts
from headrace.status.backfill_text import describe_backfill
from headrace.status.board import IndexPhase, IndexStatus, View
from headrace.status.console.events import Happening
from headrace.status.console.formats import UNKNOWN, age_text, clock_text, moment_text, rate_text, short_text
from headrace.status.console.headline import (
    LITTLE_ROOM_SECONDS,
    Headline,
    Notice,
    make_headline,
    make_notices,
)
from headrace.status.console.history import History, Rates
from headrace.status.phases import Phase
from headrace.status.sinks import SinkActivity

SHOWN = 200
"""Rows of a table that the page shows at most."""
SHOWN_EVENTS = 100
_STILL_SECONDS = 30.0
_HARDLY_BEHIND = 1_000_000  # bytes: an estimate for less would only flicker


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage on the way of a change."""

    name: str
    says: str
    rate: str = ""
    unit: str = ""
    time: str = ""
    tone: str = "plain"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its name; `note` explains it."""

    name: str
    value: str
    note: str = ""
    tone: str = "plain"


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One index of one sink; the sink is empty for the primary."""

    status: IndexStatus
    sink: str
    served_since: str

    @property
    def state(self) -> str:
        """How it is, in a word."""
        if self.status.phase is IndexPhase.LIVE:
            return "served"
        is_waiting = self.status.error is not None and self.status.building is None
        return "waits" if is_waiting else self.status.phase.value

    @property
    def tone(self) -> str:
        """The tone of the state."""
        return "bad" if self.status.error is not None else _TONES[self.status.phase]

    @property
    def documents(self) -> str:
        """How many documents it holds."""
        held = self.status.held if self.status.held is not None else (self.status.documents or None)
        return UNKNOWN if held is None else f"{held:,}"

    @property
    def size(self) -> str:
        """What they take."""
        return "" if self.status.stored_bytes is None else size(self.status.stored_bytes)

    @property
    def progress(self) -> str:
        """How far its backfill is."""
        return describe_backfill(self.status)


_TONES = {IndexPhase.LIVE: "good", IndexPhase.BACKFILLING: "busy", IndexPhase.PENDING: "plain"}


@dataclass(frozen=True, slots=True)
class TableRow:
    """One table that documents are made of."""

    coverage: TableCoverage
    rate: str

    @property
    def remedy(self) -> tuple[str, ...]:
        """SQL that mends it, and why Headrace itself may not."""
        why_not = self.coverage.why_not
        return (*self.coverage.remedy, *((f"-- {why_not}",) if why_not else ()))

    @property
    def is_right(self) -> bool:
        """Whether the log carries what documents need."""
        return self.coverage.complete and not self.coverage.missing and self.coverage.published


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the page shows."""

    now: str
    slot_name: str
    headline: Headline
    notices: tuple[Notice, ...]
    way: tuple[StageRow, ...]
    sinks: tuple[StageRow, ...]
    lag: tuple[Figure, ...]
    slot: tuple[Figure, ...]
    indexes: tuple[IndexRow, ...]
    more_indexes: int
    tables: tuple[TableRow, ...]
    more_tables: int
    events: tuple[tuple[str, Happening], ...]
    """Each after its time."""


def make_page(view: View, history: History, now: float) -> Page:
    """Return what the page shows at `now` (Unix time)."""
    rates = history.rates()
    indexes, tables = [*_index_rows(view, now)], [_table_row(table, rates) for table in view.tables]
    # What needs a hand is not among the rows that are cut off.
    tables.sort(key=lambda row: row.is_right)
    return Page(
        now=clock_text(now),
        slot_name="" if view.slot is None else view.slot.name,
        headline=make_headline(view, history, now),
        notices=tuple(make_notices(view, history)),
        way=tuple(_way(view, rates)),
        sinks=tuple(_sinks(view, rates)),
        lag=tuple(_lag(view, history, rates, now)),
        slot=() if view.slot is None else tuple(_slot(view.slot, history)),
        indexes=tuple(indexes[:SHOWN]),
        more_indexes=max(0, len(indexes) - SHOWN),
        tables=tuple(tables[:SHOWN]),
        more_tables=max(0, len(tables) - SHOWN),
        events=tuple((moment_text(event.time, now), event) for event in islice(history.events, SHOWN_EVENTS)),
    )


# The way of a change.


def _way(view: View, rates: Rates) -> Iterator[StageRow]:
    known = rates.stages if view.stages.batches else {"captured": rates.changes}
    for name, says, unit in _STAGES:
        spent = rates.batch_seconds.get(name)
        time = "" if spent is None else f"{short_text(spent)} a batch"
        notes = (f"{view.counts.changes:,} in all",) if name == "captured" else ()
        yield StageRow(name, says, rate_text(known.get(name)), unit, time, notes=notes)


_STAGES = (
    ("captured", "read from the slot, decoded", "changes/s"),
    ("resolved", "which documents do they touch", "documents/s"),
    ("assembled", "read again from the database", "documents/s"),
    ("written", "taken by the sink, durable", "documents/s"),
)


def _sinks(view: View, rates: Rates) -> Iterator[StageRow]:
    notes = {activity.name: tuple(_activity(activity)) for activity in view.sinks}
    written = rate_text(rates.stages.get("written") if view.stages.batches else None)
    for activity in view.sinks:
        if (name := activity.name) not in view.secondary:
            says, tone = ("takes documents", "good") if activity.error is None else ("waits", "bad")
            yield StageRow(name, says, written, "documents/s", tone=tone, notes=notes[name])
    for name, sink in view.secondary.items():
        tone = {"away": "bad", "live": "good"}.get(sink.phase, "busy")
        lacks = (f"lacks {quantity(sink.deferred, 'document')}",) if sink.deferred else ()
        yield StageRow(name, sink.phase, tone=tone, notes=(*lacks, *notes.get(name, ())))


def _activity(activity: SinkActivity) -> Iterator[str]:
    if activity.in_flight:
        yield f"{quantity(activity.in_flight, 'bulk request')} under way"
    if activity.bulk_bytes is not None:
        yield f"at most {size(activity.bulk_bytes)} each"
    if activity.retries:
        yield f"{activity.retries:,} sent again"


# Lag and slot.


def _lag(view: View, history: History, rates: Rates, now: float) -> Iterator[Figure]:
    yield Figure("time behind", UNKNOWN if view.lag_seconds is None else duration(view.lag_seconds))
    yield Figure("log behind", UNKNOWN if view.lag_bytes is None else size(view.lag_bytes))
    yield _advancing(view, history, rates, now)
    yield _drain(view, rates)


def _advancing(view: View, history: History, rates: Rates, now: float) -> Figure:
    if view.positions.confirmed is None:
        return Figure("advancing", UNKNOWN, "no position yet")
    position, tone = f"confirmed {format_lsn(view.positions.confirmed)}", _tone(view)
    if not view.lag_bytes:
        return Figure("advancing", "up to date", position, tone)
    still = now - (history.moved_at or view.started)
    if still > _STILL_SECONDS:
        return Figure("advancing", "no", f"{position}, not moved for {age_text(still)}", "bad")
    speed = "" if rates.confirmed is None else f", {size(int(rates.confirmed))}/s"
    return Figure("advancing", "yes", f"{position}{speed}", tone)


def _drain(view: View, rates: Rates) -> Figure:
    """Say how long the stream needs for its backlog; nothing of it is good while the stream stands still."""
    if view.stalled is not None or view.phase is Phase.DEGRADED:
        return Figure("backlog", "waits", "in the log, until the run works again", "bad")
    if view.paused is not None:
        return Figure("backlog", "waits", "in the log, until the run is resumed")
    if view.lag_bytes is None or rates.confirmed is None or rates.log is None:
        return Figure("backlog", UNKNOWN, "not known yet")
    if view.lag_bytes < _HARDLY_BEHIND:
        return Figure("backlog", "no backlog", "", _tone(view))
    gained = rates.confirmed - rates.log
    if gained <= 0:
        return Figure("backlog", "grows", "the server writes its log faster than it is read", "bad")
    return Figure("backlog", duration(view.lag_bytes / gained), "at the present rate, until it is read")


def _tone(view: View) -> str:
    """Return the tone of what is good while the stream works, as far as the run can tell."""
    works = view.phase in {Phase.LIVE, Phase.BACKFILLING} and view.stalled is None and view.paused is None
    return "good" if works else "plain"


def _slot(slot: SlotFacts, history: History) -> Iterator[Figure]:
    yield Figure("retained", size(slot.retained), "log on the server's disk for this slot")
    yield Figure("unconfirmed", size(slot.lag), "not yet durable in the documents")
    status = slot.wal_status or UNKNOWN
    why = slot.why_lost if slot.lost else _STATUS.get(status, "")
    tone = "bad" if slot.lost or status in {"unreserved", "lost"} else "plain"
    yield Figure("wal_status", status, why, tone)
    yield from _room(slot, history)
    yield Figure("read by", slot.reader or "nobody", "", "plain" if slot.reader else "bad")


def _room(slot: SlotFacts, history: History) -> Iterator[Figure]:
    """Yield how much log may still be written, and how long that takes."""
    rate = history.log_rate()
    speed = "" if rate is None else f"the server writes {size(int(rate))}/s"
    if slot.safe_wal_size is None:
        unlimited = "max_slot_wal_keep_size is -1: a slot is never lost, a disk may fill"
        yield Figure("safe_wal_size", "no limit", unlimited)
        yield Figure("room", "no limit", speed)
        return
    yield Figure("safe_wal_size", size(max(0, slot.safe_wal_size)), "until the slot may be lost")
    room = history.room_seconds(slot)
    little = room is not None and room < LITTLE_ROOM_SECONDS
    yield Figure("room", UNKNOWN if room is None else duration(room), speed, "bad" if little else "plain")


_STATUS = {
    "reserved": "within max_wal_size",
    "extended": "more than max_wal_size, still kept",
    "unreserved": "may be removed at the next checkpoint",
    "lost": "log that it needs is removed",
}


# Indexes and tables.


def _index_rows(view: View, now: float) -> Iterator[IndexRow]:
    for sink, index in view.all_indexes():
        since = "" if index.served_since is None else f"since {moment_text(index.served_since, now)}"
        yield IndexRow(index, sink, since)


def _table_row(table: TableCoverage, rates: Rates) -> TableRow:
    known, root = rates.tables, f"{table.root.schema}.{table.root.name}"
    return TableRow(table, UNKNOWN if known is None else f"{rate_text(known.get(root, 0.0))}/s")
