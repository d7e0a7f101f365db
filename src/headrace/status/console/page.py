"""Turn the board and its history into the sentences and figures that the page shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.model import format_lsn
from headrace.model.units import duration, size
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.slot import SlotFacts
from headrace.status.board import IndexPhase, IndexStatus, LastError, SecondaryStatus, View
from headrace.status.console.events import Tone, is_stalled
from headrace.status.console.history import History, Rates
from headrace.status.phases import Phase
from headrace.status.sinks import SinkActivity

SHOWN = 200
"""Rows of a table that the page shows at most."""
SHOWN_EVENTS = 100
_LITTLE_ROOM_SECONDS = 6 * 3600.0
_STILL_SECONDS = 30.0
_HARDLY_BEHIND = 1_000_000  # bytes: an estimate for less would only flicker
_UNKNOWN = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know or do, beside the state."""

    text: str
    remedy: str = ""
    tone: Tone = "bad"


@dataclass(frozen=True, slots=True)
class Headline:
    """The state of the run: what, since when, why, and what to do."""

    word: str
    tone: str
    since: str
    lasts: str
    why: str
    remedy: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage on the way of a change."""

    name: str
    says: str
    rate: str
    unit: str
    time: str
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
    """One index of one sink."""

    name: str
    sink: str
    state: str
    tone: str
    generation: str
    served_since: str
    documents: str
    size: str
    building: str
    done: int
    total: int
    progress: str
    quarantined: int
    verified: str
    error: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """One table that documents are made of."""

    name: str
    root: str
    rate: str
    identity: str
    needed: str
    missing: str
    published: bool
    hidden: str
    remedy: tuple[str, ...]
    tone: str


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event."""

    time: str
    text: str
    tone: str


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the page shows."""

    now: str
    slot_name: str
    headline: Headline
    notices: tuple[Notice, ...]
    way: tuple[Stage, ...]
    sinks: tuple[Stage, ...]
    lag: tuple[Figure, ...]
    slot: tuple[Figure, ...]
    indexes: tuple[IndexRow, ...]
    more_indexes: int
    tables: tuple[TableRow, ...]
    more_tables: int
    events: tuple[EventRow, ...]


def make_page(view: View, history: History, now: float) -> Page:
    """Return what the page shows at `now` (Unix time)."""
    rates = history.rates()
    indexes, tables = [*_index_rows(view, now)], [_table_row(table, rates) for table in view.tables]
    tables.sort(key=lambda row: row.tone != "bad")
    return Page(
        now=_clock(now),
        slot_name="" if view.slot is None else view.slot.name,
        headline=_headline(view, history, now),
        notices=tuple(_notices(view, history)),
        way=tuple(_way(view, rates)),
        sinks=tuple(_sinks(view, rates)),
        lag=tuple(_lag(view, history, rates, now)),
        slot=() if view.slot is None else tuple(_slot(view.slot, history)),
        indexes=tuple(indexes[:SHOWN]),
        more_indexes=max(0, len(indexes) - SHOWN),
        tables=tuple(tables[:SHOWN]),
        more_tables=max(0, len(tables) - SHOWN),
        events=tuple(
            EventRow(_moment(event.time, now), event.text, event.tone)
            for event in [*history.events][:SHOWN_EVENTS]
        ),
    )


# The state.


def _headline(view: View, history: History, now: float) -> Headline:
    since = view.started if history.since is None else history.since
    word, tone, why, remedy, code = _state(view)
    return Headline(word, tone, _moment(since, now), _age(now - since), why, remedy, code)


_State = tuple[str, str, str, str, str]
"""The word for the state, its tone, why, what to do, and an error's code."""


def _state(view: View) -> _State:
    trouble = _trouble(view)
    if trouble is not None:
        return trouble
    if view.phase is Phase.LIVE:
        if view.unready is None:
            return "live", "good", "every index is backfilled, and the stream follows", "nothing", ""
        return "live", "good", view.unready, "nothing: the rest is being built", ""
    if view.phase is Phase.BACKFILLING:
        return "backfilling", "busy", _filling(view), "nothing: what is served already stays live", ""
    why = "files, database and cluster are checked, then Spark starts"
    return "starting", "busy", why, "wait some seconds", ""


