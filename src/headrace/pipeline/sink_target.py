"""Describe one place that documents go to: the primary sink, which keeps the state, or a secondary one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.assembly.transform import transform_digest
from headrace.config.deployment import IndexEntry, OpenSearchSink, Sink, StdoutSink
from headrace.config.resolve import Resolved
from headrace.config.text_files import read_json_object
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.worker.plan import Endpoints
from headrace.schema.tree import IndexSpec
from headrace.sinks.activity import ReportTo
from headrace.sinks.opensearch import Endpoint, IndexOptions, WriterOptions
from headrace.sinks.opensearch.settings import fixed_settings, mappings_of, settings_of
from headrace.sinks.registry import OPENSEARCH
from headrace.state import StateKey


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """The contents of the settings and mappings files of an index."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    mappings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, entry: IndexEntry) -> IndexFiles:
        """Read the files that the entry of an index names.

        Raises:
            HeadraceError: CONFIG.
        """
        return cls(_read(entry.settings_file, settings_of), _read(entry.mappings_file, mappings_of))


def _read(path: Path | None, content: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return content(read_json_object(path))
    except ValueError as error:
        raise HeadraceError(Kind.CONFIG, f"{path}: {error}", "Take it out of the file.") from error


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """One place that documents go to.

    Attributes:
        name: the name in the deployment file.
        sink: the settings in that file.
        prefix: what precedes every name in the cluster.
        key: the name of the state.
        files: the contents of the settings and mappings files, by index.
        reports: where the writers report what they do.
    """

    name: str
    sink: Sink
    prefix: str
    key: StateKey
    files: Mapping[str, IndexFiles] = field(default_factory=dict)
    reports: ReportTo | None = None

    @property
    def kind(self) -> str:
        """The type of the sink."""
        return self.sink.type

    @property
    def is_stdout(self) -> bool:
        """Whether documents are printed by the run's own process; executors reach it through a relay."""
        return self.kind == "stdout"

    @property
    def is_plain(self) -> bool:
        """Whether the sink is not a cluster."""
        return self.kind != OPENSEARCH

    @property
    def cluster(self) -> OpenSearchSink:
        """The settings of the cluster; for a plain sink, the default settings."""
        return self.sink if isinstance(self.sink, OpenSearchSink) else OpenSearchSink(type=OPENSEARCH)

    @property
    def is_eager(self) -> bool:
        """Whether what a small batch wrote is to be searchable at once."""
        return not self.is_plain and self.cluster.eager_refresh and self.cluster.refresh_interval != "-1"

    @property
    def label(self) -> str:
        """What precedes the name of an index in messages: the name of a secondary sink."""
        return f"{self.name}: " if self.key.sink else ""

    @property
    def lease_key(self) -> StateKey:
        """The name of the leases, which are in the cluster that holds the documents."""
        return dataclasses.replace(self.key, prefix=self.prefix)

    def index_options(self, index: str) -> IndexOptions:
        """Return the settings for generations of `index`."""
        sink = self.cluster
        files = self.files.get(index, IndexFiles())
        return IndexOptions(
            number_of_shards=sink.number_of_shards,
            number_of_replicas=sink.number_of_replicas,
            refresh_interval=sink.refresh_interval,
            text_analysis=sink.text_analysis,
            auto_subfields=sink.auto_subfields,
            settings=files.settings,
            mappings=files.mappings,
        )

    def pipelines(self, index: str) -> tuple[str, ...]:
        """Return the ingest pipelines of the cluster that the documents of `index` go through, in order."""
        settings = self.files.get(index, IndexFiles()).settings
        # The sink's is named with each request, and stands for the index's default one then.
        first = self.cluster.pipeline or settings.get("default_pipeline")
        named = (first, settings.get("final_pipeline"))
        return tuple(name for name in named if name and name != "_none")

    def writer_options(self) -> WriterOptions:
        """Return the settings for bulk requests."""
        sink = self.cluster
        return WriterOptions(
            max_bytes=sink.max_bytes,
            max_count=sink.batch_size,
            max_document_bytes=sink.max_document_bytes,
            pipeline=sink.pipeline,
            report=self.reports,
        )

    def determinants(self, spec: IndexSpec, types: object) -> dict[str, object]:
        """Return what determines an index beside its schema; `types`: of the columns that it reads."""
        extra: dict[str, object] = {
            "text_analysis": self.cluster.text_analysis,
            "auto_subfields": self.cluster.auto_subfields,
            "pipeline": self.cluster.pipeline,
        }
        # Documents are other ones by other code, though the schema names the same function.
        code = {} if spec.transform is None else {"transform_code": transform_digest(spec.transform)}
        return extra | {"types": types} | code | fixed_settings(self.index_options(spec.name))

    def place(self, endpoints: Endpoints) -> dict[str, object]:
        """Return what makes it another sink by the same name; a cluster's indexes show which one it is."""
        if not self.is_plain:
            return {}
        options = {} if self.is_stdout else dict(endpoints.of(self.key).options)
        text = json.dumps([self.kind, options], sort_keys=True, default=str)
        return {"sink": hashlib.sha256(text.encode()).hexdigest()}


def secondary_endpoints(primary: Endpoints, resolved: Resolved, target: SinkTarget) -> Endpoints:
    """Return the endpoints of a secondary sink."""
    sink = target.sink
    if isinstance(sink, OpenSearchSink):
        return Endpoints(primary.database, cluster_endpoint(resolved, target.name, sink), primary.sink)
    options = {"pretty": sink.pretty} if isinstance(sink, StdoutSink) else sink.options()
    return Endpoints(primary.database, primary.sink, options=options)


def cluster_endpoint(resolved: Resolved, name: str, sink: OpenSearchSink) -> Endpoint:
    """Build the endpoint of a cluster from the deployment's resolved values."""
    found = resolved.endpoints[name]
    return Endpoint(
        urls=found.urls,
        username=found.username.reveal() if found.username else None,
        password=found.password.reveal() if found.password else None,
        api_key=found.api_key.reveal() if found.api_key else None,
        bearer_token=found.bearer_token.reveal() if found.bearer_token else None,
        aws_region=sink.aws_region,
        client_cert=sink.client_cert,
        client_key=sink.client_key,
        ca_file=found.ca_file,
        ca_fingerprint=sink.ca_fingerprint.replace(":", "").lower() if sink.ca_fingerprint else None,
        verify=sink.tls_verify,
        gzip=found.gzip,
        timeout=float(sink.timeout_secs),
    )
