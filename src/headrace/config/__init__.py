"""Read the deployment file: the database, the sinks, the indexes; secrets are never printed."""

from headrace.config.comparison import differing_keys
from headrace.config.deployment import (
    ConnectionParts,
    Deployment,
    EnvReference,
    IndexEntry,
    OnError,
    OpenSearchSink,
    OtherSink,
    Server,
    Sink,
    SourceConfig,
    StdoutSink,
)
from headrace.config.load import deployment_of, load_deployment
from headrace.config.resolve import Resolved, ResolvedEndpoint, resolve, resolve_database
from headrace.config.secret import Secret
from headrace.config.suggestion import holds_password, suggest_deployment, suggest_index, suggest_slot

__all__ = [
    "ConnectionParts",
    "Deployment",
    "EnvReference",
    "IndexEntry",
    "OnError",
    "OpenSearchSink",
    "OtherSink",
    "Resolved",
    "ResolvedEndpoint",
    "Secret",
    "Server",
    "Sink",
    "SourceConfig",
    "StdoutSink",
    "deployment_of",
    "differing_keys",
    "holds_password",
    "load_deployment",
    "resolve",
    "resolve_database",
    "suggest_deployment",
    "suggest_index",
    "suggest_slot",
]