def _trouble(view: View) -> _State | None:
    """Return the state of a run that does not work; None where it does."""
    failure = view.failure
    if view.phase is Phase.STOPPED and failure is None:
        return "stopped", "plain", "it was stopped on request", _START_AGAIN, ""
    if view.phase is Phase.STOPPED and failure is not None:
        return "stopped", "bad", failure.cause or failure.text, failure.remedy or _START_AGAIN, failure.code
    if view.phase is Phase.DEGRADED:
        return "degraded", "bad", *_of_failure(failure)
    if is_stalled(view) and view.unready is not None:
        why, _, remedy = view.unready.removeprefix("stalled: ").partition("; ")
        return "stalled", "bad", why, remedy, ""
    return None


_START_AGAIN = "start it again: it goes on from where the slot stands"


def _of_failure(failure: LastError | None) -> tuple[str, str, str]:
    if failure is None:
        return "the last attempt failed", _TRIED_AGAIN, ""
    return failure.cause or failure.text, failure.remedy or _TRIED_AGAIN, failure.code


_TRIED_AGAIN = "nothing: it is tried again, with growing pauses, until it works"


def _filling(view: View) -> str:
    filled = [
        index for index in view.indexes if index.building is not None or index.phase is not IndexPhase.LIVE
    ]
    names = ", ".join(index.name for index in filled[:3])
    more = f" and {len(filled) - 3} more" if len(filled) > 3 else ""  # noqa: PLR2004 - as many as are named
    left = [index.seconds_left for index in filled if index.seconds_left is not None]
    about = f", about {duration(max(left))} left" if left and len(left) == len(filled) else ""
    verb = "is" if len(filled) == 1 else "are"
    return f"{len(filled)} of {len(view.indexes)} indexes {verb} being filled: {names}{more}{about}"


def _notices(view: View, history: History) -> Iterator[Notice]:
    if view.slot is not None:
        yield from _slot_notices(view.slot, history)
    for name, sink in view.secondary.items():
        if sink.away is not None:
            yield Notice(
                f"the sink {name} is not written to: {sink.away}", "the other sinks go on; it catches up"
            )
        elif sink.deferred:
            text = f"the sink {name} is behind: it lacks {_documents(sink.deferred)}"
            yield Notice(text, "nothing: they are written as fast as it takes them", "plain")
    for index in view.indexes:
        if index.error is not None:
            yield Notice(f"{index.name}: {index.error}")
        if index.quarantined:
            yield Notice(
                f"{index.name}: {_documents(index.quarantined)} in quarantine: the cluster refused them",
                f"see why with: headrace quarantine list {index.name}",
            )
    for warning in view.warnings:
        yield Notice(warning, tone="plain")


def _slot_notices(slot: SlotFacts, history: History) -> Iterator[Notice]:
    if slot.lost:
        yield Notice(
            f"the slot {slot.name} is lost: {slot.why_lost}",
            "headrace teardown, then headrace run; with on_gap = reseed a run does so itself",
        )
        return
    room = _room_seconds(slot, history)
    if slot.wal_status == "unreserved":
        yield Notice(
            f"the slot {slot.name} may be lost at the server's next checkpoint",
            "raise max_slot_wal_keep_size now (SELECT pg_reload_conf()), and let the run catch up",
        )
    elif room is not None and room < _LITTLE_ROOM_SECONDS:
        yield Notice(
            f"at the present rate the slot {slot.name} is lost in {duration(room)}",
            "raise max_slot_wal_keep_size, or find out what holds the stream up",
        )


# The way of a change.


def _way(view: View, rates: Rates) -> Iterator[Stage]:
    stages = view.stages
    has_stages = stages.batches > 0
    for key, name, says, unit in _STAGES:
        rate = rates.stages.get(key) if has_stages else rates.changes if key == "captured" else None
        spent = rates.batch_seconds.get(key)
        yield Stage(
            name,
            says,
            _rate(rate),
            unit,
            "" if spent is None else f"{_short(spent)} a batch",
            notes=(f"{view.counts.changes:,} in all",) if key == "captured" else (),
        )


_STAGES = (
    ("captured", "captured", "read from the slot, decoded", "changes/s"),
    ("resolved", "resolved", "which documents do they touch", "documents/s"),
    ("assembled", "assembled", "read anew from the database", "documents/s"),
    ("written", "written", "taken by the sink, durable", "documents/s"),
)


