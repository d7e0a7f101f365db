"""Decide whether the stored state and the server's log still belong together, and what follows if not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind, Retry, as_clause
from headrace.model.lsn import format_lsn
from headrace.pipeline.controller.actions import (
    Action,
    BeginAgain,
    CloseQuery,
    CreateSlot,
    CreateState,
    DropSlot,
    EndRun,
    SetUp,
)
from headrace.pipeline.controller.desired import Desired
from headrace.pipeline.controller.world import ServerSeen, SlotSeen, Unknown, World
from headrace.postgres.ddl_plan import LockTimeoutError
from headrace.state import PipelineState

# Errors by which a query says what only reading the log shows.
_READS_ANOTHER_LOG = frozenset({Kind.OTHER_LOG, Kind.SLOT_LOST})


class GapError(HeadraceError):
    """Changes between the documents and the slot are lost, on the server that the documents come from.

    Without `on_gap = "stop"` a run builds everything again. Another server or database is never a gap.
    """

    def __init__(self, kind: Kind, cause: str, remedy: str = "", detail: str = "") -> None:
        by_itself = f'{BACKFILL_AGAIN} Without on_gap = "stop" a run does it by itself.'
        super().__init__(kind, cause, remedy or by_itself, detail)


@dataclass(frozen=True, slots=True)
class LogDecision:
    """What the log allows.

    Attributes:
        actions: what must be done about state and slot before anything else.
        has_begun: the state names a log, so units can be decided on.
        goes_on: the log is known to go on from the stored position, so a query can start.
    """

    actions: tuple[Action, ...] = ()
    has_begun: bool = False
    goes_on: bool = False


def decide_log(world: World, desired: Desired) -> LogDecision:
    """Decide on state and slot.

    The state must be known. The order of the checks is the order of certainty: what proves another server
    comes before what proves a gap, because a gap may be reseeded and another server never is.
    """
    state, server, slot = world.state, world.server, world.slot
    assert not isinstance(state, Unknown), "the caller waits for the state"
    has_begun = state is not None and state.phase == "following"
    # A slot that could not be asked for is no slot that is gone.
    if isinstance(server, Unknown) or isinstance(slot, Unknown):
        return LogDecision(has_begun=has_begun)
    if state is None:
        return _begin(world, slot)
    if (error := why_another_server(state, server)) is not None:
        return LogDecision((EndRun(error.cause, error),))
    if awaits_promotion(state, server):  # what it lacks is no gap
        return LogDecision(has_begun=has_begun)
    return _follow(world, desired, state, server, slot) if has_begun else _make_slot(world, slot)


def _take_first_step(world: World, step: Action) -> LogDecision:
    """Take a step without which nothing is followed: refused for good, or for too long, it ends the run."""
    failed = world.failures.get(step.key)
    if failed is None:
        return LogDecision((step,))
    # Who has locked a table lets go of it some time.
    is_refused = failed.error.retry is Retry.NEVER and not isinstance(failed.error, LockTimeoutError)
    ends = is_refused or failed.has_lasted()
    return LogDecision((EndRun(failed.error.cause, failed.error) if ends else step,))


def _follow(
    world: World, desired: Desired, state: PipelineState, server: ServerSeen, slot: SlotSeen | None
) -> LogDecision:
    gap = next(_gaps(world, state, server, slot), None)
    if gap is not None:
        return _mend_gap(world, desired, gap)
    assert slot is not None, "a missing slot is a gap"
    if actions := decide_release(world, desired):
        return LogDecision(actions, has_begun=True)
    # A slot has one reader: while another process reads it, a query of ours could only fail.
    return LogDecision(has_begun=True, goes_on=not slot.reader)


def _begin(world: World, slot: SlotSeen | None) -> LogDecision:
    if slot is None:
        return _take_first_step(world, CreateState("nothing is stored yet"))
    error = unknown_slot(slot.name)
    return LogDecision((EndRun(error.cause, error),))


def _make_slot(world: World, slot: SlotSeen | None) -> LogDecision:
    """Create the slot, once the publication is there: the log of before would not be decoded for it.

    A slot that is there was made by a start that was killed, or belongs to somebody else.
    """
    catalog = world.catalog
    if isinstance(catalog, Unknown):
        return LogDecision()
    if catalog is not None and catalog.set_up:
        return _take_first_step(world, SetUp(catalog.set_up))
    # Somebody reads a slot of this name: it is not ours to replace now.
    if slot is not None and slot.reader:
        return LogDecision()
    return _take_first_step(world, CreateSlot("the log is read from here on"))


def _mend_gap(world: World, desired: Desired, gap: HeadraceError) -> LogDecision:
    if not desired.reseeds:
        return LogDecision((EndRun(gap.cause, gap),))
    if world.query is None:
        return LogDecision((BeginAgain(gap.cause),))
    # First nothing writes any more: a batch would save a position in the log that is given up. In the same
    # round, because perhaps this query alone knows of the gap, and the next one would only find it again.
    return LogDecision((CloseQuery(gap.cause, gap), BeginAgain(gap.cause)))


def decide_release(world: World, desired: Desired) -> tuple[Action, ...]:
    """Drop a slot of this deployment that retains more than its budget.

    Also while the state cannot be asked for: the primary's disk cannot wait for the cluster that keeps it.
    """
    slot = world.slot
    if not isinstance(slot, SlotSeen) or not slot.over_budget or not desired.reseeds:
        return ()
    if world.query is None:
        return (DropSlot(slot.over_budget),)
    error = HeadraceError(Kind.SLOT_LOST, slot.over_budget)
    return (CloseQuery(error.cause, error),)


def awaits_promotion(state: PipelineState, server: ServerSeen) -> bool:
    """Whether a standby answers in place of the primary that was followed, in a failover that is not over."""
    return server.standby and state.standby is False


def why_another_server(state: PipelineState, server: ServerSeen) -> HeadraceError | None:
    """Return why this is not the server whose changes the documents have; a gap never proves that."""
    if state.system_identifier != server.system:
        return _foreign(state, "the database is on another system than the one that the documents come from")
    if state.database_oid != server.database:
        return _foreign(state, "this is another database than the one that the documents come from")
    # A standby may be on the timeline of before an earlier promotion: it goes on to today's, or is promoted.
    is_former = server.timeline < state.timeline and not awaits_promotion(state, server)
    if state.phase == "following" and is_former:
        return _former_primary(state, server)
    return None


def _foreign(state: PipelineState, cause: str) -> HeadraceError:
    return HeadraceError(
        Kind.CONTINUITY,
        f"{cause}, or another deployment of this cluster uses the slot name {state.slot!r}",
        "Correct the address, or name another slot with --slot or in the file. If pg_upgrade has made this "
        "server of the one before: run `headrace adopt --upgraded`. Only where the database of this "
        "deployment was moved or recreated: run `headrace teardown --moved`, then `headrace run`.",
    )


def _former_primary(state: PipelineState, server: ServerSeen) -> HeadraceError:
    return HeadraceError(
        Kind.CONTINUITY,
        f"the server is on timeline {server.timeline}, and the documents come from the later timeline "
        f"{state.timeline}: the primary of before a promotion is back, or storage was put back to that time",
        "Lead the address to the primary of today and start again: nothing is lost there. Only where the "
        f"storage was put back: {as_clause(BACKFILL_AGAIN)}",
    )


def _gaps(
    world: World, state: PipelineState, server: ServerSeen, slot: SlotSeen | None
) -> Iterator[HeadraceError]:
    yield from find_gaps(state, server, slot)
    # System, timeline and positions may agree: only the reader sees other transactions (decision 0035).
    failure = None if world.query is None else world.query.failure
    if failure is not None and failure.kind in _READS_ANOTHER_LOG:
        yield GapError(failure.kind, failure.cause)


def find_gaps(state: PipelineState, server: ServerSeen, slot: SlotSeen | None) -> Iterator[GapError]:
    """Yield why changes between the documents and the log are lost; the first explains the others."""
    since = format_lsn(state.applied)
    # First: with another timeline all that follows is only its consequence.
    if server.timeline != state.timeline:
        yield GapError(
            Kind.CONTINUITY,
            f"the server is on timeline {server.timeline} now ({state.timeline} before): a standby was "
            f"promoted, or the database was restored to an earlier time; {_what_is_lost(state, slot)}",
        )
    if slot is None:
        yield GapError(
            Kind.SLOT_LOST, f"the slot {state.slot!r} is gone, and with it the changes since {since}"
        )
        return
    if slot.lost:
        yield GapError(
            Kind.SLOT_LOST,
            f"the slot {state.slot!r} is lost, and with it the changes since {since}: {slot.lost}",
        )
    if server.current < state.applied:
        yield GapError(
            Kind.CONTINUITY,
            f"the log ends at {format_lsn(server.current)}, before the position {since} that the documents "
            "have: the database was restored",
        )
    if slot.confirmed > state.applied:
        yield GapError(
            Kind.CONTINUITY,
            f"the slot {state.slot!r} stands at {format_lsn(slot.confirmed)}, beyond the position {since} "
            "that the documents have: it was recreated, or read by someone else, or the search cluster was "
            "restored",
        )


def _what_is_lost(state: PipelineState, slot: SlotSeen | None) -> str:
    lost = "documents may hold commits that it never got"
    return lost if slot is not None else f"it has no replication slot {state.slot!r}, and {lost}"


def unknown_slot(name: str) -> HeadraceError:
    """Return the error of a slot that is there while nothing is stored of its deployment."""
    return HeadraceError(
        Kind.SLOT_UNKNOWN,
        f"the slot {name!r} exists, but this cluster has no state of it",
        "If it belongs to another program, name another slot with --slot. If the cluster has lost the state "
        f"of this deployment: {BACKFILL_AGAIN}",
    )
