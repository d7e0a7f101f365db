"""Create and drop the slot of a run, and set up what documents need in the database."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind, Retry
from headrace.model.failpoints import reach
from headrace.model.lsn import Lsn, format_lsn
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.stopping import Stopping
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.postgres.server import ServerFacts, inspect_server
from headrace.postgres.slot import (
    ExportedSlot,
    SlotFacts,
    advance_slot,
    create_slot,
    drop_slot,
    read_slot,
    slot_in_use,
)
from headrace.state import PipelineState
from headrace.status.board import StatusBoard

# A new slot waits for the transactions that are open. The first wait is short, so that the delay is reported
# soon; the others are long, because each starts from the beginning.
_FIRST_WAIT_SECONDS, _WAIT_SECONDS = 15.0, 600.0
_BESIDE = "_reseed"
_LONGEST_NAME = 63


@dataclass(eq=False, slots=True)
class RunSource:
    """The database of a run; see `SourcePort`.

    Attributes:
        endpoints: of the deployment.
        definitions: hold the files and the set-up plan.
        board: shows what is waited for.
        snapshot: holds the snapshot of a new slot.
        stopping: interrupts what may take long: a slot may wait for hours for an old transaction.
    """

    endpoints: Endpoints
    definitions: Definitions
    board: StatusBoard
    snapshot: HeldSnapshot
    stopping: Stopping
    _wait_seconds: float = field(default=_FIRST_WAIT_SECONDS, init=False)
    _made: tuple[str, Lsn] = field(default=("", 0), init=False)

    def new_state(self) -> PipelineState:
        """Return the state of a deployment that begins on this server.

        Raises:
            HeadraceError: CONNECTION, AUTHENTICATION, DATABASE.
        """
        with self._connect() as connection:
            server = inspect_server(connection, self.endpoints.database)
        project = self.definitions.project
        return new_state(server, project.slot, project.publication)

    def create_slot(self, state: PipelineState) -> Lsn:
        """Create the slot, and hold a snapshot of the place where it begins.

        Raises:
            HeadraceError: SLOT_UNKNOWN; SLOT_IN_USE while a process reads the slot; SLOT_LOST for another
                user's lost slot; SLOT_WAIT, NO_FREE_SLOT, PRIVILEGE, CONNECTION, DATABASE.
        """
        self.snapshot.close()
        seconds, self._wait_seconds = self._wait_seconds, _WAIT_SECONDS
        try:
            with self.stopping.interrupting(), self._connect() as connection:
                slot = self._make_slot(connection, state, seconds)
        except HeadraceError as error:
            if error.retry is Retry.BACK_OFF:  # it is tried again; another error ends the run
                self.board.record_error(error)
            raise
        self._made = slot.name, slot.consistent_point
        self.board.recovered()
        reach("created")
        self.snapshot.hold(slot)
        self.board.report.done(f"slot {state.slot} at {format_lsn(slot.consistent_point)}")
        return slot.consistent_point

    def _make_slot(self, connection: Connection, state: PipelineState, time_limit: float) -> ExportedSlot:
        """Create the slot at a new position, with a snapshot of that position.

        A slot that stands where this deployment has confirmed, or where this process has made it, is its own,
        and is dropped. One that another user created or moved is kept and advanced; a temporary slot then
        gives the snapshot. At a first start nobody can tell whose another slot is.
        """
        if (slot := read_slot(connection, state.slot)) is not None:
            if slot.active_pid is not None:
                raise slot_in_use(slot)
            # The state may lack the place of what this process made: storing it may have failed.
            is_made = self._made == (slot.name, slot.confirmed_flush)
            if not is_made and not state.consistent_point <= (slot.confirmed_flush or 0) <= state.applied:
                # A start that was killed before it stored the place of its slot cannot say whose this one is.
                if not state.consistent_point:
                    raise _unknown(slot)
                return _make_beside(connection, self.endpoints.database, slot, time_limit)
            # Only creating a slot gives a snapshot with a known position, so ours is made again.
            drop_slot(connection, state.slot)
        failover = self.definitions.project.deployment.source.failover
        return create_slot(self.endpoints.database, state.slot, time_limit=time_limit, failover=failover)

    def drop_slot(self) -> None:
        """Drop the slot, where it exists.

        Raises:
            HeadraceError: SLOT_IN_USE; CONNECTION, DATABASE.
        """
        with self.stopping.interrupting(), self._connect() as connection:
            slot = self.definitions.project.slot
            if read_slot(connection, slot) is not None:
                drop_slot(connection, slot)
        reach("released")

    def set_up(self) -> None:
        """Execute the set-up plan.

        Raises:
            HeadraceError: as for `execute_plan`.
        """
        self.snapshot.close()  # an index that is built beside writers waits for every older snapshot
        with self.stopping.interrupting(), self._connect() as connection:
            self.definitions.set_up(connection, lambda step: self.board.report.info(f"set-up: {step.why}"))

    def _connect(self) -> contextlib.AbstractContextManager[Connection]:
        return connect(self.endpoints.database, application_name="headrace run")


def new_state(server: ServerFacts, slot: str, publication: str) -> PipelineState:
    """Return the first state of a pipeline on this server, before anything else exists."""
    return PipelineState(
        system_identifier=str(server.system_identifier),
        timeline=server.timeline,
        database_oid=server.database_oid,
        slot=slot,
        publication=publication,
        phase="creating",
        consistent_point=0,
        applied=0,
        standby=server.in_recovery,
    )


def _make_beside(connection: Connection, url: str, slot: SlotFacts, time_limit: float) -> ExportedSlot:
    """Advance another user's slot to where a temporary one begins, and return that with its snapshot."""
    if slot.lost:
        raise HeadraceError(
            Kind.SLOT_LOST,
            f"the slot {slot.name!r} was made or moved by another program, up to "
            f"{format_lsn(slot.confirmed_flush or 0)}, and is lost: {slot.why_lost}",
            BACKFILL_AGAIN,
        )
    name = slot.name[: _LONGEST_NAME - len(_BESIDE)] + _BESIDE
    # Its snapshot is of the place that the kept slot is then moved to: nothing in between is needed.
    beside = create_slot(url, name, time_limit=time_limit, temporary=True)
    try:
        advance_slot(connection, slot.name, beside.consistent_point)
    except BaseException:
        beside.close()
        raise
    return beside


def _unknown(slot: SlotFacts) -> HeadraceError:
    return HeadraceError(
        Kind.SLOT_UNKNOWN,
        f"the last start ended while it made its slot, and nobody can tell whether {slot.name!r} is that "
        f"one: it stands at {format_lsn(slot.confirmed_flush or 0)}",
        f"If nothing else uses it, run SELECT pg_drop_replication_slot('{slot.name}') in the database, "
        "then start again; else name another slot with --slot.",
    )