def _sinks(view: View, rates: Rates) -> Iterator[Stage]:
    primary = [activity for activity in view.sinks if activity.name not in view.secondary]
    for activity in primary:
        tone = "bad" if activity.error is not None else "good"
        says = "waits" if activity.error is not None else "takes documents"
        written = rates.stages.get("written") if view.stages.batches else None
        yield Stage(activity.name, says, _rate(written), "documents/s", "", tone, tuple(_activity(activity)))
    reported = {activity.name: activity for activity in view.sinks}
    for name, sink in view.secondary.items():
        yield _secondary(name, sink, reported.get(name))


def _secondary(name: str, sink: SecondaryStatus, activity: SinkActivity | None) -> Stage:
    tone = {"away": "bad", "live": "good"}.get(sink.phase, "busy")
    notes = [f"lacks {_documents(sink.deferred)}"] if sink.deferred else []
    return Stage(
        name, sink.phase, "", "", "", tone, (*notes, *(() if activity is None else _activity(activity)))
    )


def _activity(activity: SinkActivity) -> Iterator[str]:
    if activity.in_flight:
        yield f"{activity.in_flight} bulk requests under way"
    if activity.bulk_bytes is not None:
        yield f"at most {size(activity.bulk_bytes)} each"
    if activity.retries:
        yield f"{activity.retries:,} sent again"


# Lag and slot.


def _lag(view: View, history: History, rates: Rates, now: float) -> Iterator[Figure]:
    yield Figure("time behind", _UNKNOWN if view.lag_seconds is None else duration(view.lag_seconds))
    yield Figure("log behind", _UNKNOWN if view.lag_bytes is None else size(view.lag_bytes))
    yield _advancing(view, history, rates, now)
    yield _drain(view, rates)


def _advancing(view: View, history: History, rates: Rates, now: float) -> Figure:
    if view.positions.confirmed is None:
        return Figure("advancing", _UNKNOWN, "no position yet")
    position = f"confirmed {format_lsn(view.positions.confirmed)}"
    if not view.lag_bytes:
        return Figure("advancing", "up to date", position, "good")
    still = now - (history.moved_at or view.started)
    if still > _STILL_SECONDS:
        return Figure("advancing", "no", f"{position}, not moved for {_age(still)}", "bad")
    speed = "" if rates.confirmed is None else f", {size(int(rates.confirmed))}/s"
    return Figure("advancing", "yes", f"{position}{speed}", "good")


def _drain(view: View, rates: Rates) -> Figure:
    if view.lag_bytes is None or rates.confirmed is None or rates.log is None:
        return Figure("caught up in", _UNKNOWN, "at the present rate")
    if view.lag_bytes < _HARDLY_BEHIND:
        return Figure("caught up in", "now", "nothing to speak of is left", "good")
    gained = rates.confirmed - rates.log
    if gained <= 0:
        return Figure("caught up in", "never", "at the present rate: the log grows faster", "bad")
    return Figure("caught up in", duration(view.lag_bytes / gained), "at the present rate")


def _slot(slot: SlotFacts, history: History) -> Iterator[Figure]:
    yield Figure("retained", size(slot.retained), "log on the server's disk for this slot")
    yield Figure("unconfirmed", size(slot.lag), "not yet durable in the documents")
    lost = slot.lost
    tone = "bad" if lost or slot.wal_status in {"unreserved", "lost"} else "plain"
    yield Figure(
        "wal_status",
        slot.wal_status or _UNKNOWN,
        slot.why_lost if lost else _STATUS.get(slot.wal_status or "", ""),
        tone,
    )
    if slot.safe_wal_size is None:
        yield Figure(
            "safe_wal_size", "no limit", "max_slot_wal_keep_size is -1: a slot is never lost, a disk may fill"
        )
    else:
        yield Figure("safe_wal_size", size(max(0, slot.safe_wal_size)), "until the slot may be lost")
    room = _room_seconds(slot, history)
    rate = history.log_rate()
    little = room is not None and room < _LITTLE_ROOM_SECONDS
    yield Figure(
        "room",
        "no limit" if slot.safe_wal_size is None else _UNKNOWN if room is None else _long(room),
        "" if rate is None else f"the server writes {size(int(rate))}/s",
        "bad" if little else "plain",
    )
    yield Figure("read by", slot.reader or "nobody", "", "plain" if slot.reader else "bad")


