"""Load a deployment file and every schema that it names, and check them together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.assembly.transform import load_transform, transform_digest
from headrace.config import (
    Deployment,
    IndexEntry,
    OpenSearchSink,
    Resolved,
    Sink,
    StdoutSink,
    load_deployment,
    resolve,
    resolve_database,
)
from headrace.config.text_files import read_json_object
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.model import TableName
from headrace.model.suggestion import meant
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.address import for_slot
from headrace.postgres.slot import check_slot_name
from headrace.schema import IndexSpec, load_schema, spec_hash
from headrace.sinks.activity import ReportTo
from headrace.sinks.opensearch import Endpoint, IndexOptions, StateKey, WriterOptions
from headrace.sinks.opensearch.settings import fixed_settings, mappings_of, settings_of

OPENSEARCH = "opensearch"
_LONGEST_NAME = 63


def error_list(error: HeadraceError) -> tuple[HeadraceError, ...]:
    """Return the errors that `error` holds, or the error itself."""
    return error.errors if isinstance(error, ErrorGroup) else (error,)


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
class Project:
    """A deployment with its schemas.

    Attributes:
        specs: the enabled indexes, by name.
        slot: the name of the replication slot.
        publication: the name of the publication.
        sink_name: the name of the sink; for the pipeline itself, of the primary sink.
        sink: the settings of the sink, which for the pipeline itself is the cluster that keeps the state.
        retained: schemas of retained generations that the files do not hold any more, by generation.
        reports: where the writers report what they do.
        files: the contents of the settings and mappings files, by index.
        secondary: the secondary sinks, by name.
        kind: the type of the sink; for a plain sink, `sink` holds a cluster's default settings.
        home: what precedes the names of the indexes that keep the state; None: the value of `prefix`.
    """

    deployment: Deployment
    specs: Mapping[str, IndexSpec]
    slot: str
    publication: str
    sink_name: str
    sink: OpenSearchSink
    retained: Mapping[str, IndexSpec] = field(default_factory=dict)
    reports: ReportTo | None = None
    files: Mapping[str, IndexFiles] = field(default_factory=dict)
    secondary: Mapping[str, Sink] = field(default_factory=dict)
    kind: str = OPENSEARCH
    home: str | None = None

    @property
    def followed(self) -> Mapping[str, IndexSpec]:
        """The schemas of the indexes and of the retained generations, by name."""
        return {**self.specs, **self.retained}

    @property
    def prefix(self) -> str:
        """What precedes every name in the search cluster."""
        return _prefix_of(self.deployment, self.sink)

    @property
    def key(self) -> StateKey:
        """The name of the state."""
        if self.home is None:
            return StateKey(self.slot, self.prefix)
        return StateKey(self.slot, self.home, self.sink_name)

    @property
    def lease_key(self) -> StateKey:
        """The name of the leases, which are in the cluster that holds the documents."""
        return dataclasses.replace(self.key, prefix=self.prefix)

    @property
    def label(self) -> str:
        """What precedes the name of an index in messages: the name of a secondary sink."""
        return "" if self.home is None else f"{self.sink_name}: "

    def of_sink(self, name: str) -> Project:
        """Return the project for a secondary sink."""
        sink = self.secondary[name]
        cluster = sink if isinstance(sink, OpenSearchSink) else OpenSearchSink(type="opensearch")
        return dataclasses.replace(
            self,
            sink_name=name,
            sink=cluster,
            secondary={},
            kind=sink.type,
            home=self.prefix,
            reports=None if self.reports is None else dataclasses.replace(self.reports, sink=name),
        )

    def sink_of(self, name: str | None) -> Project:
        """Return the project for the sink with that name, which must be a cluster; None is the primary.

        Raises:
            HeadraceError: USAGE: there is no such sink, or it is not a cluster.
        """
        find_cluster(self.deployment.sinks, name or self.sink_name)
        return self if name in (None, self.sink_name) else self.of_sink(str(name))

    def tables(self) -> frozenset[TableName]:
        """Return every table that a document reads."""
        return frozenset(table for spec in self.followed.values() for table in spec.tables())

    def resolve(self) -> Endpoints:
        """Resolve the addresses and secrets in this environment.

        Raises:
            ErrorGroup: CONFIG: a variable is not set.
        """
        resolved = resolve(self.deployment)
        endpoints = cluster_endpoints(resolved, self.sink_name, self.sink, self.slot)
        secondary = {
            name: secondary_endpoints(endpoints, resolved, name, sink)
            for name, sink in self.secondary.items()
        }
        self._check_indexes_differ(endpoints, secondary)
        return dataclasses.replace(endpoints, secondary=secondary)

    def _check_indexes_differ(self, primary: Endpoints, secondary: Mapping[str, Endpoints]) -> None:
        """Refuse two sinks that share a node and a prefix."""
        owners = {(url, self.prefix): self.sink_name for url in primary.sink.urls}
        for name, endpoints in secondary.items():
            own = self.of_sink(name)
            if own.kind != OPENSEARCH:
                continue
            indexes = [(url, own.prefix) for url in endpoints.sink.urls]
            if other := next((owners[index] for index in indexes if index in owners), None):
                raise HeadraceError(
                    Kind.CONFIG,
                    f"{self.deployment.file}: the sinks {other!r} and {name!r} are the same "
                    "cluster, and would write the same indexes",
                    f"Set another `prefix` in [sinks.{name}].",
                )
            owners |= dict.fromkeys(indexes, name)

    def database(self) -> str:
        """Resolve the database's address alone, for work that needs no cluster.

        Raises:
            ErrorGroup: CONFIG: a variable is not set.
        """
        url = resolve_database(self.deployment).reveal()
        return for_slot(url, self.slot, tuple(self.deployment.source.password_command or ()))

    def index_options(self, index: str) -> IndexOptions:
        """Return the settings for generations of `index`."""
        sink = self.sink
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

    def writer_options(self) -> WriterOptions:
        """Return the settings for bulk requests."""
        return WriterOptions(
            max_bytes=self.sink.max_bytes,
            max_count=self.sink.batch_size,
            max_document_bytes=self.sink.max_document_bytes,
            pipeline=self.sink.pipeline,
            report=self.reports,
        )

    def skip_rejected(self) -> frozenset[str]:
        """Return the indexes that skip documents that the sink refuses."""
        return frozenset(name for name in self.specs if self.deployment.on_error_of(name) == "skip")

    def quarantine(self) -> dict[str, str]:
        """Return the indexes that quarantine such documents, and what happens to the indexed version."""
        deployment = self.deployment
        return {
            name: deployment.on_quarantine_of(name)
            for name in self.specs
            if deployment.on_error_of(name) == "quarantine"
        }

    def hashes(self, specs: Mapping[str, IndexSpec], types: Mapping[str, object]) -> dict[str, str]:
        """Return by index the hash of all that determines its documents and mapping (decision 0060).

        Args:
            specs: the schemas, by index.
            types: by index, what the catalog holds about the columns that it reads.
        """
        return {name: spec_hash(spec, self.determinants(spec, types[name])) for name, spec in specs.items()}

    def determinants(self, spec: IndexSpec, types: object) -> dict[str, object]:
        """Return what determines an index beside its schema; `types` as for `hashes`."""
        extra: dict[str, object] = {
            "text_analysis": self.sink.text_analysis,
            "auto_subfields": self.sink.auto_subfields,
            "pipeline": self.sink.pipeline,
        }
        files = fixed_settings(self.index_options(spec.name))
        return extra | {"types": types} | _code(spec) | files


def cluster_endpoints(resolved: Resolved, name: str, sink: OpenSearchSink, slot: str) -> Endpoints:
    """Build the endpoints of a cluster from the deployment's resolved values."""
    found = resolved.endpoints[name]
    endpoint = Endpoint(
        urls=found.urls,
        username=found.username.reveal() if found.username else None,
        password=found.password.reveal() if found.password else None,
        api_key=found.api_key.reveal() if found.api_key else None,
        ca_file=found.ca_file,
        verify=sink.tls_verify,
        gzip=found.gzip,
        timeout=float(sink.timeout_secs),
    )
    url = for_slot(resolved.database_url.reveal(), slot, resolved.password_command)
    return Endpoints(url, endpoint.normalised())


