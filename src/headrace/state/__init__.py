"""What is durable beside the documents: the pipeline's state, leases, deferred keys and requests."""

from headrace.state.control_requests import ControlRequest, ControlRequests, PositionRequest
from headrace.state.deferred_keys import DeferredKeys, KeyBatch
from headrace.state.key import StateKey
from headrace.state.pipeline_state import Counters, GenerationState, PipelineState
from headrace.state.quarantine import Quarantine, Quarantined
from headrace.state.store import StateStore
from headrace.state.system_index import StateDocument, backfill_progress

__all__ = [
    "ControlRequest",
    "ControlRequests",
    "Counters",
    "DeferredKeys",
    "GenerationState",
    "KeyBatch",
    "PipelineState",
    "PositionRequest",
    "Quarantine",
    "Quarantined",
    "StateDocument",
    "StateKey",
    "StateStore",
    "backfill_progress",
]
