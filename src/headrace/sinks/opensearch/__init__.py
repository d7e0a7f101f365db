"""The OpenSearch sink: writing documents, index generations, and the pipeline's stored state."""

from headrace.sinks.opensearch.client import Client
from headrace.sinks.opensearch.control_requests import ControlRequest, ControlRequests, PositionRequest
from headrace.sinks.opensearch.deferred_keys import DeferredKeys, KeyBatch
from headrace.sinks.opensearch.endpoint import Endpoint
from headrace.sinks.opensearch.generations import Generation, Generations
from headrace.sinks.opensearch.mapping import mapping
from headrace.sinks.opensearch.meta import MetaIndex
from headrace.sinks.opensearch.quarantine import Quarantine, Quarantined
from headrace.sinks.opensearch.settings import IndexOptions
from headrace.sinks.opensearch.state import Counters, GenerationState, PipelineState
from headrace.sinks.opensearch.state_key import StateKey
from headrace.sinks.opensearch.system_index import StateDocument, backfill_progress
from headrace.sinks.opensearch.writer import OpenSearchWriter, WriterOptions

__all__ = [
    "Client",
    "ControlRequest",
    "ControlRequests",
    "Counters",
    "DeferredKeys",
    "Endpoint",
    "Generation",
    "GenerationState",
    "Generations",
    "IndexOptions",
    "KeyBatch",
    "MetaIndex",
    "OpenSearchWriter",
    "PipelineState",
    "PositionRequest",
    "Quarantine",
    "Quarantined",
    "StateDocument",
    "StateKey",
    "WriterOptions",
    "backfill_progress",
    "mapping",
]
