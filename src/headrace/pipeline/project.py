"""Load a deployment file and every schema that it names, and check them together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.assembly.transform import load_transform
from headrace.config.deployment import Deployment, OpenSearchSink, Sink
from headrace.config.load import load_deployment
from headrace.config.resolve import resolve
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.pipeline.sink_target import IndexFiles, SinkTarget, cluster_endpoint, secondary_endpoints
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.address import for_slot
from headrace.postgres.deployment_database import database_of
from headrace.postgres.slot import check_slot_name
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec
from headrace.sinks.activity import ReportTo
from headrace.state import StateKey

_LONGEST_NAME = 63


def error_list(error: HeadraceError) -> tuple[HeadraceError, ...]:
    """Return the errors that `error` holds, or the error itself."""
    return error.errors if isinstance(error, ErrorGroup) else (error,)


@dataclass(frozen=True, slots=True)
class Project:
    """A deployment with its schemas.

    Attributes:
        specs: the enabled indexes, by name.
        publication: the name of the publication.
        targets: the sinks by name, first the primary, which keeps the state.
        retained: schemas of retained generations that the files do not hold any more, by generation.
        waiting: further indexes that are not followed, because their schema files do not fit the database: by
            name, what is to be changed.
    """

    deployment: Deployment
    specs: Mapping[str, IndexSpec]
    publication: str
    targets: Mapping[str, SinkTarget]
    retained: Mapping[str, IndexSpec] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)

    @property
    def followed(self) -> Mapping[str, IndexSpec]:
        """The schemas of the indexes and of the retained generations, by name."""
        return {**self.specs, **self.retained}

    @property
    def key(self) -> StateKey:
        """The name of the pipeline's state."""
        return self.primary.key

    @property
    def slot(self) -> str:
        """The name of the replication slot."""
        return self.key.slot

    @property
    def primary(self) -> SinkTarget:
        """The sink that keeps the state."""
        return next(iter(self.targets.values()))

    def target_of(self, sink: str) -> SinkTarget:
        """Return a sink by the name that the state has for it, which is empty for the primary."""
        return self.targets[sink] if sink else self.primary

    @property
    def secondary(self) -> Mapping[str, SinkTarget]:
        """The other sinks, by name."""
        return {name: target for name, target in self.targets.items() if target.key.sink}

    @property
    def reseeds(self) -> bool:
        """Whether a run backfills everything again after a gap; else it ends."""
        return self.deployment.source.on_gap == "reseed"

    def find_cluster(self, name: str | None) -> SinkTarget:
        """Return the sink with that name, which must be a cluster; None is the primary.

        Raises:
            HeadraceError: USAGE: there is no such sink, or it is not a cluster.
        """
        if name is None:
            return self.primary
        clusters = {other: target for other, target in self.targets.items() if not target.is_plain}
        if name not in clusters:
            raise HeadraceError(
                Kind.USAGE, f"{name!r} is no search cluster of this deployment", meant(name, clusters)
            )
        return clusters[name]

    def only(self, index: str) -> Project:
        """Return the project of one index alone, which the others' mistakes do not concern."""
        return dataclasses.replace(self, specs={index: self.specs[index]}, retained={}, waiting={})

    def with_reports(self, reports_of: Callable[[str], ReportTo]) -> Project:
        """Return the project whose writers report, by the name of their sink."""
        targets = {
            name: dataclasses.replace(target, reports=reports_of(name))
            for name, target in self.targets.items()
        }
        return dataclasses.replace(self, targets=targets)

    def tables(self) -> frozenset[TableName]:
        """Return every table that a document reads."""
        return frozenset(table for spec in self.followed.values() for table in spec.tables())

    def resolve(self) -> Endpoints:
        """Resolve the addresses and secrets in this environment.

        Raises:
            ErrorGroup: CONFIG: a variable is not set.
        """
        resolved = resolve(self.deployment)
        cluster = cluster_endpoint(resolved, self.primary.name, self.primary.cluster)
        database = for_slot(resolved.database_url.reveal(), self.slot, resolved.password_command)
        primary = Endpoints(database, cluster)
        secondary = {
            name: secondary_endpoints(primary, resolved, target) for name, target in self.secondary.items()
        }
        endpoints = dataclasses.replace(primary, secondary=secondary)
        self._check_indexes_differ(endpoints)
        return endpoints

    def _check_indexes_differ(self, endpoints: Endpoints) -> None:
        """Refuse two sinks that share a node and a prefix."""
        owners: dict[tuple[str, str], str] = {}
        for target in self.targets.values():
            if target.is_plain:
                continue
            # Each sink may list other nodes of the same cluster: one that both name is enough to know it.
            indexes = [(url, target.prefix) for url in endpoints.of(target.key).sink.urls]
            if other := next((owners[index] for index in indexes if index in owners), None):
                raise HeadraceError(
                    Kind.CONFIG,
                    f"{self.deployment.file}: the sinks {other!r} and {target.name!r} are the same "
                    "cluster, and would write the same indexes",
                    f"Set another `prefix` in [sinks.{target.name}].",
                )
            owners |= dict.fromkeys(indexes, target.name)

    def database(self) -> str:
        """Resolve the database's address alone, see `database_of`."""
        return database_of(self.deployment, self.slot)

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