_STATUS = {
    "reserved": "within max_wal_size",
    "extended": "more than max_wal_size, still kept",
    "unreserved": "may be removed at the next checkpoint",
    "lost": "log that it needs is removed",
}


def _room_seconds(slot: SlotFacts, history: History) -> float | None:
    """Return how long the log may grow at the present rate until the slot is lost; None without a limit."""
    rate = history.log_rate()
    if slot.safe_wal_size is None or not rate:
        return None
    return max(0, slot.safe_wal_size) / rate


# Indexes and tables.


def _index_rows(view: View, now: float) -> Iterator[IndexRow]:
    for index in view.indexes:
        yield _index_row(index, "", now)
    for name, sink in view.secondary.items():
        for index in sink.indexes.values():
            yield _index_row(index, name, now)


def _index_row(index: IndexStatus, sink: str, now: float) -> IndexRow:
    filling = index.building is not None
    tones = {IndexPhase.LIVE: "good", IndexPhase.BACKFILLING: "busy", IndexPhase.PENDING: "plain"}
    held = index.held if index.held is not None else (index.documents or None)
    since = index.served_since
    return IndexRow(
        name=index.name,
        sink=sink,
        state="served" if index.phase is IndexPhase.LIVE else index.phase.value,
        tone="bad" if index.error is not None else tones[index.phase],
        generation=index.generation or "",
        served_since="" if since is None else f"since {_moment(since, now)}",
        documents=_UNKNOWN if held is None else f"{held:,}",
        size="" if index.stored_bytes is None else size(index.stored_bytes),
        building=index.building or "",
        done=index.ranges_done if filling else 0,
        total=index.ranges_total if filling else 0,
        progress=_progress(index) if filling else "",
        quarantined=index.quarantined,
        verified=index.verified or "",
        error=index.error or "",
    )


def _progress(index: IndexStatus) -> str:
    parts = [_documents(index.documents)]
    if index.ranges_total:
        parts.append(f"{index.ranges_done:,} of {index.ranges_total:,} ranges")
    if index.documents_per_second:
        parts.append(f"{index.documents_per_second:,.0f}/s")
    if index.seconds_left is not None:
        parts.append(f"about {duration(index.seconds_left)} left")
    return ", ".join(parts)


def _table_row(table: TableCoverage, rates: Rates) -> TableRow:
    known = rates.tables
    root = f"{table.root.schema}.{table.root.name}"
    return TableRow(
        name=str(table.table),
        root="" if table.root == table.table else str(table.root),
        rate=_UNKNOWN if known is None else f"{_rate(known.get(root, 0.0))}/s",
        identity=table.identity,
        needed=", ".join(table.required),
        missing=", ".join(table.missing),
        published=table.published,
        hidden="; ".join(table.hidden),
        remedy=_remedy(table),
        tone="good" if table.complete and not table.missing and table.published else "bad",
    )


def _remedy(table: TableCoverage) -> tuple[str, ...]:
    return (*table.remedy, *((f"-- {table.why_not}",) if table.why_not else ()))


# Words and figures.


def _documents(count: int) -> str:
    return f"{count:,} document{'' if count == 1 else 's'}"


def _rate(rate: float | None) -> str:
    if rate is None:
        return _UNKNOWN
    return f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}"  # noqa: PLR2004 - where a digit more tells


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds)


def _long(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours / 24:,.0f} days" if hours >= 72 else duration(seconds)  # noqa: PLR2004 - three days


def _age(seconds: float) -> str:
    """Format a time that grows while it is looked at: no finer than its reader needs."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{max(0, seconds):.0f} s"
    return f"{seconds // 60:.0f} min" if seconds < 3600 else duration(seconds)  # noqa: PLR2004 - an hour


def _clock(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S UTC")


def _moment(time: float, now: float) -> str:
    """Return a time of day, with the date where it is not that of `now`."""
    then, today = datetime.fromtimestamp(time, UTC), datetime.fromtimestamp(now, UTC)
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M")
