"""Say what state a run is in, why, and what a person should do. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import HeadraceError
from headrace.model.units import are, duration, quantity
from headrace.postgres.slot import SlotFacts
from headrace.status.board import IndexPhase, IndexStatus, View
from headrace.status.console.events import Tone
from headrace.status.console.formats import age_text, moment_text
from headrace.status.console.history import History
from headrace.status.phases import Phase

LITTLE_ROOM_SECONDS = 6 * 3600.0
"""A slot that may be lost sooner is warned of."""
_NAMED = 3
"""Indexes that are named where there are many."""


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


def make_headline(view: View, history: History, now: float) -> Headline:
    """Return the state of the run at `now` (Unix time)."""
    since = view.started if history.since is None else history.since
    if view.paused is not None:
        since = view.paused.since
    word, tone, why, remedy, code = _state(view)
    return Headline(word, tone, moment_text(since, now), age_text(now - since), why, remedy, code)


_State = tuple[str, str, str, str, str]
"""The word for the state, its tone, why, what to do, and an error's code."""


def _state(view: View) -> _State:
    # Before a pause: who has paused a run must still see that it fails.
    trouble = _trouble(view)
    if trouble is not None:
        return trouble
    if view.paused is not None:
        why = f"{view.paused.by} has paused the stream: changes wait in the log, which the slot retains"
        return "paused", "busy", why, "headrace resume continues it", ""
    if view.phase is Phase.LIVE:
        return _live(view)
    if view.phase is Phase.BACKFILLING:
        remedy = "nothing: indexes that searches use get every change meanwhile"
        return "backfilling", "busy", _filling(view), remedy, ""
    if view.phase is Phase.STANDBY:
        return "standby", "good", view.unready or "standby", "nothing: it takes over when that run ends", ""
    why = "files, database and cluster are checked, then Spark starts"
    return "starting", "busy", why, "wait some seconds", ""


def _live(view: View) -> _State:
    waiting = [index for index in view.indexes if index.phase is not IndexPhase.LIVE and index.error]
    if waiting:
        names = ", ".join(index.name for index in waiting[:_NAMED])
        indexes = quantity(len(view.indexes), "index")
        why = f"the stream follows, except for {len(waiting)} of {indexes}: {names}"
        return "live", "busy", why, "the list below says what each of them needs; the others continue", ""
    if view.unready is None:
        return "live", "good", "every index is backfilled, and the stream follows", "nothing", ""
    return "live", "good", view.unready, "nothing: the rest is being built", ""


def _trouble(view: View) -> _State | None:
    """Return the state of a run that does not work; None where it does."""
    start_again = "start it again: it continues from the slot's position"
    if view.phase is Phase.STOPPED:
        if view.failure is None:
            return "stopped", "plain", "it was stopped on request", start_again, ""
        return _failed("stopped", view.failure, start_again)
    if view.stalled is not None:
        return _failed("stalled", view.stalled.error)
    if view.failure is not None:
        tried_again = "nothing: it is tried again, with growing pauses, until it works"
        return _failed("degraded", view.failure, tried_again)
    return None


def _failed(word: str, error: HeadraceError, remedy: str = "") -> _State:
    return word, "bad", error.cause, error.remedy or remedy, error.code


def _filling(view: View) -> str:
    filled = [index for index in view.indexes if index.building or index.phase is not IndexPhase.LIVE]
    names = ", ".join(index.name for index in filled[:_NAMED])
    more = f" and {len(filled) - _NAMED} more" if len(filled) > _NAMED else ""
    left = [index.seconds_left for index in filled if index.seconds_left is not None]
    about = f", about {duration(max(left))} left" if left and len(left) == len(filled) else ""
    indexes = f"{quantity(len(view.indexes), 'index')} {are(len(filled))}"
    return f"{len(filled)} of {indexes} being filled: {names}{more}{about}"


def _quarantine_notice(sink: str, index: IndexStatus) -> Notice:
    where, option = (f"{sink}/", f" --sink {sink}") if sink else ("", "")
    held = f"{quantity(index.quarantined, 'document')} in quarantine"
    command = f"headrace quarantine list {index.name}{option}"
    return Notice(f"{where}{index.name}: {held}: the cluster refused them", f"see why with: {command}")


def make_notices(view: View, history: History) -> Iterator[Notice]:
    """Yield what a person should know or do, the slot first."""
    if view.slot is not None:
        yield from _slot_notices(view.slot, history)
    for name, sink in view.secondary.items():
        if sink.away is not None:
            text = f"the sink {name} is not written to: {sink.away}"
            yield Notice(text, "the other sinks go on; it catches up")
        elif sink.deferred:
            text = f"the sink {name} is behind: it lacks {quantity(sink.deferred, 'document')}"
            yield Notice(text, "nothing: they are written as fast as it takes them", "plain")
    for index in view.indexes:
        if index.error is not None:
            yield Notice(f"{index.name}: {index.error}")
    for sink_name, index in view.all_indexes():
        if index.quarantined:
            yield _quarantine_notice(sink_name, index)
    for warning in view.warnings:
        yield Notice(warning, tone="plain")


def _slot_notices(slot: SlotFacts, history: History) -> Iterator[Notice]:
    if slot.lost:
        remedy = "headrace teardown, then headrace run; with on_gap = reseed a run does so itself"
        yield Notice(f"the slot {slot.name} is lost: {slot.why_lost}", remedy)
        return
    room = history.room_seconds(slot)
    if slot.wal_status == "unreserved":
        remedy = "raise max_slot_wal_keep_size now (SELECT pg_reload_conf()), and let the run catch up"
        yield Notice(f"the slot {slot.name} may be lost at the server's next checkpoint", remedy)
    elif room is not None and room < LITTLE_ROOM_SECONDS:
        remedy = "raise max_slot_wal_keep_size, or find out what holds the stream up"
        yield Notice(f"at the present rate the slot {slot.name} is lost in {duration(room)}", remedy)
