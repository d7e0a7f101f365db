"""Keep a folder's Iceberg tables in a catalog that is a file in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy.engine import URL

NAME = "headrace"
"""What a folder's catalog is called."""
_FILE = "catalog.db"
_HINT = "version-hint.text"
_ENDING = ".metadata.json"


class FolderCatalog(SqlCatalog):
    """A catalog whose tables are found by their folders, too: by those who only read.

    Args:
        folder: the folder; it is made.
        properties: as the library has them.

    Attributes:
        file: the file with what the catalog knows.
    """

    def __init__(self, folder: str, **properties: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.file = self.file_in(folder)
        # No text: whether a `?` or `%` of the path is one depends on SQLAlchemy's version.
        uri: Any = URL.create("sqlite", database=str(self.file))
        super().__init__(NAME, uri=uri, **properties)

    @staticmethod
    def file_in(folder: str) -> Path:
        """Return the file of a folder's catalog."""
        return Path(folder, _FILE)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit to a table, and say in its folder which metadata are the newest.

        Raises:
            CommitFailedException: another program's commit came first.
        """
        done = super().commit_table(table, requirements, updates)
        metadata = Path(done.metadata_location)
        # In one step, so that no reader finds half of it.
        hint = metadata.with_name("version-hint.new")
        hint.write_text(metadata.name.removesuffix(_ENDING))
        hint.replace(metadata.with_name(_HINT))
        return done

    def take_up(self, identifier: Identifier, folder: Path) -> Table | None:
        """Return a table as it lies in its folder; None where nothing does, and forget it then.

        Somebody has removed the folder, or has put an older copy of it back: what the catalog knows is gone.
        """
        self.drop_table(identifier)
        hint = folder / "metadata" / _HINT
        if not hint.exists():
            return None
        return self.register_table(identifier, str(hint.with_name(hint.read_text() + _ENDING)))
