"""Make the snapshots of Iceberg tables: which files a table consists of, and up to where it has the log.

The library's own operations are not used: they try a commit that another program's preceded again, which
would hide a second writer, and let lists of files grow with every commit.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, ancestors_of
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from headrace.errors import HeadraceError, Kind
from headrace.mirror.iceberg.partitions import schema_with
from headrace.mirror.lake import files_joined, other_writer
from headrace.mirror.net_changes import Position
from headrace.model.failpoints import reach
from headrace.model.names import TableName

OWN = "headrace"
"""Names, in a snapshot's summary and a table's properties, the position up to where a table has the log."""
_MOST_MANIFESTS = 50
"""So many lists of files are joined to one."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """What a commit does to a table.

    Attributes:
        operation: what kind of change it is.
        position: the last change that the table has afterwards.
        added: data files that it adds.
        removed: the paths of data files that it removes.
        everything: whether it removes all.
        columns: the table's columns afterwards; None: as before.
        spec: how it is partitioned afterwards; None: as before.
        properties: of the table, that it sets.
    """

    operation: Operation
    position: Position
    added: Sequence[DataFile] = ()
    removed: frozenset[str] = frozenset()
    everything: bool = False
    columns: Schema | None = None
    spec: PartitionSpec | None = None
    properties: dict[str, str] = field(default_factory=dict)


def position_text(position: Position) -> str:
    """Return a position as a text."""
    return f"{position[0]}/{position[1]}"


def read_position(text: str) -> Position:
    """Return the position that `position_text` wrote."""
    lsn, _, sequence = text.partition("/")
    return int(lsn), int(sequence)


def noted_position(snapshot: Snapshot) -> Position | None:
    """Return the position that a mirror's snapshot notes; None of one that another program made."""
    text = None if snapshot.summary is None else snapshot.summary[OWN]
    return None if text is None else read_position(text)


