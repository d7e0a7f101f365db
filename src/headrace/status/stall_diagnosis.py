"""Diagnose a stall: which stage of the stream stands still, and what is the likely cause. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.model.stage import Stage
from headrace.postgres.slot import SlotFacts, held_back
from headrace.postgres.stream_waits import NO_WAITS, StreamWaits
from headrace.status.sinks import SinkActivity, TaskActivity
from headrace.status.stall import NOT_DIAGNOSED, Diagnosis, StallCause

# A source that was asked for a batch within this time is not in the middle of one.
_ASKED_SECONDS = 5.0
# The reader reports to the server every second.
_SILENT_SECONDS = 5.0

_WAITING = "Nothing to do if it passes: the stream goes on by itself. Else"


@dataclass(frozen=True, slots=True, kw_only=True)
class StallFacts:
    """What was found when the stream stood still; None or empty where unknown.

    Attributes:
        asked_seconds: since Spark asked the source for a batch.
        planned: whether the batch that it asked for last is planned.
        is_invisible: whether changes have arrived whose transactions are not visible yet.
        task: what the task does that has been silent for the longest time.
        sink: the activity of the primary sink.
        slot: the slot.
        waits: what the stream waits for in the server.
        applied: every change before it is durable.
        reached: the end of the last batch whose documents are durable or deferred.
        server: the error of the last look at the server.
        is_unreachable: whether the server's address does not answer at all.
        reader: the error that keeps the source from reading.
        cluster: the error of the last look at the cluster.
    """

    asked_seconds: float | None = None
    planned: bool = False
    is_invisible: bool = False
    task: TaskActivity | None = None
    sink: SinkActivity | None = None
    slot: SlotFacts | None = None
    waits: StreamWaits = NO_WAITS
    applied: Lsn | None = None
    reached: Lsn | None = None
    server: HeadraceError | None = None
    is_unreachable: bool = False
    reader: HeadraceError | None = None
    cluster: HeadraceError | None = None


def diagnose_stall(facts: StallFacts) -> Diagnosis:
    """Return the stage that stands still, and the likely cause."""
    stage = _stage(facts)
    for find in (_server, _lock, _standby, _transaction, _cluster, _reader, _walsender, _worker):
        if (found := find(facts, stage)) is not None:
            return Diagnosis(stage, *found)
    return replace(NOT_DIAGNOSED, stage=stage)


def _stage(facts: StallFacts) -> Stage | None:
    if facts.asked_seconds is not None and facts.asked_seconds < _ASKED_SECONDS:
        return _stage_between_batches(facts)
    if not facts.planned:
        return Stage.PLAN
    waits_for_sink = facts.sink is not None and (facts.sink.in_flight or facts.sink.error is not None)
    if waits_for_sink and not facts.waits.locks:  # a backfill beside the stream may write
        return Stage.WRITE
    return Stage.RESOLVE if facts.task is None else facts.task.stage


def _stage_between_batches(facts: StallFacts) -> Stage:
    """Return the stage of a stream whose documents are written: it reads, or it does not confirm."""
    if facts.is_invisible and facts.cluster is None:  # the next batch confirms the last one
        return Stage.CAPTURE
    if facts.slot is not None and facts.slot.awaits_standbys:
        return Stage.CAPTURE
    confirmed = None if facts.slot is None else facts.slot.confirmed_flush
    is_behind = _is_before(facts.applied, facts.reached) or _is_before(confirmed, facts.applied)
    return Stage.CONFIRM if _reads(facts) and (facts.cluster is not None or is_behind) else Stage.CAPTURE


def _is_before(position: Lsn | None, other: Lsn | None) -> bool:
    return position is not None and other is not None and position < other


def _reads(facts: StallFacts) -> bool:
    silent = facts.waits.silent_seconds
    is_silent = silent is None or silent >= _SILENT_SECONDS
    return facts.server is None and facts.reader is None and not is_silent


# The cause, a text, a remedy; None where it is something else.
_Found = tuple[StallCause, str, str] | None


def _server(facts: StallFacts, _stage: Stage | None) -> _Found:
    if facts.server is None:
        return None
    if facts.server.kind is not Kind.CONNECTION:
        return StallCause.SERVER, facts.server.cause, facts.server.remedy
    if facts.is_unreachable:
        text = f"the database server's address does not answer ({facts.server.cause})"
        return StallCause.NETWORK, text, f"{_WAITING} check the network to it, from this machine."
    text = f"the database server does not answer ({facts.server.cause})"
    return StallCause.SERVER, text, f"{_WAITING} start the server, or look at its log."


def _lock(facts: StallFacts, _stage: Stage | None) -> _Found:
    if not facts.waits.locks:
        return None
    wait = facts.waits.locks[0]
    what = "" if wait.relation is None else f" on {wait.relation}"
    who = "; ".join(wait.blockers) or "a session that this role cannot see"
    text = f"its session (pid {wait.pid}) waits for a lock{what} that is held by {who}"
    remedy = "End that transaction: COMMIT or ROLLBACK there, or SELECT pg_terminate_backend(PID)."
    return StallCause.LOCK, text, remedy


def _standby(facts: StallFacts, stage: Stage | None) -> _Found:
    if facts.slot is None or not facts.slot.awaits_standbys or stage is not Stage.CAPTURE:
        return None
    error = held_back()
    return StallCause.SERVER, error.cause, error.remedy


def _transaction(facts: StallFacts, stage: Stage | None) -> _Found:
    waits = facts.is_invisible or facts.waits.unacknowledged
    is_disturbed = facts.reader is not None and facts.reader.kind is not Kind.CONNECTION
    if stage is not Stage.CAPTURE or not waits or is_disturbed:
        return None
    commits = "; ".join(facts.waits.unacknowledged) or "this role cannot see which"
    why = "transactions of the log are not visible yet, because their commits wait for a synchronous standby"
    remedy = "Start the standbys that synchronous_standby_names asks for, or correct it."
    return StallCause.TRANSACTION, f"{why}: {commits}", remedy


def _cluster(facts: StallFacts, stage: Stage | None) -> _Found:
    if stage in {Stage.CAPTURE, Stage.PLAN}:
        return None
    error = (None if facts.sink is None else facts.sink.error) or facts.cluster
    if error is not None:
        return StallCause.CLUSTER, error.cause, error.remedy
    if stage is Stage.WRITE:
        text = "the cluster does not answer a request for documents"
        return StallCause.CLUSTER, text, "Look at the cluster's health and its tasks: GET /_cat/tasks."
    return None


def _reader(facts: StallFacts, stage: Stage | None) -> _Found:
    error = facts.reader
    if error is None or stage not in {Stage.CAPTURE, Stage.PLAN}:
        return None
    causes = {Kind.CONNECTION: StallCause.NETWORK, Kind.SLOT_IN_USE: StallCause.READER}
    return causes.get(error.kind, StallCause.SERVER), error.cause, error.remedy


def _walsender(facts: StallFacts, stage: Stage | None) -> _Found:
    slot, waits = facts.slot, facts.waits
    if slot is None or stage is not Stage.CAPTURE:
        return None
    if slot.active_pid is None:
        text = f"no walsender of the server reads the slot {slot.name!r}"
        return StallCause.SERVER, text, "Restart the run, and look at the server's log."
    who = f"the walsender (pid {slot.active_pid})"
    if waits.silent_seconds is not None and waits.silent_seconds > _SILENT_SECONDS:
        text = f"{who} and the reader have lost their connection, which neither has noticed"
        return StallCause.NETWORK, text, f"{_WAITING} restart the run: it connects again."
    event = f", it waits for {waits.walsender_waits_for}" if waits.walsender_waits_for else ""
    remedy = f"Look at that process, or end it: SELECT pg_terminate_backend({slot.active_pid})."
    return StallCause.SERVER, f"{who} sends no changes{event}", remedy


def _worker(facts: StallFacts, stage: Stage | None) -> _Found:
    if stage is Stage.PLAN:
        who = "the process that reads the log"
    elif stage in {Stage.RESOLVE, Stage.ASSEMBLE}:
        who = "each worker process" if facts.task is None else f"the worker process {facts.task.worker}"
    else:
        return None
    text = f"{who} does nothing, and has no statement under way in the database"
    remedy = "Look at its memory, and whether it was stopped; or restart the run: nothing is lost."
    return StallCause.WORKER, text, remedy