def open_project(
    config: Path,
    environ: Mapping[str, str],
    *,
    slot: str | None = None,
    publication: str | None = None,
    index: str | None = None,
) -> Project:
    """Load a deployment file and its schemas; report all mistakes of all files at once.

    Where `index` is named and its own files are right, mistakes in those of others are left out with them.

    Raises:
        HeadraceError: CONFIG or SCHEMA; USAGE for a `slot` or `publication` that is not a valid name.
    """
    project, errors = open_loadable(config, environ, slot=slot, publication=publication)
    if project is None or (errors and index not in project.specs):
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
            # All mistakes of all files at once: who corrects one should not meet the next.
            errors += error_list(error)
    if not specs:
        if errors:
            return None, tuple(errors)
        raise HeadraceError(
            Kind.CONFIG, f"{deployment.file}: no index is enabled", "Add an [[index]] with enabled = true."
        )
    try:
        project = _project(deployment, specs, files, slot, publication)
    except HeadraceError as error:
        return None, (*errors, error)
    return project, tuple(errors)


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
    project = _project(load_deployment(config, environ), {}, {}, slot, None)
    target = project.find_cluster(sink)
    return project.resolve().of(target.key), target.key


def _check_names(slot: str | None, publication: str | None) -> None:
    if slot is not None:
        check_slot_name(slot)
    if publication is not None and not 0 < len(publication.encode()) <= _LONGEST_NAME:
        raise HeadraceError(
            Kind.USAGE, f"{publication!r} cannot be the name of a publication", "Use 1 to 63 bytes."
        )


def _project(
    deployment: Deployment,
    specs: Mapping[str, IndexSpec],
    files: Mapping[str, IndexFiles],
    slot: str | None,
    publication: str | None,
) -> Project:
    """Build the project of these schemas; of what is None, the file's."""
    primary, sink = _primary_sink(deployment)
    key = StateKey(slot or deployment.source.slot, _prefix_of(deployment, sink))
    targets = {
        name: SinkTarget(
            name, config, _prefix_of(deployment, config), key if name == primary else key.of_sink(name), files
        )
        for name, config in {primary: sink, **deployment.sinks}.items()
    }
    return Project(deployment, specs, publication or deployment.source.publication, targets)


def _primary_sink(deployment: Deployment) -> tuple[str, OpenSearchSink]:
    """Return the name and settings of the cluster that keeps the state."""
    sinks = {
        sink_name: sink for sink_name, sink in deployment.sinks.items() if isinstance(sink, OpenSearchSink)
    }
    if not sinks and deployment.mirror is not None and not deployment.indexes:
        raise HeadraceError(
            Kind.CONFIG,
            f"{deployment.file}: there is a mirror, and no index and no sink for documents",
            "For the mirror there are `headrace mirror check`, `headrace mirror verify`, `headrace slots` "
            "and its status pages (`headrace mirror --public-address HOST:PORT`).",
        )
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


def _prefix_of(deployment: Deployment, sink: Sink) -> str:
    own = sink.prefix if isinstance(sink, OpenSearchSink) else None
    return deployment.prefix if own is None else own


def with_specs(project: Project, followed: Mapping[str, IndexSpec]) -> Project:
    """Return the project with the specs that the catalog has completed, for all that is followed."""
    return dataclasses.replace(
        project,
        specs={name: followed[name] for name in project.specs},
        retained={name: followed[name] for name in project.retained},
    )
