"""The OpenSearch sink: writing documents and managing index generations."""

from headrace.sinks.opensearch.client import Client
from headrace.sinks.opensearch.endpoint import Endpoint
from headrace.sinks.opensearch.generations import Generation, Generations
from headrace.sinks.opensearch.mapping import mapping
from headrace.sinks.opensearch.settings import IndexOptions
from headrace.sinks.opensearch.writer import OpenSearchWriter, WriterOptions

__all__ = [
    "Client",
    "Endpoint",
    "Generation",
    "Generations",
    "IndexOptions",
    "OpenSearchWriter",
    "WriterOptions",
    "mapping",
]