def manifests(table: Table, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Return the lists of files of a snapshot."""
    return [] if snapshot is None else snapshot.manifests(table.io)


def live_files(table: Table, snapshot: Snapshot | None) -> list[DataFile]:
    """Return the data files of a snapshot.

    Raises:
        HeadraceError: CONTINUITY: some of their rows are deleted by other files.
    """
    found = []
    for manifest in manifests(table, snapshot):
        # Rows that delete files hide would come back with the next file that is written again.
        if manifest.content == ManifestContent.DELETES:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"another program has deleted rows of {table.location()} by delete files",
                "Let it rewrite the table's files, or remove the table and start the mirror with --reload.",
            )
        found += [entry.data_file for entry in manifest.fetch_manifest_entry(table.io)]
    return found


def plan(table: Table, change: TableCommit) -> tuple[tuple[TableUpdate, ...], Snapshot]:
    """Write the lists of files of a new snapshot; return it, and what a commit of it updates."""
    updates = _schema_updates(table.metadata, change.columns) + _spec_updates(table.metadata, change.spec)
    metadata = update_table_metadata(table.metadata, updates) if updates else table.metadata
    snapshot = _SnapshotWriter(table, metadata, change).write()
    properties = change.properties | {OWN: position_text(change.position)}
    updates += (SetPropertiesUpdate(updates=properties),)
    main = SetSnapshotRefUpdate(
        snapshot_id=snapshot.snapshot_id,
        ref_name=MAIN_BRANCH,
        type=SnapshotRefType.BRANCH,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    return (*updates, AddSnapshotUpdate(snapshot=snapshot), main), snapshot


def requirements(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """Return what must still hold of a table that exists, so that nobody else has written it."""
    main = metadata.refs.get(MAIN_BRANCH)
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=None if main is None else main.snapshot_id),
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
        AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
    )


def _schema_updates(metadata: TableMetadata, columns: Schema | None) -> tuple[TableUpdate, ...]:
    if columns is None or columns.fields == metadata.schema().fields:
        return ()
    for schema in metadata.schemas:
        if schema.fields == columns.fields:
            return (SetCurrentSchemaUpdate(schema_id=schema.schema_id),)
    number = 1 + max(schema.schema_id for schema in metadata.schemas)
    added = AddSchemaUpdate(schema_=Schema(*columns.fields, schema_id=number))
    # -1 is, in Iceberg's updates, what was added last.
    return (added, SetCurrentSchemaUpdate(schema_id=-1))


def _spec_updates(metadata: TableMetadata, spec: PartitionSpec | None) -> tuple[TableUpdate, ...]:
    if spec is None or spec.spec_id == metadata.default_spec_id:
        return ()
    if spec.spec_id in metadata.specs():
        return (SetDefaultSpecUpdate(spec_id=spec.spec_id),)
    return (AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1))


class _SnapshotWriter:
    """Writes the lists of files of one snapshot.

    Args:
        table: the table, as it was opened.
        metadata: what it is with the commit's columns.
        change: what the commit does.
    """

    def __init__(self, table: Table, metadata: TableMetadata, change: TableCommit) -> None:
        self._table = table
        self._metadata = metadata
        self._change = change
        self._id = metadata.new_snapshot_id()
        self._commit = uuid.uuid4()
        self._numbers = itertools.count()
        self._removed: list[DataFile] = []

    def write(self) -> Snapshot:
        """Write them, and return the snapshot."""
        metadata, table = self._metadata, self._table
        before = metadata.current_snapshot()
        lists = [*self._added(), *self._kept(manifests(table, before))]
        path = self._place(f"snap-{self._id}-0-{self._commit}.avro")
        sequence = metadata.next_sequence_number()
        parent = None if before is None else before.snapshot_id
        with write_manifest_list(
            metadata.format_version, table.io.new_output(path), self._id, parent, sequence, "deflate"
        ) as writer:
            writer.add_manifests(lists)
        return Snapshot(
            snapshot_id=self._id,
            parent_snapshot_id=parent,
            sequence_number=sequence,
            # readers refuse a table whose snapshots are not in the order of time: a clock may be set back
            timestamp_ms=max(int(time.time() * 1000), metadata.last_updated_ms),
            manifest_list=path,
            schema_id=metadata.current_schema_id,
            summary=self._summary(lists, None if before is None else before.summary),
        )

    def _place(self, name: str) -> str:
        return self._table.location_provider().new_metadata_location(name)

    def _added(self) -> Iterator[ManifestFile]:
        if self._change.added:
            with self._writer() as writer:
                for file in self._change.added:
                    entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file)
                    writer.add(entry)
            yield writer.to_manifest_file()

    def _kept(self, present: Sequence[ManifestFile]) -> Iterator[ManifestFile]:
        """Yield the lists of the files that stay, with those that go, which are named once more."""
        joins = len(present) > _MOST_MANIFESTS
        staying: list[ManifestEntry] = []
        for manifest in present:
            if manifest.content != ManifestContent.DATA:
                if not self._change.everything:
                    yield manifest
            # One with deleted files alone told of the snapshot before: it would be dragged along for ever.
            elif manifest.has_added_files() or manifest.has_existing_files():
                # In Iceberg a list has files of one partitioning alone.
                is_joined = joins and manifest.partition_spec_id == self._metadata.default_spec_id
                yield from self._split(manifest, staying if is_joined else None)
        yield from self._list(staying, [], self._metadata.default_spec_id)

    def _split(self, manifest: ManifestFile, staying: list[ManifestEntry] | None) -> Iterator[ManifestFile]:
        """Yield a list of files without those that go, and these.

        Args:
            manifest: the list.
            staying: takes the files that stay; None: they have a list of their own.
        """
        if not (self._change.everything or self._change.removed or staying is not None):
            yield manifest
            return
        left: list[ManifestEntry] = []
        gone: list[ManifestEntry] = []
        for entry in manifest.fetch_manifest_entry(self._table.io):
            (gone if self._is_removed(entry.data_file) else left).append(entry)
        self._removed += [entry.data_file for entry in gone]
        if staying is not None:
            staying += left
            left = []
        elif not gone:
            yield manifest
            return
        yield from self._list(left, gone, manifest.partition_spec_id)

    def _is_removed(self, file: DataFile) -> bool:
        return self._change.everything or file.file_path in self._change.removed

    def _list(
        self, staying: Sequence[ManifestEntry], gone: Sequence[ManifestEntry], spec: int
    ) -> Iterator[ManifestFile]:
        if staying or gone:
            with self._writer(spec) as writer:
                for entry in staying:
                    writer.existing(entry)
                for entry in gone:
                    writer.delete(entry)
            yield writer.to_manifest_file()

    def _writer(self, spec: int | None = None) -> ManifestWriter:
        metadata = self._metadata
        used = metadata.specs()[metadata.default_spec_id if spec is None else spec]
        return write_manifest(
            metadata.format_version,
            used,
            schema_with(used, [metadata.schema(), *reversed(metadata.schemas)]),
            self._table.io.new_output(self._place(f"{self._commit}-m{next(self._numbers)}.avro")),
            self._id,
            "deflate",
        )

    def _summary(self, lists: Sequence[ManifestFile], before: Summary | None) -> Summary:
        """Return what readers are told of the snapshot."""
        numbers: dict[str, int] = {}
        for what, sizes, files in (
            ("added", "added", self._change.added),
            ("deleted", "removed", self._removed),
        ):
            numbers[f"{what}-data-files"] = len(files)
            numbers[f"{what}-records"] = sum(file.record_count for file in files)
            numbers[f"{sizes}-files-size"] = sum(file.file_size_in_bytes for file in files)
        # What lists of files say is right also behind another program's snapshot; sizes they do not say.
        present = [manifest for manifest in lists if manifest.content == ManifestContent.DATA]
        size = 0 if before is None else int(before["total-files-size"] or 0)
        numbers |= {
            "total-data-files": sum(_count(manifest, "files") for manifest in present),
            "total-records": sum(_count(manifest, "rows") for manifest in present),
            "total-files-size": size + numbers["added-files-size"] - numbers["removed-files-size"],
            "total-delete-files": 0,
            "total-position-deletes": 0,
            "total-equality-deletes": 0,
        }
        written: dict[str, Any] = {name: str(number) for name, number in numbers.items()}
        return Summary(
            operation=self._change.operation, **written, **{OWN: position_text(self._change.position)}
        )


def _count(manifest: ManifestFile, what: str) -> int:
    """Return how many files or rows a list has that are there."""
    return sum(getattr(manifest, f"{status}_{what}_count") or 0 for status in ("added", "existing"))


def commit(
    name: TableName,
    table: Table,
    change: TableCommit,
    errors: tuple[type[Exception], ...],
    *,
    before: tuple[TableUpdate, ...] = (),
    must: tuple[TableRequirement, ...] | None = None,
    is_own: bool = False,
) -> None:
    """Commit a change of a table.

    Args:
        name: the database's table.
        table: the table, as it was opened.
        change: what is changed.
        errors: what is raised where the lake does not answer.
        before: what makes the table, where it is new.
        must: what must hold then; None: nobody may have written the table.
        is_own: whether it is a table of the mirror's own.

    Raises:
        HeadraceError: CONTINUITY where another program's commit came first.
    """
    updates, snapshot = plan(table, change)
    expected = requirements(table.metadata) if must is None else must
    if not is_own:
        reach("mirror_commit")
    try:
        table.catalog.commit_table(table, expected, before + updates)
    except (CommitFailedException, TableAlreadyExistsError) as error:
        # The library of a catalog may have sent the commit twice: the second one finds the first.
        if not _is_made(table, snapshot):
            raise _refused(name, table, error) from error
    except errors:
        if not _is_made(table, snapshot):
            raise
    if not is_own:
        reach("mirror_committed")


def _refused(name: TableName, table: Table, error: Exception) -> HeadraceError:
    """Return the error of a commit that others preceded, behind the table as it was opened."""
    before = table.metadata
    try:
        present = table.catalog.load_table(table.name()).metadata
    except (NoSuchTableError, NoSuchNamespaceError):
        return other_writer(name, error)
    later = itertools.takewhile(
        lambda snapshot: snapshot.snapshot_id != before.current_snapshot_id,
        ancestors_of(present.current_snapshot(), present),
    )
    is_harmless = (
        present.table_uuid == before.table_uuid
        and present.current_schema_id == before.current_schema_id
        and present.default_spec_id == before.default_spec_id
        and all(
            snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE
            for snapshot in later
        )
    )
    return files_joined(name, error) if is_harmless else other_writer(name, error)


def _is_made(table: Table, snapshot: Snapshot) -> bool:
    """Tell whether a commit was made whose answer was lost."""
    try:
        present = table.catalog.load_table(table.name())
    except (NoSuchTableError, NoSuchNamespaceError):
        return False
    return present.metadata.snapshot_by_id(snapshot.snapshot_id) is not None