def secondary_endpoints(primary: Endpoints, resolved: Resolved, name: str, sink: Sink) -> Endpoints:
    """Return the endpoints of a secondary sink."""
    if isinstance(sink, OpenSearchSink):
        found = cluster_endpoints(resolved, name, sink, name)
        return Endpoints(primary.database, found.sink, primary.sink)
    options = {"pretty": sink.pretty} if isinstance(sink, StdoutSink) else sink.options()
    return Endpoints(primary.database, primary.sink, options=options)


def open_project(
    config: Path, environ: Mapping[str, str], *, slot: str | None = None, publication: str | None = None
) -> Project:
    """Load a deployment file and its schemas; report all mistakes of all files at once.

    Raises:
        HeadraceError: CONFIG or SCHEMA; USAGE for a `slot` or `publication` that is not a valid name.
    """
    project, errors = open_loadable(config, environ, slot=slot, publication=publication)
    if project is None or errors:
        raise ErrorGroup(errors)
    return project


def open_loadable(
    config: Path, environ: Mapping[str, str], *, slot: str | None = None, publication: str | None = None
) -> tuple[Project | None, tuple[HeadraceError, ...]]:
    """Load the schema files that are valid; return their project, or None, and the mistakes of the others.

    Raises:
        HeadraceError: CONFIG; USAGE for a `slot` or `publication` that is not a valid name.
    """
    return project_of(load_deployment(config, environ), slot=slot, publication=publication)


