"""Say in words what happened between two looks at the board. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.model.units import quantity, size
from headrace.status.board import IndexPhase, IndexStatus, SecondaryStatus, View
from headrace.status.phases import Phase

Tone = Literal["good", "plain", "bad"]


@dataclass(frozen=True, slots=True)
class Happening:
    """One event; `time` is Unix time in seconds."""

    time: float
    text: str
    tone: Tone = "plain"


def happenings(before: View | None, view: View, now: float) -> list[Happening]:
    """Return what happened between two looks at the board; nothing had happened before the first."""
    if before is None:
        return [Happening(view.started, "the run began")]
    return [Happening(now, text, tone) for text, tone in _between(before, view)]


def _between(before: View, view: View) -> Iterator[tuple[str, Tone]]:
    yield from _phase(before, view)
    yield from _slot(before, view)
    was = {index.name: index for index in before.indexes}
    for index in view.indexes:
        yield from _index(index.name, was.get(index.name, IndexStatus(index.name)), index)
    for name, sink in view.secondary.items():
        if name in before.secondary:
            yield from _secondary(name, before.secondary[name], sink)
    for warning in view.warnings:
        if warning not in before.warnings:
            yield warning, "bad"
    # A count that comes from 0 is the total of earlier runs, which was read just now.
    if view.counts.rejected > before.counts.rejected > 0:
        count = view.counts.rejected - before.counts.rejected
        yield f"{quantity(count, 'document')} refused by the sink", "bad"


def _secondary(name: str, before: SecondaryStatus, sink: SecondaryStatus) -> Iterator[tuple[str, Tone]]:
    if before.phase != sink.phase:
        reason = f": {sink.away}" if sink.away is not None else ""
        tone: Tone = "good" if sink.phase == "live" else "bad" if sink.phase == "away" else "plain"
        yield f"sink {name}: {sink.phase}{reason}", tone
    for index_name, index in sink.indexes.items():
        known = before.indexes.get(index_name, IndexStatus(index_name))
        yield from _index(f"sink {name}: {index_name}", known, index)


def _phase(before: View, view: View) -> Iterator[tuple[str, Tone]]:
    stalled, was_stalled = view.stalled is not None, before.stalled is not None
    if view.last_error is not None and view.last_error != before.last_error:
        yield str(view.last_error.error), "bad"
    if before.phase is Phase.DEGRADED and view.phase not in (Phase.DEGRADED, Phase.STOPPED):
        yield f"works again; {view.phase}", "good"
    elif view.phase is not before.phase:
        yield _PHASES[view.phase]
    if stalled and not was_stalled and view.unready is not None:
        yield view.unready, "bad"
    elif was_stalled and not stalled:
        yield "the stream advances again", "good"


_PHASES: dict[Phase, tuple[str, Tone]] = {
    Phase.STARTING: ("starting", "plain"),
    Phase.STANDBY: ("standing by: another process works", "good"),
    Phase.BACKFILLING: ("indexes are being backfilled", "plain"),
    Phase.LIVE: ("live: every index is backfilled, and the stream follows", "good"),
    Phase.DEGRADED: ("degraded", "bad"),
    Phase.STOPPED: ("the run has ended", "plain"),
}
"""What is said of a phase that was entered."""


def _slot(before: View, view: View) -> Iterator[tuple[str, Tone]]:
    slot, was = view.slot, before.slot
    if slot is None or was is None:
        return
    if slot.lost and not was.lost:
        yield f"the slot {slot.name} is lost: {slot.why_lost}", "bad"
    elif slot.wal_status != was.wal_status:
        text = f"slot {slot.name}: wal_status is {slot.wal_status}, {size(slot.retained)} of log retained"
        yield text, "good" if slot.wal_status == "reserved" else "bad"


def _index(name: str, before: IndexStatus, index: IndexStatus) -> Iterator[tuple[str, Tone]]:
    if index.building is not None and index.building != before.building:
        yield f"{name}: {index.building} is being backfilled", "plain"
    served, was_served = _served(index), _served(before)
    if served is not None and served != was_served:
        yield f"{name}: readers see {served}", "good"
    if index.error is not None and index.error != before.error:
        yield f"{name}: {index.error}", "bad"
    if index.quarantined != before.quarantined:
        text = f"{name}: {quantity(index.quarantined, 'document')} in quarantine"
        is_more = index.quarantined > before.quarantined
        yield f"{text}, {before.quarantined:,} before", "bad" if is_more else "good"


def _served(index: IndexStatus) -> str | None:
    return index.generation if index.phase is IndexPhase.LIVE else None
