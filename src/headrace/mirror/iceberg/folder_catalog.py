"""Keep the catalog of a folder's Iceberg tables in a file of the folder."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

_HINT = "version-hint.text"
_ENDING = ".metadata.json"


class FolderCatalog(SqlCatalog):
    """A catalog whose tables are found by their folders, too: by those who only read."""

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
