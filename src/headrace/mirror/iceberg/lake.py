"""Find and make the tables of an Iceberg lake: in a folder, an object store or a catalog."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from obstore.exceptions import BaseError as StoreError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.table import CreateTableTransaction, StagedTable, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AssertCreate
from pyiceberg.typedef import Identifier

from headrace.config.mirror import CATALOG, is_folder
from headrace.errors import HeadraceError, Kind
from headrace.mirror.files import TARGET_BYTES, DataFile
from headrace.mirror.iceberg.catalog import FolderCatalog
from headrace.mirror.iceberg.commits import TableCommit, commit
from headrace.mirror.iceberg.files import DataFolder, LakeFiles
from headrace.mirror.iceberg.parquet import read_written
from headrace.mirror.iceberg.partitions import spec_of
from headrace.mirror.iceberg.schemas import numbered, to_text
from headrace.mirror.iceberg.table import COLUMNS, IcebergTable, described, write_data
from headrace.mirror.lake import LakeTable, check_unwritten, folder_name
from headrace.mirror.net_changes import Position
from headrace.model.names import TableName

_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.parquet.compression-codec": "snappy",
}
_OWN_NAMESPACE = "headrace"
"""The namespace of the mirror's own tables in a catalog."""


class IcebergLake:
    """Iceberg tables in a folder, an object store or a catalog.

    Args:
        location: the folder; a URL of an object store, whose credentials stand in the environment; or
            `catalog:` and the name of a catalog of the library's configuration.
        file_bytes: the size of data files, about.
        retries: how often a request to an object store is tried again; None: for three minutes.
    """

    def __init__(self, location: str, file_bytes: int = TARGET_BYTES, *, retries: int | None = None) -> None:
        self.is_catalog = location.startswith(CATALOG)
        self.location = str(Path(location).absolute()) if is_folder(location) else location.rstrip("/")
        self.errors: tuple[type[Exception], ...] = (OSError, StoreError, RESTError, *_database_errors())
        self.file_bytes = file_bytes
        self._retries = retries
        self._opened: Catalog | None = None
        self._planned: dict[Identifier, CreateTableTransaction] = {}
        self._lock = threading.RLock()

    @property
    def catalog(self) -> Catalog:
        """What knows the tables.

        Raises:
            HeadraceError: CONFIG: the library's configuration has no such catalog.
        """
        with self._lock:
            if self._opened is None:
                self._opened = self._open_catalog()
            return self._opened

    def _open_catalog(self) -> Catalog:
        if not self.is_catalog:
            return FolderCatalog(self.location, LakeFiles(self.location, self._retries))
        name = self.location.removeprefix(CATALOG)
        try:
            return load_catalog(name)
        except (ValueError, ImportError) as error:
            raise HeadraceError(
                Kind.CONFIG,
                f"the catalog {name} cannot be opened: {error}",
                "Describe it in .pyiceberg.yaml, or in variables PYICEBERG_CATALOG__…: see "
                "docs/guides/mirror.md.",
            ) from error

    def identifier(self, table: TableName) -> Identifier:
        """Return what a table is called in the catalog."""
        if table.schema:
            return folder_name(table.schema), folder_name(table.name)
        return (_OWN_NAMESPACE, table.name) if self.is_catalog else (table.name,)

    def path(self, table: TableName) -> str:
        """Return where `table` is."""
        return "/".join([self.location, *self.identifier(table)])

    def open(self, table: TableName) -> IcebergTable | None:
        """Open the lake's table; None where there is none."""
        return self._opened_as(table, self._load(table))

    def open_own(self, name: str) -> IcebergTable | None:
        """Open a table of the mirror's own, beside those of the database; None where there is none."""
        return self.open(TableName("", name))

    def write_own(self, name: str, rows: pa.Table) -> None:
        """Replace the rows of a table of the mirror's own, in one commit; it is made where it is missing."""
        table = TableName("", name)
        files = self.write(table, rows.schema, rows.to_batches())
        with self._lock:
            self._replace(table, self._target(table, rows.schema), rows.schema, files, (0, 0), is_own=True)

    def write(self, table: TableName, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write rows to files of `table`, which may not be there yet; no commit names them yet.

        Raises:
            HeadraceError: CONFIG: there are too many partitions.
            OSError: they cannot be written.
        """
        target = self._target(table, schema)
        metadata = target.metadata
        columns = numbered(schema, metadata.schema(), metadata.last_column_id)
        return write_data(table, target, schema, columns, batches, self.file_bytes)

    def read(
        self, table: TableName, schema: pa.Schema, files: Sequence[DataFile]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of `schema` of files that no commit names yet."""
        target = self._target(table, schema)
        place = target.location_provider().new_data_location
        for file in files:
            yield from read_written(target.io, place(file.name), schema)

    def load_folder(self, table: TableName, schema: pa.Schema) -> DataFolder:
        """Return the folder of the data files of `table`, which may not be there yet."""
        return DataFolder(self._target(table, schema))

    def form(self, table: TableName, schema: pa.Schema) -> str:
        """Return the numbers and types that new files of `table` give the columns of `schema`."""
        metadata = self._target(table, schema).metadata
        return str(numbered(schema, metadata.schema(), metadata.last_column_id))

    def commit(
        self,
        table: TableName,
        schema: pa.Schema,
        files: Sequence[DataFile],
        position: Position,
        after: LakeTable | None = None,
        *,
        adds: bool = False,
    ) -> None:
        """Make `files`, which `write` wrote, all that the table consists of, or add them to it.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster.
        """
        with self._lock:
            target = self._target(table, schema)
            now = self._opened_as(table, target)
            check_unwritten(table, now if adds and after is None else after, now)
            if adds:
                added = described(table, target, files, target.metadata.schema(), target.spec())
                commit(table, target, TableCommit(Operation.APPEND, position, added), self.errors)
            else:
                self._replace(table, target, schema, files, position)

    def _replace(
        self,
        table: TableName,
        target: Table,
        schema: pa.Schema,
        files: Sequence[DataFile],
        position: Position,
        *,
        is_own: bool = False,
    ) -> None:
        creation = self._planned.get(self.identifier(table))
        metadata = target.metadata
        columns = numbered(schema, metadata.schema(), metadata.last_column_id)
        spec = spec_of(schema, columns, metadata)
        change = TableCommit(
            Operation.APPEND if metadata.current_snapshot() is None else Operation.OVERWRITE,
            position,
            described(table, target, files, columns, spec),
            everything=True,
            columns=columns,
            spec=spec,
            properties={COLUMNS: to_text(schema)},
        )
        # Making the table and its first rows is one commit: no reader finds it empty.
        made = () if creation is None else creation._updates  # noqa: SLF001 - its own commit makes no rows
        must = None if creation is None else (AssertCreate(),)
        commit(table, target, change, self.errors, before=made, must=must, is_own=is_own)
        # Only now: a commit that fails is tried again with the plan that its files were written for.
        self._planned.pop(self.identifier(table), None)

    def _opened_as(self, table: TableName, found: Table | None) -> IcebergTable | None:
        """Return the lake's table that the catalog has as `found`; None where it is but planned."""
        if found is None or isinstance(found, StagedTable):
            return None
        return IcebergTable(table, found, self.file_bytes, self.errors)

    def _load(self, table: TableName) -> Table | None:
        try:
            return self.catalog.load_table(self.identifier(table))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _target(self, table: TableName, schema: pa.Schema) -> Table:
        """Return a table to write, which is planned where it is missing."""
        with self._lock:
            found = self._load(table)
            identifier = self.identifier(table)
            if found is not None:
                # Somebody has made it since: by the plan it would be made a second time.
                self._planned.pop(identifier, None)
                return found
            if identifier not in self._planned:
                if self.is_catalog:
                    self.catalog.create_namespace_if_not_exists(identifier[:-1])
                self._planned[identifier] = self.catalog.create_table_transaction(
                    identifier, numbered(schema), properties=dict(_PROPERTIES)
                )
            return self._planned[identifier]._table  # noqa: SLF001 - it says where the files go


def _database_errors() -> tuple[type[Exception], ...]:
    """Return what is raised where the database of an SQL catalog cannot be reached."""
    try:
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - catalogs of that kind alone need it
    except ImportError:
        return ()
    return (SQLAlchemyError,)
