"""Read how far the documents of a pipeline are, from any machine that reaches the server and the cluster.

The meta index holds the applied position: everything committed before it is durable in the documents. While
few changes come, the pipeline moves this position only now and then. So a waiting process requests it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Self, TypeVar

from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.model.units import size
from headrace.pipeline.continuity import check_continuity
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect, query
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import SlotFacts, read_slot
from headrace.postgres.wal_position import end_of_commits, end_of_log
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.client import READ_ATTEMPTS
from headrace.sinks.opensearch.documents import refresh_if_exists
from headrace.sinks.opensearch.replicas import await_replicas
from headrace.state import DeferredKeys, PipelineState, PositionRequest, StateStore
from headrace.state.key import StateKey
from headrace.state.lease import LeaseHolder, find_running
from headrace.state.sink_notes import SecondarySinkNotes

# Most changes are applied sooner than that, without a position request.
_UNASKED_SECONDS = 0.1
_REPLICA_SECONDS = 30.0
_REQUEST_SECONDS = 0.5
_LOOK_SECONDS = 0.05
_Result = TypeVar("_Result")
_START = "Start `headrace run`; where it ends with an error, mend that first."


class AppliedPosition:
    """The applied position of one deployment, read from outside; used from one thread.

    Endpoints are opened when they are needed.

    Args:
        endpoints: the endpoints of the sink that holds the documents.
        key: the name of the sink's state.
        read_attempts: how often a read of a cluster is tried, with pauses of up to two seconds.

    Attributes:
        database: the connection string.
        key: the name of the sink's state.
        client: client of the cluster that keeps the state.
        documents: client of the cluster that holds the documents.
    """

    def __init__(self, endpoints: Endpoints, key: StateKey, *, read_attempts: int = READ_ATTEMPTS) -> None:
        self.database = endpoints.database
        self.key = key
        self.client = Client(endpoints.keeps_state, read_attempts=read_attempts)
        self.documents = Client(endpoints.sink, read_attempts=read_attempts) if key.sink else self.client
        self._meta = StateStore(self.client, key)
        self._position_request = PositionRequest(self.client, key)
        self._notes = SecondarySinkNotes(self.client, key)
        self._deferred = DeferredKeys(self.client, key)
        self._next_request = 0.0
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop_connection()
        self.documents.close()
        self.client.close()

    def end_of_log(self) -> Lsn:
        """Return a position after every commit that is visible now; on a standby, the replayed position.

        Raises:
            HeadraceError: CONNECTION, AUTHENTICATION, DATABASE.
        """
        return self._query_server(lambda connection: end_of_commits(partial(query, connection)))

    def slot(self) -> SlotFacts | None:
        """Return the slot as it is now; None where it does not exist."""
        return self._query_server(lambda connection: read_slot(connection, self.key.slot))

    def find_running(self) -> LeaseHolder | None:
        """Return the process that runs the pipeline now, whether it reads the slot or waits; None: none does.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        return find_running(self.client, self.key.of_pipeline())

    def state(self) -> PipelineState:
        """Load the state that the pipeline has saved, with the generations of the sink.

        Raises:
            HeadraceError: SLOT_UNKNOWN: the cluster knows no such pipeline. SINK_UNREACHABLE, SINK_BUSY.
        """
        state = self._meta.load()
        if state is None:
            raise HeadraceError(
                Kind.SLOT_UNKNOWN,
                f"the cluster has no state of the slot {self.key.slot!r} (in its index {self._meta.index})",
                "Correct --slot or the file's slot and prefix, or start `headrace run`: it backfills first.",
            )
        return state.in_sink(self.key.sink)

    def check(self) -> PipelineState:
        """Load the state; check that it belongs to this database and slot, and that a run fills the sink.

        Raises:
            HeadraceError: CONTINUITY, SLOT_LOST; as `state`; SLOT_UNKNOWN also for a sink that no run fills.
        """
        slot = self.slot()  # read first: the state may only be ahead of it
        state = self.state()
        if state.phase == "following":
            server = self._query_server(lambda connection: inspect_server(connection, self.database))
            check_continuity(state, server, slot)
        if self.key.sink and not state.generations:
            raise HeadraceError(
                Kind.SLOT_UNKNOWN,
                f"no run has used the sink {self.key.sink!r} yet",
                "Start `headrace run`: it fills the sink first.",
            )
        return state

    def wait(self, lsn: Lsn, seconds: float) -> PipelineState | None:
        """Wait until everything before `lsn` is applied; return the state, or None after `seconds`.

        Retryable errors are waited out.

        Raises:
            HeadraceError: an error that is not retryable, or that has not passed at the end.
        """
        began = time.monotonic()
        while True:
            late = time.monotonic() - began
            try:
                state = self.state()
                if self.covers(state, lsn):
                    return state
                if late >= seconds:
                    return None
                # A request costs a write and a batch, and most positions come by themselves.
                if late >= _UNASKED_SECONDS:
                    self.request_position(lsn)
            except HeadraceError as error:
                if error.retry is Retry.NEVER or late >= seconds:
                    raise
            time.sleep(max(0.0, min(_LOOK_SECONDS, seconds - late)))

    def covers(self, state: PipelineState, lsn: Lsn) -> bool:
        """Whether everything before `lsn` is in the documents of every index.

        The position `ahead` of the state holds once no document is deferred: all documents were deferred
        before the state was saved. A secondary sink holds everything but its deferred keys; where their index
        was deleted, nothing is known. A run that gives generations up for that saves it first, so the
        generations are read last.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
        """
        if not state.backfilled:
            return False
        if self.key.sink:
            if state.reached < lsn or self._deferred.count() or self._notes.has_lost_keys():
                return False
            return self.state().backfilled
        if state.applied >= lsn:
            # Where an alteration took rows away, a whole generation is deferred at an applied position.
            return state.ahead is None or self._deferred.count(up_to=state.applied) == 0
        return state.reached >= lsn and self._deferred.count() == 0

    def why_incomplete(self) -> str:
        """Return why changes before the reached position are not in the documents yet.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
        """
        if self.key.sink:
            if self._notes.has_lost_keys():
                return (
                    f"what the sink {self.key.sink!r} lacks is not known: the index of what was deferred "
                    "for it was deleted or restored; a run backfills its indexes again"
                )
            deferred = f"documents that are deferred for the sink {self.key.sink!r} are still to be written"
            return self.why_away() or deferred
        return "documents of a change that touches very many are still to be written"

    def why_away(self) -> str | None:
        """Return why a secondary sink does not take documents; None where it does.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
        """
        reason = self._notes.why_away() if self.key.sink else None
        return None if reason is None else f"the sink {self.key.sink!r} is away: {reason}"

    def progress(self) -> tuple[Lsn, int]:
        """Return the reached position and the number of deferred keys, which change while the pipeline works.

        Raises:
            HeadraceError: as `state`.
        """
        state = self.state()
        return state.reached, self._deferred.count() if self.key.sink or state.ahead is not None else 0

    def request_position(self, lsn: Lsn) -> None:
        """Ask the pipeline to note `lsn`, or the server's position before it; twice a second at most.

        Raises:
            HeadraceError: as for `end_of_log` and `state`.
        """
        if time.monotonic() >= self._next_request:
            self._position_request.submit(min(lsn, self._query_server(end_of_log)))
            self._next_request = time.monotonic() + _REQUEST_SECONDS

    def refresh(self, state: PipelineState) -> None:
        """Refresh the indexes, so that a search finds what is applied.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY; AUTHENTICATION where the user lacks the privilege.
        """
        for generation in state.generations:
            if refresh_if_exists(self.documents, generation.generation):  # else it was replaced since
                await_replicas(self.documents, generation.generation, _REPLICA_SECONDS)

    def _query_server(self, ask: Callable[[Connection], _Result]) -> _Result:
        """Run a query on the server; after an error the next one gets a new connection."""
        try:
            if self._connection is None:
                self._connection = connect(self.database, application_name="headrace wait")
            return ask(self._connection)
        except HeadraceError:
            self._drop_connection()
            raise

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def why_behind(applied: AppliedPosition, state: PipelineState, awaited: Lsn) -> tuple[str, str]:
    """Return why a position is not applied yet, as seen from outside, and a remedy."""
    slot = applied.slot()
    if not state.backfilled:
        sink = applied.key.sink
        where = f"says `live` of the sink {sink!r}" if sink else "says that it is ready"
        return "the indexes are being backfilled", f"Wait until /status of the run {where}."
    if state.reached >= awaited:
        runs = slot is not None and (slot.reader is not None or applied.find_running() is not None)
        return applied.why_incomplete(), "Wait longer." if runs else _START
    if slot is None:
        return "the slot is gone", "Look at `headrace check`."
    if slot.reader is None:
        return _why_unread(applied, slot.name)
    if slot.current < awaited:
        return f"the server itself stands at {format_lsn(slot.current)}", "Correct --lsn."
    return ("the pipeline is behind", "`headrace status` and `headrace lag` say more; it may take longer.")


