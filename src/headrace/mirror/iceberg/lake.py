"""Find and make the tables of an Iceberg lake: in a catalog, which a folder has in a file."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import CreateTableTransaction, StagedTable, Table, Transaction
from pyiceberg.typedef import Identifier

from headrace.config.mirror import CATALOG
from headrace.errors import HeadraceError, Kind
from headrace.mirror.files import TARGET_BYTES, DataFile, delete_files
from headrace.mirror.iceberg.commits import PROPERTIES, commit
from headrace.mirror.iceberg.errors import IcebergError, telling_errors
from headrace.mirror.iceberg.folder_catalog import FolderCatalog
from headrace.mirror.iceberg.schemas import COLUMNS, alter, plain, present_files, table_of, to_text
from headrace.mirror.iceberg.table import IcebergTable, data_folder, described, write_data
from headrace.mirror.lake import POSITIONS, LakeTable, check_unwritten, folder_name
from headrace.mirror.net_changes import Position
from headrace.model.names import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.mirror.iceberg.spark import IcebergSparkEngine

_OWN_NAMESPACE = "headrace"
"""The namespace of the mirror's own tables."""
# Of the library's two ways to reach files, the one that also lists them.
_IO = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}


class IcebergLake:
    """Iceberg tables in a folder or a catalog.

    Args:
        location: the folder; or `catalog:` and the name of a catalog of the library's configuration.
        file_bytes: the size of data files, about.
        session: its Iceberg merges; None: this process does it.

    Raises:
        HeadraceError: DEPENDENCY, where the session has no Iceberg, or cannot open the catalog.
    """

    errors: tuple[type[Exception], ...] = (OSError, IcebergError)

    def __init__(
        self, location: str, file_bytes: int = TARGET_BYTES, session: SparkSession | None = None
    ) -> None:
        self.is_catalog = location.startswith(CATALOG)
        self.location = location if self.is_catalog else str(Path(location).absolute())
        self.file_bytes = file_bytes
        self._planned: dict[Identifier, CreateTableTransaction] = {}
        self._lock = threading.RLock()
        self._engine = None if session is None else _spark_engine(session, self)

    @functools.cached_property
    def catalog(self) -> Catalog:
        """What knows the tables.

        Raises:
            HeadraceError: CONFIG: the library's configuration has no such catalog.
        """
        if not self.is_catalog:
            return FolderCatalog(self.location, **_IO)
        name = self.location.removeprefix(CATALOG)
        try:
            return load_catalog(name, **_IO)
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
        return _OWN_NAMESPACE, table.name

    def path(self, table: TableName) -> str:
        """Return where `table` is."""
        own = self.identifier(table) if table.schema or self.is_catalog else (table.name,)
        return "/".join([self.location, *own])

    def open(self, table: TableName) -> IcebergTable | None:
        """Open the lake's table; None where there is none."""
        return self._opened_as(table, self._load(table))

    def write(self, table: TableName, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write rows to files of `table`, which may not be there yet; no commit names them yet.

        Raises:
            HeadraceError: CONFIG: there are too many partitions.
            OSError: they cannot be written.
        """
        return write_data(table, self._change(table, schema), batches, self.file_bytes)

    def remove(self, table: TableName, files: Iterable[DataFile]) -> None:
        """Remove files that `write` wrote and no commit names, as far as that is possible."""
        planned = self._planned.get(self.identifier(table))
        found = self._load(table) if planned is None else table_of(planned)
        if found is not None:
            delete_files(data_folder(found), [file.name for file in files])

    @telling_errors()
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
            change = self._change(table, schema)
            now = self._opened_as(table, table_of(change))
            check_unwritten(table, now if adds and after is None else after, now)
            removed = [] if adds else present_files(change)
            added = described(table, change, files)
            # Making the table and its first rows is one commit: no reader finds it empty.
            self._planned.pop(self.identifier(table), None)
            commit(table, change, position, added=added, removed=removed)

    def _opened_as(self, table: TableName, found: Table | None) -> IcebergTable | None:
        """Return the lake's table that the catalog has as `found`; None where it is but planned."""
        if found is None or isinstance(found, StagedTable):
            return None
        return IcebergTable(table, found, self.file_bytes, self._engine)

    @telling_errors()
    def _load(self, table: TableName) -> Table | None:
        # Whoever only looks makes no file.
        if not self.is_catalog and not FolderCatalog.file_in(self.location).exists():
            return None
        catalog, identifier = self.catalog, self.identifier(table)
        try:
            return catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FileNotFoundError:
            if not isinstance(catalog, FolderCatalog):
                raise
            return catalog.take_up(identifier, Path(self.path(table)))

    @telling_errors()
    def _change(self, table: TableName, schema: pa.Schema) -> Transaction:
        """Return what gives a table the columns and partitions of a schema, and makes one that is missing."""
        with self._lock:
            identifier = self.identifier(table)
            found = self._load(table)
            if found is not None:
                change = found.transaction()
                alter(change, schema)
                return change
            planned = self._planned.get(identifier)
            text = to_text(schema)
            # A catalog may give each plan another folder: files need the one that they were written for.
            if planned is None or planned.table_metadata.properties[COLUMNS] != text:
                self.catalog.create_namespace_if_not_exists(identifier[:-1])
                planned = self.catalog.create_table_transaction(
                    identifier,
                    plain(schema),
                    location=None if self.is_catalog else self.path(table),
                    properties={**PROPERTIES, COLUMNS: text},
                )
                alter(planned, schema)
                self._planned[identifier] = planned
            return planned


@telling_errors()
def _spark_engine(session: SparkSession, lake: IcebergLake) -> IcebergSparkEngine:
    from headrace.mirror.iceberg.spark import IcebergSparkEngine  # noqa: PLC0415 - others need no Spark

    return IcebergSparkEngine(session, lake.catalog, lake.identifier(POSITIONS))
