"""Find Iceberg tables by their folders alone, without a catalog.

The layout is that of Hadoop tables: each commit makes `metadata/vN.metadata.json`, whose number no other
commit has, and then says N in `metadata/version-hint.text`, for readers.
"""

from __future__ import annotations

import re

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from headrace.mirror.iceberg.files import LakeFiles

_VERSION = re.compile(r"v(\d+)\.metadata\.json")
_BEFORE_VERSIONS = "v"
_HINT = "version-hint.text"


class FolderCatalog(NoopCatalog):
    """Tables in folders: the identifier of one is the parts of its path.

    Args:
        location: the folder, or the URL of an object store, that they are in.
        files: reads and writes it.
    """

    def __init__(self, location: str, files: LakeFiles) -> None:
        super().__init__("headrace")
        self._location = location
        self._files = files
        self._read: dict[str, tuple[str, TableMetadata]] = {}

    def path(self, identifier: Identifier) -> str:
        """Return where a table is."""
        return "/".join([self._location, *identifier])

    def load_table(self, identifier: str | Identifier) -> Table:
        """Open a table as its last commit left it.

        Raises:
            NoSuchTableError: there is none.
        """
        parts = self.identifier_to_tuple(identifier)
        path = self.path(parts)
        version = self._find_version(path)
        if version == 0:
            raise NoSuchTableError(path)
        location = _metadata_path(path, version)
        known, metadata = self._read.get(path, ("", None))
        if known != location or metadata is None:
            if not known:  # a program that was killed may have left the hint behind
                self._files.replace(f"{path}/metadata/{_HINT}", str(version).encode())
            metadata = FromInputFile.table_metadata(self._files.io.new_input(location))
            self._read[path] = location, metadata
        return Table(parts, metadata, location, self._files.io, self)

    def create_table_transaction(  # noqa: PLR0917 - the library's
        self,
        identifier: str | Identifier,
        schema: Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> CreateTableTransaction:
        """Plan a new table, which a commit makes."""
        parts = self.identifier_to_tuple(identifier)
        path = location or self.path(parts)
        metadata = new_table_metadata(schema, partition_spec, sort_order, path, dict(properties))
        staged = StagedTable(parts, metadata, _metadata_path(path, 1), self._files.io, self)
        return CreateTableTransaction(staged)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit to a table.

        Raises:
            CommitFailedException: another program's commit came first.
        """
        path = self.path(table.name())
        present = self._present(table)
        for requirement in requirements:
            requirement.validate(None if present is None else present.metadata)
        metadata = update_table_metadata(
            # What PyIceberg itself begins a new table with.
            TableMetadataV1.model_construct(last_column_id=-1, schema=Schema())  # type: ignore[call-arg]
            if present is None
            else present.metadata,
            updates,
            enforce_validation=present is None,
            metadata_location=None if present is None else present.metadata_location,
        )
        version = 1 if present is None else _version(present.metadata_location) + 1
        # The hint is for readers alone; the file whose number no other has is the commit.
        self._create(path, version, metadata)
        location = _metadata_path(path, version)
        self._read[path] = location, metadata
        self._files.replace(f"{path}/metadata/{_HINT}", str(version).encode())
        return CommitTableResponse(metadata=metadata, metadata_location=location)

    def _present(self, table: Table) -> Table | None:
        try:
            return self.load_table(table.name())
        except NoSuchTableError:
            return None

    def _create(self, path: str, version: int, metadata: TableMetadata) -> None:
        """Write what a commit leaves, unless another commit has that number."""
        location = _metadata_path(path, version)
        content = metadata.model_dump_json(exclude_none=True).encode()
        if not self._files.create(location, content):
            with self._files.io.new_input(location).open() as file:
                if file.read() != content:  # else it was stored, its answer lost, and it was sent again
                    raise CommitFailedException(f"{location} is there already")
        # A program that slept may find its number free again: old metadata files are removed.
        latest = self._find_version(path)
        if latest > version:
            # So late that the files of newer commits, and the one with this number, were removed already?
            newest = FromInputFile.table_metadata(self._files.io.new_input(_metadata_path(path, latest)))
            if newest.snapshot_by_id(metadata.current_snapshot_id or 0) is None:
                raise CommitFailedException(f"version {latest} is there already")

    def _find_version(self, path: str) -> int:
        """Return the number of a table's last commit; 0 where there is no table."""
        names = self._files.names(f"{path}/metadata", _BEFORE_VERSIONS)
        return max((int(match[1]) for name in names if (match := _VERSION.fullmatch(name))), default=0)


def _metadata_path(path: str, version: int) -> str:
    return f"{path}/metadata/v{version}.metadata.json"


def _version(location: str) -> int:
    match = _VERSION.fullmatch(location.rpartition("/")[2])
    assert match is not None
    return int(match[1])
