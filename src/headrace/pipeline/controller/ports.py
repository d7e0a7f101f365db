"""What actions are carried out on: the state, the source, the sinks, the query and what runs beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.model.lsn import Lsn
from headrace.state import GenerationState, Order, PipelineState


class StatePort(Protocol):
    """The durable state; the query saves its position through the same object.

    Guarantees: what is saved is durable when the call returns, and never overwrites what another process
    has saved.
    """

    @property
    def current(self) -> PipelineState | None:
        """The state as this process has loaded or saved it last; None before."""

    def load(self) -> PipelineState | None:
        """Read the state as it was saved last; None where nothing is."""

    def save(self, state: PipelineState) -> None:
        """Save all of it; no query may run."""

    def save_generations(self, generations: Sequence[GenerationState]) -> None:
        """Save the generations of all sinks; a query may save its position meanwhile."""

    def save_catalog(self, published: Mapping[str, int], text: str) -> None:
        """Save the catalog that the generations are planned for; a query may save its position meanwhile."""


class SourcePort(Protocol):
    """The database that changes come from."""

    def new_state(self) -> PipelineState:
        """Return the state of a deployment that begins on this server."""

    def create_slot(self, state: PipelineState) -> Lsn:
        """Create the slot, or advance the one that is there; hold a snapshot of the place that it returns.

        A slot that this deployment has made may be dropped for that; one of somebody else never is.
        """

    def set_up(self) -> None:
        """Make what documents need in the database: publication and replica identities."""

    def drop_slot(self) -> None:
        """Drop the slot, where it exists."""


class SinkPort(Protocol):
    """One place that documents go to."""

    def create(self, index: str, definition: str) -> GenerationState:
        """Create an empty concrete index from the definition with this hash."""

    def complete(self, generation: GenerationState) -> None:
        """Give a filled index its lasting settings, and lead readers to it."""

    def serve(self, generation: GenerationState) -> None:
        """Lead readers to an index."""

    def drop(self, name: str) -> None:
        """Delete a concrete index and what is noted about it; one that is gone already is no error."""


class StreamPort(Protocol):
    """The query, and what fills generations beside it."""

    def start(self, state: PipelineState, *, new_session: bool) -> None:
        """Start a query after the stored position, which writes what the state follows."""

    def change(self, state: PipelineState) -> None:
        """Offer the query a plan with what the state follows; it takes the plan at the end of its batch."""

    def close(self) -> None:
        """End the query, and everything beside it."""

    def start_backfill(self, generation: GenerationState) -> None:
        """Fill a generation with the rows that are there."""

    def stop_backfill(self, name: str) -> None:
        """End the filling of a generation."""


class DeferralPort(Protocol):
    """The documents that are written later."""

    def renew(self, generation: GenerationState, version: Lsn) -> None:
        """Defer every document of a generation."""

    def forget(self) -> None:
        """Forget everything that is deferred: the log that it came from does not go on."""

    def forget_sink(self, name: str) -> None:
        """Forget what is noted about the documents that wait for a sink."""


class OrderPort(Protocol):
    """Who ordered something."""

    def read_files(self, order: Order) -> None:
        """Read and check the deployment's files, and go on with them; the next round sees what came of it."""

    def answer(self, order: Order, text: str, *, done: bool) -> None:
        """Store what came of an order."""

    def carry_out(self, order: Order) -> None:
        """Begin what an order asks for; it answers by itself."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that actions are carried out on."""

    state: StatePort
    source: SourcePort
    sinks: Mapping[str, SinkPort]
    stream: StreamPort
    deferral: DeferralPort
    orders: OrderPort
