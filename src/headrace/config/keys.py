"""The keys of deployment files as types: an editor completes the arguments of `Pipeline` and `Mirror`.

The models in `deployment` and `mirror` check them, and docs/reference/deployment-file.md describes each. In
place of a text, `{"env": "NAME"}` names a variable that has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

Text = str | Mapping[str, str]
Table = Mapping[str, Any]


class SourceKeys(TypedDict, total=False):
    """The keys of `[source]`."""

    type: Literal["postgres"]
    connection_url: Text | Table
    password_command: Sequence[str]
    manage_publication: bool
    replica_identity: Literal["check", "auto", "ignore"]
    slot: str
    failover: bool
    on_gap: Literal["stop", "reseed"]
    wal_budget: int | str
    wal_budget_hours: float
    on_budget: Literal["warn", "release"]
    stalled_after: float | str
    publication: str
    ssl_mode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"]
    ssl_root_cert: str
    ssl_cert: str
    ssl_key: str


class OpenSearchKeys(TypedDict, total=False):
    """The keys of `[sinks.NAME]` for OpenSearch and Elasticsearch."""

    type: Literal["opensearch"]
    url: Text | Sequence[Text]
    username: Text
    password: Text
    api_key: Text
    bearer_token: Text
    aws_region: str
    client_cert: str | Path
    client_key: str | Path
    tls_verify: bool
    ca_file: str | Path
    ca_fingerprint: str
    gzip: bool
    batch_size: int
    max_bytes: int
    max_document_bytes: int
    timeout_secs: int
    max_retries: int
    pipeline: str
    number_of_shards: int
    number_of_replicas: int
    refresh_interval: str
    eager_refresh: bool
    text_analysis: Literal["builtin", "icu"]
    auto_subfields: bool
    prefix: str


class IndexKeys(TypedDict, total=False):
    """The keys of `[[index]]`, without its name."""

    schema: str | Path
    enabled: bool
    on_error: Literal["stop", "skip", "quarantine"]
    on_quarantine: Literal["keep", "delete"]
    settings_file: str | Path
    mappings_file: str | Path
    transform: str


class MirroredTablesKeys(TypedDict, total=False):
    """The keys of `[[mirror.tables]]`."""

    tables: Sequence[str]
    exclude: Sequence[str]
    mode: Literal["current", "history", "changes"]
    columns: Sequence[str]
    exclude_columns: Sequence[str]
    where: str
    partition_by: Sequence[str]
    soft_delete: bool
    masks: Mapping[str, Literal["sha256", "redact", "null"]]
    on_value: Mapping[str, Literal["null", "text", "wait"]]
    types: Mapping[str, Literal["text", "timestamptz"]]
    on_error: Literal["reload", "wait"]


class PipelineKeys(TypedDict, total=False):
    """The other keys of a deployment file."""

    primary_sink: str
    max_deferred: int
    on_error: Literal["stop", "skip", "quarantine"]
    on_quarantine: Literal["keep", "delete"]
    large_change: int
    prefix: str
    server: Table
    control: Table
    backfill: Table
    generations: Table
    stream: Table
    batch: Table
    mirror: Table


class MirrorKeys(TypedDict, total=False):
    """The other keys of `[mirror]`."""

    format: Literal["delta", "iceberg"]
    engine: Literal["local", "spark"]
    interval: str
    file_size: int | str
    retention: str
    slot: str
    publication: str
    mask_salt: Text
