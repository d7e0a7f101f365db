"""The steps that lead from what is to what should be, each with the reason that users are told.

Each can be repeated: after a kill at any point of it, the next round decides on it again or on what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import HeadraceError
from headrace.model.lsn import Lsn
from headrace.state import GenerationState, Order, Unit

_BUILD = "build"


class RebuildCause(StrEnum):
    """Why an index is built again, in one word for metrics."""

    # A table that it reads was altered.
    TABLE = "table"
    # Its schema file, its settings or the types of its columns have changed.
    FILES = "files"
    # Its schema file does not fit the database any more.
    MISFIT = "misfit"
    # The sink does not have any more what was written.
    SINK = "sink"
    # Too many documents waited for the sink.
    DEFERRED = "deferred"
    # A document or a statement of it failed.
    FAILURE = "failure"
    # Somebody has ordered it.
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Action:
    """One step.

    Attributes:
        why: the reason, one sentence without a full stop.
    """

    why: str

    @property
    def key(self) -> str:
        """Name what is tried, so that its failures are counted together."""
        return type(self).__name__

    @property
    def proves(self) -> str:
        """Name the key whose failures are over once this is done; empty where it proves nothing yet."""
        return self.key

    @property
    def delays(self) -> tuple[str, HeadraceError] | None:
        """Return the key of the action that this step puts off, and the failure that is the reason."""
        return None

    @property
    def order_id(self) -> str:
        """Name the order that this step answers; empty for none."""
        return ""


# The log: state and slot.


@dataclass(frozen=True, slots=True)
class CreateState(Action):
    """Store that this deployment begins, before anything else of it exists."""


@dataclass(frozen=True, slots=True)
class CreateSlot(Action):
    """Create the slot, and store where it begins.

    A slot that is there by then is never dropped: it is advanced to the place of a new snapshot.
    """


@dataclass(frozen=True, slots=True)
class DropSlot(Action):
    """Drop the slot: the server must not retain its log any longer."""


@dataclass(frozen=True, slots=True)
class BeginAgain(Action):
    """Stop following every generation and store that there is no log: after a gap all begins again."""


@dataclass(frozen=True, slots=True)
class SetUp(Action):
    """Make in the database what documents need there: publication and replica identities."""


@dataclass(frozen=True, slots=True)
class TakeUpCatalog(Action):
    """Store the catalog and the publication's memberships, after all that they mean is stored.

    Attributes:
        renewed: generations whose documents are all deferred first: a table of theirs has lost rows that the
            log does not name.
    """

    text: str
    published: Mapping[str, int]
    renewed: tuple[GenerationState, ...] = ()


# The generations of a unit.


@dataclass(frozen=True, slots=True)
class UnitAction(Action):
    """A step of one unit, which fails alone."""

    unit: Unit

    @property
    def key(self) -> str:
        """Name the step and its unit."""
        return f"{type(self).__name__} {self.unit}"


@dataclass(frozen=True, slots=True)
class CreateGeneration(UnitAction):
    """Create an empty index and store it as a generation.

    Attributes:
        hash: of the definition that it is created from.
        as_of: the position of the catalog that it is planned for (bytes).
        cause: why the one that is followed is replaced; None where none is.
        order: the id of the order that it answers; empty for none.
    """

    hash: str
    as_of: Lsn
    cause: RebuildCause | None = None
    order: str = ""

    @property
    def key(self) -> str:
        """Name the definition too: another one is tried at once."""
        return build_key(self.unit, self.hash)

    @property
    def proves(self) -> str:
        """Prove nothing: a generation that cannot be filled is created well each time."""
        return ""

    @property
    def order_id(self) -> str:
        """Name the order for a new generation."""
        return self.order


def build_key(unit: Unit, definition: str) -> str:
    """Name the building of a unit: creating, filling and completing one generation after the other."""
    return f"{_BUILD} {unit} {definition}"


def is_building(key: str) -> bool:
    """Whether a key names the building of a unit, each try of which costs a backfill."""
    return key.startswith(f"{_BUILD} ")


@dataclass(frozen=True, slots=True)
class StopFollowing(UnitAction):
    """Write a generation no more, and store why; readers keep it until another one is complete.

    Attributes:
        cause: the kind of the reason.
        failure: the error, where the unit has failed: it is built again only after a pause.
    """

    generation: GenerationState
    cause: RebuildCause
    failure: HeadraceError | None = None

    @property
    def delays(self) -> tuple[str, HeadraceError] | None:
        """Put off the next generation where this one has failed."""
        if self.failure is None:
            return None
        return build_key(self.unit, self.generation.hash), self.failure


@dataclass(frozen=True, slots=True)
class Complete(UnitAction):
    """Give a filled generation its lasting settings, lead readers to it and store that."""

    generation: GenerationState

    @property
    def key(self) -> str:
        """Name the building, which ends with this."""
        return build_key(self.unit, self.generation.hash)


@dataclass(frozen=True, slots=True)
class Serve(UnitAction):
    """Lead readers to a complete generation and store that.

    Attributes:
        pinned: the hash of the definition that a rollback turns away from; empty for none.
        order: as in `CreateGeneration`.
    """

    generation: GenerationState
    pinned: str = ""
    order: str = ""


@dataclass(frozen=True, slots=True)
class Unpin(UnitAction):
    """Forget a rollback: the files have changed since."""

    generation: GenerationState


@dataclass(frozen=True, slots=True)
class Forget(UnitAction):
    """Remove a generation from the state; its index is dropped once no query writes it."""

    generation: GenerationState


@dataclass(frozen=True, slots=True)
class DropIndex(UnitAction):
    """Delete a concrete index that the state does not name, with its notes."""

    name: str

    @property
    def key(self) -> str:
        """Name the index."""
        return f"drop {self.unit.sink} {self.name}"


# The query and what runs beside it.


@dataclass(frozen=True, slots=True)
class ForgetDeferred(Action):
    """Forget what is noted about documents that wait for a sink: nothing that is followed needs it.

    Attributes:
        sink: its name.
    """

    sink: str

    @property
    def key(self) -> str:
        """Name the sink."""
        return f"forget what is deferred {self.sink}"


@dataclass(frozen=True, slots=True)
class StartQuery(Action):
    """Start a query that writes every generation that the state follows by then.

    Attributes:
        new_session: with another Spark session: the processes of this one were lost again and again.
    """

    new_session: bool = False

    @property
    def proves(self) -> str:
        """Prove nothing: whether the query lives shows later."""
        return ""


@dataclass(frozen=True, slots=True)
class ChangePlan(Action):
    """Let the query write, from the end of its batch on, what the state follows by then, and nothing else."""


@dataclass(frozen=True, slots=True)
class CloseQuery(Action):
    """Take away a query that has ended.

    Attributes:
        charged: the failure is a unit's, which is not followed any more: the others go on at once.
    """

    failure: HeadraceError
    charged: bool = False

    @property
    def delays(self) -> tuple[str, HeadraceError] | None:
        """Put off the next start, where it would fail in the same way."""
        return None if self.charged else (StartQuery.__name__, self.failure)


@dataclass(frozen=True, slots=True)
class StartBackfill(UnitAction):
    """Fill a generation beside the query."""

    generation: GenerationState


@dataclass(frozen=True, slots=True)
class StopBackfill(UnitAction):
    """End the backfill of a generation that is not filled any more."""

    generation: str


# How the keys of those steps of a unit begin whose failure keeps it from what it should be.
UNIT_STEPS = tuple(f"{step.__name__} " for step in (Serve, StartBackfill, StopFollowing))


def is_step_of_unit(key: str) -> bool:
    """Whether the status of a unit tells why the step with this key fails."""
    return is_building(key) or key.startswith(UNIT_STEPS)


# The run.


@dataclass(frozen=True, slots=True)
class OrderAction(Action):
    """A step of one order."""

    order: Order

    @property
    def key(self) -> str:
        """Name the step and its order."""
        return f"{type(self).__name__} {self.order.id}"


@dataclass(frozen=True, slots=True)
class ReadFiles(OrderAction):
    """Read and check the deployment's files, as a reload has ordered, and go on with them."""


@dataclass(frozen=True, slots=True)
class CarryOut(OrderAction):
    """Do what an order asks for that changes no unit, beside everything else, and answer it."""


@dataclass(frozen=True, slots=True)
class AnswerOrder(OrderAction):
    """Tell who ordered what came of it.

    Attributes:
        done: whether it was carried out; else `why` says why not.
    """

    done: bool


@dataclass(frozen=True, slots=True)
class EndRun(Action):
    """End the run: with an error that nothing here can mend, or because it was asked to end."""

    error: HeadraceError | None = None
