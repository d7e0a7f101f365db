"""How far are the documents? Asked from any machine that reaches the server and the cluster.

The answer is what the meta index says: whatever was committed before the applied position is durable in the
documents. In a quiet time it follows the server's log only now and then, so whoever waits asks for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from headrace.errors import HeadraceError, Kind, Retry
from headrace.model import Lsn, format_lsn, parse_lsn
from headrace.model.units import size
from headrace.pipeline.continuity import check_continuity
from headrace.pipeline.project import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.postgres.position import end_of_commits, query_of
from headrace.postgres.server import end_of_log, inspect_server
from headrace.postgres.slot import SlotFacts, read_slot
from headrace.sinks.opensearch import Client, DeferredKeys, MetaIndex, PipelineState, PositionRequest
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.documents import await_replicas
from headrace.sinks.opensearch.secondary_deferred_keys import SecondaryDeferredKeys

_PATIENCE_SECONDS = 0.1
"""A change is applied sooner than that: nobody needs to be asked."""
_REPLICA_SECONDS = 30.0
_WISH_SECONDS = 0.5
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.1
_Result = TypeVar("_Result")


class AppliedPosition:
    """One deployment, looked at from outside; used from one thread. Connections open when they are needed.

    Args:
        here: of the sink whose documents it is about.
        slot: whose position it is; with `prefix` it says where that is kept. A secondary sink's is
            `SLOT/SINK`.

    Attributes:
        client: of the cluster that keeps the state.
        documents: of the one that has the documents.
        sink: the secondary sink that it is about; empty where that is the primary.
    """

    def __init__(self, endpoints: Endpoints, slot: str, prefix: str) -> None:
        self._url = endpoints.database
        self._slot, _, self.sink = slot.partition("/")
        self.client = Client(endpoints.state or endpoints.sink)
        self.documents = Client(endpoints.sink) if self.sink else self.client
        self._meta = MetaIndex(self.client, slot, prefix)
        self._position_request = PositionRequest(self.client, self._slot, prefix)
        self._deferred = DeferredKeys(self.client, self._slot, prefix)
        self._backlog = SecondaryDeferredKeys(self.client, slot, prefix)
        self._next_wish = 0.0
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._drop_connection()
        self.documents.close()
        self.client.close()

    def end_of_log(self) -> Lsn:
        """A place in the log behind every commit that can be seen now; on a standby, what is replayed.

        Raises:
            HeadraceError: CONNECTION, AUTHENTICATION, DATABASE.
        """
        return self._asking(lambda connection: end_of_commits(query_of(connection)))

    def slot(self) -> SlotFacts | None:
        """The slot as it is now; None where there is none."""
        return self._asking(lambda connection: read_slot(connection, self._slot))

    def state(self) -> PipelineState:
        """What the pipeline notes of itself.

        Raises:
            HeadraceError: SLOT_UNKNOWN where the cluster knows no such pipeline; SINK_UNREACHABLE, SINK_BUSY.
        """
        state = self._meta.load()
        if state is None:
            raise HeadraceError(
                Kind.SLOT_UNKNOWN,
                f"the cluster knows nothing of the slot {self._slot!r} (in its index {self._meta.index})",
                "Correct --slot or the file's slot and prefix, or start `headrace run`: it seeds first.",
            )
        return state

    def check(self) -> PipelineState:
        """The state, once it is clear that it is of this database and of this slot.

        Raises:
            HeadraceError: CONTINUITY, SLOT_LOST; as `state`.
        """
        slot = self.slot()  # first: it never stands behind what is noted later
        state = self.state()
        if state.phase == "following":
            server = self._asking(lambda connection: inspect_server(connection, self._url))
            check_continuity(state, server, slot)
        return state

    def wait(self, lsn: Lsn, seconds: float) -> PipelineState | None:
        """The state once everything before `lsn` is applied, None where it is not within `seconds`.

        What may pass is waited for, too.

        Raises:
            HeadraceError: what does not pass, or has not passed at the end.
        """
        began = time.monotonic()
        pause = _SHORTEST_PAUSE
        while True:
            late = time.monotonic() - began
            try:
                state = self.state()
                if self.covers(state, lsn):
                    return state
                if late >= seconds:
                    return None
                if late >= _PATIENCE_SECONDS:
                    self.urge(lsn)
            except HeadraceError as error:
                if error.retry is Retry.NEVER or late >= seconds:
                    raise
            time.sleep(max(0.0, min(pause, seconds - late)))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def covers(self, state: PipelineState, lsn: Lsn) -> bool:
        """Whether everything before `lsn` is in the documents of every index.

        What the state says is ahead is so once no document is deferred: all of them were before it said so.
        What a secondary sink was to have by then it has, or its backlog; where somebody has deleted that,
        nobody knows. A run that gives its generations up for it notes that first, so they are looked at last.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
        """
        if not state.seeded:
            return False
        if self.sink:
            if state.reached < lsn or self._backlog.count() or self._backlog.is_lost():
                return False
            return self.state().seeded
        return state.applied >= lsn or (state.reached >= lsn and self._deferred.count() == 0)

    def lacking(self) -> str:
        """Why what is reached is not in the documents yet.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
        """
        if self.sink:
            if self._backlog.is_lost():
                return (
                    f"what the sink {self.sink!r} lacks is not known: somebody deleted or restored the index "
                    "of what was deferred for it; a run fills its indexes anew"
                )
            return (
                self.away()
                or f"documents that are deferred for the sink {self.sink!r} are still to be written"
            )
        return "documents of a change that touches very many are still to be written"

    def away(self) -> str | None:
        """Why a secondary sink does not take what it is given; None where it does.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
        """
        reason = self._backlog.why_away() if self.sink else None
        return None if reason is None else f"the sink {self.sink!r} is away: {reason}"

    def progress(self) -> tuple[Lsn, int]:
        """What changes as long as the pipeline gets on.

        Raises:
            HeadraceError: as `state`.
        """
        state = self.state()
        if self.sink:
            return state.reached, self._backlog.count()
        return state.reached, 0 if state.ahead is None else self._deferred.count()

    def urge(self, lsn: Lsn) -> None:
        """Ask the pipeline to note `lsn`, or what the server has reached of it; not too often.

        Raises:
            HeadraceError: as `end_of_log` and `state`.
        """
        if time.monotonic() >= self._next_wish:
            self._position_request.make(min(lsn, self._asking(end_of_log)))
            self._next_wish = time.monotonic() + _WISH_SECONDS

    def refresh(self, state: PipelineState) -> None:
        """Let a search find what is applied.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY; AUTHENTICATION where the user may not.
        """
        for one in state.generations:
            target = path(one.generation, "_refresh")
            if self.documents.call("POST", target, allow=(404,)).ok:  # else replaced since
                await_replicas(self.documents, one.generation, _REPLICA_SECONDS)

    def _asking(self, ask: Callable[[Connection], _Result]) -> _Result:
        """Ask the server; whatever goes wrong, the next question gets a new connection."""
        try:
            if self._connection is None:
                self._connection = connect(self._url, application_name="headrace wait")
            return ask(self._connection)
        except HeadraceError:
            self._drop_connection()
            raise

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def check_filled(state: PipelineState, slot: str) -> None:
    """Make sure that a run has taken a secondary sink up.

    Raises:
        HeadraceError: SLOT_UNKNOWN.
    """
    _, _, sink = slot.partition("/")
    if sink and not state.generations:
        raise HeadraceError(
            Kind.SLOT_UNKNOWN,
            f"no run has taken the sink {sink!r} up yet",
            "Start `headrace run`: it fills the sink first.",
        )


def why_behind(applied: AppliedPosition, state: PipelineState, awaited: Lsn) -> tuple[str, str]:
    """Why something is not applied yet, as far as can be seen from outside, and what helps."""
    slot = applied.slot()
    if not state.seeded:
        where = f"says `live` of the sink {applied.sink!r}" if applied.sink else "says that it is ready"
        return "the indexes are being seeded", f"Wait until /status of the run {where}."
    if state.reached >= awaited:
        is_read = slot is not None and slot.reader is not None
        return applied.lacking(), "Wait longer." if is_read else "Start `headrace run`."
    if slot is None:
        return "the slot is gone", "Look at `headrace check`."
    if slot.reader is None:
        return f"nobody reads the slot {slot.name!r}", "Start `headrace run`."
    if slot.current < awaited:
        return f"the server itself stands at {format_lsn(slot.current)}", "Correct --lsn."
    return (
        "the pipeline is behind",
        "Wait longer with --timeout; /status of the run and `headrace lag` say more.",
    )


def wait_until_applied(
    applied: AppliedPosition, awaited: Lsn, slot: str, *, timeout: float, searchable: bool = False
) -> None:
    """Return once everything before `awaited` is in the documents of every index.

    Args:
        slot: of the pipeline; of a secondary sink `SLOT/SINK`.
        timeout: seconds.
        searchable: refresh the indexes then, so that a search finds it.

    Raises:
        HeadraceError: BEHIND where it is not within `timeout`; what does not pass.
    """
    state = applied.wait(awaited, max(0.0, timeout))
    if state is None:
        raise _behind(applied, slot, awaited, timeout)
    if searchable:
        applied.refresh(state)


def awaited_position(text: str) -> Lsn:
    """The place that somebody has written.

    Raises:
        HeadraceError: USAGE.
    """
    try:
        return parse_lsn(text)
    except ValueError as error:
        raise HeadraceError(
            Kind.USAGE, f"{text!r} is no place in the log", "Write it as PostgreSQL does, like 16/B374D848."
        ) from error


def _behind(applied: AppliedPosition, slot: str, awaited: Lsn, timeout: float) -> HeadraceError:
    state = applied.state()
    why, remedy = why_behind(applied, state, awaited)
    return HeadraceError(
        Kind.BEHIND,
        f"{format_lsn(awaited)} is not applied after {timeout:g} s: the documents of the slot {slot!r} stand "
        f"at {format_lsn(state.applied)}, {size(max(0, awaited - state.applied))} before it; {why}",
        remedy,
    )
