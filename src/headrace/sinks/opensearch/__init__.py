"""OpenSearch: how do documents get there, where do they live, what is remembered about them?"""

from headrace.sinks.opensearch.client import Client
from headrace.sinks.opensearch.endpoint import Endpoint
from headrace.sinks.opensearch.writer import OpenSearchWriter, WriterOptions

__all__ = ["Client", "Endpoint", "OpenSearchWriter", "WriterOptions"]