def project_of(
    deployment: Deployment, *, slot: str | None = None, publication: str | None = None
) -> tuple[Project | None, tuple[HeadraceError, ...]]:
    """The project of a deployment; as `open_loadable`.

    Raises:
        HeadraceError: CONFIG; USAGE.
    """
    _check_names(slot, publication)
    specs: dict[str, IndexSpec] = {}
    files: dict[str, IndexFiles] = {}
    errors: list[HeadraceError] = []
    for entry in deployment.enabled:
        try:
            spec = load_schema(entry.schema_path, entry.name)
            files[entry.name] = IndexFiles.load(entry)
            if entry.transform is not None:
                load_transform(entry.transform)
            specs[entry.name] = dataclasses.replace(spec, transform=entry.transform)
        except HeadraceError as error:
            errors += error_list(error)
    if not specs:
        if errors:
            return None, tuple(errors)
        raise HeadraceError(
            Kind.CONFIG, f"{deployment.file}: no index is enabled", "Add an [[index]] with enabled = true."
        )
    try:
        name, sink = _primary_sink(deployment)
    except HeadraceError as error:
        return None, (*errors, error)
    secondary = {
        other_name: other_sink for other_name, other_sink in deployment.sinks.items() if other_name != name
    }
    source = deployment.source
    return (
        Project(
            deployment,
            specs,
            slot or source.slot,
            publication or source.publication,
            name,
            sink,
            files=files,
            secondary=secondary,
        ),
        tuple(errors),
    )


def find_index(project: Project, name: str) -> IndexSpec:
    """Return the schema of the index `name`.

    Raises:
        HeadraceError: USAGE: the deployment has no such index.
    """
    if name not in project.specs:
        raise HeadraceError(
            Kind.USAGE, f"the deployment has no enabled index {name!r}", meant(name, project.specs)
        )
    return project.specs[name]


def find_cluster(sinks: Mapping[str, Sink], name: str) -> OpenSearchSink:
    """Return the sink `name` of a deployment, which must be a search cluster.

    Raises:
        HeadraceError: USAGE: there is no such sink, or it is not a search cluster.
    """
    found = sinks.get(name)
    if isinstance(found, OpenSearchSink):
        return found
    clusters = [cluster for cluster, sink in sinks.items() if isinstance(sink, OpenSearchSink)]
    if found is None:
        raise HeadraceError(Kind.USAGE, f"the deployment has no sink {name!r}", meant(name, clusters))
    raise HeadraceError(
        Kind.USAGE,
        f"the sink {name!r} is no search cluster: it cannot be asked what it holds",
        f"Known here: {', '.join(sorted(clusters))}.",
    )


def open_endpoints(
    config: Path, environ: Mapping[str, str], slot: str | None, sink: str | None = None
) -> tuple[Endpoints, StateKey]:
    """Return a deployment's endpoints and the name of its state, without reading its schemas.

    Args:
        config: the path of the deployment file.
        environ: values of the variables that the file names.
        slot: overrides the file's slot.
        sink: the name of a cluster; None is the primary.

    Raises:
        HeadraceError: CONFIG; USAGE for a `slot` that is not a valid name, or a `sink` that is not a cluster.
    """
    _check_names(slot, None)
    deployment = load_deployment(config, environ)
    name, primary = _primary_sink(deployment)
    cluster = find_cluster(deployment.sinks, sink or name)
    resolved, own = resolve(deployment), slot or deployment.source.slot
    endpoints = cluster_endpoints(resolved, name, primary, own)
    key = StateKey(own, _prefix_of(deployment, primary))
    if sink is None or cluster is primary:
        return endpoints, key
    return secondary_endpoints(endpoints, resolved, sink, cluster), key.of_sink(sink)


def _check_names(slot: str | None, publication: str | None) -> None:
    if slot is not None:
        check_slot_name(slot)
    if publication is not None and not 0 < len(publication.encode()) <= _LONGEST_NAME:
        raise HeadraceError(
            Kind.USAGE, f"{publication!r} cannot be the name of a publication", "Use 1 to 63 bytes."
        )


def _primary_sink(deployment: Deployment) -> tuple[str, OpenSearchSink]:
    """Return the name and settings of the cluster that keeps the state."""
    sinks = {
        sink_name: sink for sink_name, sink in deployment.sinks.items() if isinstance(sink, OpenSearchSink)
    }
    if not sinks:
        raise HeadraceError(
            Kind.CONFIG,
            f"{deployment.file}: no sink is a search cluster, and one has to keep the state",
            'Add a [sinks.NAME] with type = "opensearch".',
        )
    name = deployment.primary_sink or next(iter(sinks))
    if name not in sinks:
        raise HeadraceError(
            Kind.CONFIG,
            f"{deployment.file}: primary_sink = {name!r} is no sink of the type opensearch",
            meant(name, sinks) or "Name one of them.",
        )
    return name, sinks[name]


def _prefix_of(deployment: Deployment, sink: OpenSearchSink) -> str:
    return deployment.prefix if sink.prefix is None else sink.prefix


def with_specs(project: Project, followed: Mapping[str, IndexSpec]) -> Project:
    """Return the project with the specs that the catalog has completed, for all that is followed."""
    return dataclasses.replace(
        project,
        specs={name: followed[name] for name in project.specs},
        retained={name: followed[name] for name in project.retained},
    )


def _code(spec: IndexSpec) -> dict[str, object]:
    """Return the digest of a transform's code, which determines documents too."""
    return {} if spec.transform is None else {"transform_code": transform_digest(spec.transform)}