def _why_unread(applied: AppliedPosition, slot: str) -> tuple[str, str]:
    running = applied.find_running()
    if running is None:
        return f"nobody reads the slot {slot!r}", _START
    why = f"the run ({running}) does not read the slot {slot!r} now"
    return why, "`headrace status` says what it waits for."


def wait_until_applied(
    applied: AppliedPosition,
    awaited: Lsn,
    *,
    timeout: float,
    searchable: bool = False,
    began: float | None = None,
) -> None:
    """Wait until everything before `awaited` is in the documents of every index.

    Args:
        applied: reads the position.
        awaited: the position to wait for.
        timeout: seconds.
        searchable: refresh the indexes then, so that a search finds the changes.
        began: the time (monotonic) from which the timeout counts; None: now.

    Raises:
        HeadraceError: BEHIND after `timeout`; an error that is not retryable.
    """
    spent = 0.0 if began is None else time.monotonic() - began
    state = applied.wait(awaited, max(0.0, timeout - spent))
    if state is None:
        state = applied.state()
        why, remedy = why_behind(applied, state, awaited)
        raise HeadraceError(
            Kind.BEHIND,
            f"{format_lsn(awaited)} is not applied after {timeout:g} s: the documents of {applied.key} stand "
            f"at {format_lsn(state.applied)}, {size(max(0, awaited - state.applied))} before it; {why}",
            remedy,
        )
    if searchable:
        applied.refresh(state)


def parse_position(text: str) -> Lsn:
    """Parse a position as the user has written it.

    Raises:
        HeadraceError: USAGE.
    """
    try:
        return parse_lsn(text)
    except ValueError as error:
        raise HeadraceError(
            Kind.USAGE,
            f"{text!r} is not a position in the log",
            "Write it as PostgreSQL does, like 16/B374D848.",
        ) from error
