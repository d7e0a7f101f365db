"""What is durable beside the documents: the pipeline's state, leases, deferred keys and orders."""

from headrace.state.deferred_keys import DeferredKeys, KeyBatch
from headrace.state.key import StateKey
from headrace.state.orders import Mailbox, Order, OrderKind
from headrace.state.pipeline_state import Counters, GenerationState, PipelineState, Unit
from headrace.state.position_request import PositionRequest
from headrace.state.quarantine import Quarantine, Quarantined
from headrace.state.store import StateStore
from headrace.state.system_index import StateDocument, backfill_progress

__all__ = [
    "Counters",
    "DeferredKeys",
    "GenerationState",
    "KeyBatch",
    "Mailbox",
    "Order",
    "OrderKind",
    "PipelineState",
    "PositionRequest",
    "Quarantine",
    "Quarantined",
    "StateDocument",
    "StateKey",
    "StateStore",
    "Unit",
    "backfill_progress",
]
