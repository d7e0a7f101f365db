"""Commit to Iceberg tables: every snapshot says up to where the table has the log."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from headrace.errors import HeadraceError, Kind
from headrace.mirror.iceberg.schemas import OWN, levels, table_of, written_columns
from headrace.mirror.lake import files_joined, other_writer, reaching_commit
from headrace.mirror.net_changes import Position
from headrace.mirror.partitions import partitions_of
from headrace.model.names import TableName

_RETRIES = "commit.retry.num-retries"
PROPERTIES = {
    # Tried again, a commit would come after another writer's, whose rows may be newer.
    _RETRIES: "0",
    "commit.manifest.min-count-to-merge": "10",
    "write.metadata.delete-after-commit.enabled": "true",
}
"""The properties that a table is made with."""
_CLOCKS_DIFFER_MS = 60_000
"""So far (milliseconds) may the clock be behind a table's last commit, as Iceberg's specification has it."""
_MOST_MANIFESTS = 50
"""So many lists of files are joined."""


def position_text(position: Position) -> str:
    """Return the text by which a snapshot or a table notes a position."""
    return f"{position[0]}/{position[1]}"


def read_position(text: str) -> Position:
    """Return the position that a snapshot or a table notes."""
    lsn, _, sequence = text.partition("/")
    return int(lsn), int(sequence)


def noted_position(snapshot: Snapshot) -> Position | None:
    """Return the position that a mirror's snapshot notes; None of one that another program made."""
    text = None if snapshot.summary is None else snapshot.summary[OWN]
    return None if text is None else read_position(text)


def find_other_commit(table: Table, since: int, *, or_own: bool = False) -> str | None:
    """Return what another program did to the rows or columns after a snapshot; None: nothing.

    Args:
        table: the table as it is now.
        since: the snapshot.
        or_own: count what mirrors did, too.
    """
    metadata = table.metadata
    written = written_columns(metadata)
    if written is None or written.names != [field.name for field in metadata.schema().fields]:
        return "other columns"
    if {*partitions_of(written)} != {*levels(table.spec(), table.schema())}:
        return "other partitions"
    present = metadata.current_snapshot()
    for snapshot in ancestors_of(present, metadata):
        if snapshot.snapshot_id == since:
            return None
        if (or_own or noted_position(snapshot) is None) and not leaves_rows(snapshot):
            operation = "unknown" if snapshot.summary is None else snapshot.summary.operation.value
            return f"{operation}, snapshot {snapshot.snapshot_id}"
        if snapshot.parent_snapshot_id == since:
            return None  # that one is removed by now, as old ones are
    return f"snapshot {snapshot_id(table)} is in the place of {since}"


def leaves_rows(snapshot: Snapshot) -> bool:
    """Tell whether a snapshot has the rows of the one before it: files were joined."""
    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE


def were_joined(table: Table, last: int | None, *, since: Table) -> bool:
    """Tell whether files were joined, and nothing else, from a table to one of its later snapshots."""
    before = since.current_snapshot()
    while last != (None if before is None else before.snapshot_id):
        snapshot = None if last is None else table.snapshot_by_id(last)
        if snapshot is None or not leaves_rows(snapshot):
            return False
        last = snapshot.parent_snapshot_id
    return True


def snapshot_id(table: Table) -> int:
    """Return the id of a table's present snapshot; 0: it has none."""
    snapshot = table.current_snapshot()
    return 0 if snapshot is None else snapshot.snapshot_id


def check_writable(name: TableName, table: Table) -> None:
    """Refuse to commit to a table where others could come in between, or whose order of time would break.

    Raises:
        HeadraceError: CONTINUITY; SINK_BUSY, where the clock is behind.
    """
    if table.properties.get(_RETRIES) != PROPERTIES[_RETRIES]:
        raise other_writer(name, f"the table's property {_RETRIES} is not 0 any more")
    # Readers refuse a table whose snapshots are not in the order of time.
    if time.time() * 1000 < table.metadata.last_updated_ms - _CLOCKS_DIFFER_MS:
        raise HeadraceError(
            Kind.SINK_BUSY,
            f"the clock of this machine is behind the last commit of {table.location()}",
            "Correct the clock, or wait.",
        )


def commit(
    name: TableName,
    change: Transaction,
    position: Position,
    *,
    added: Sequence[DataFile] = (),
    removed: Sequence[DataFile] = (),
) -> None:
    """Commit a change of a table.

    Args:
        name: the database's table.
        change: what else is changed.
        position: the last change that the table has afterwards.
        added: data files that the table gets.
        removed: data files that it loses.

    Raises:
        HeadraceError: CONTINUITY where another program's commit came first.
    """
    table = table_of(change)
    check_writable(name, table)
    made = _add_snapshots(change, {OWN: position_text(position)}, added, removed)
    reaching_commit(name, "mirror_commit")
    try:
        change.commit_transaction()
    except (CommitFailedException, TableAlreadyExistsError) as error:
        # The library of a catalog may have sent the commit twice: the second one finds the first.
        if not _is_made(table, made):
            raise refused(name, table, error) from error
    except Exception:
        if not _is_made(table, made):
            raise
    reaching_commit(name, "mirror_committed")


def _add_snapshots(
    change: Transaction, note: dict[str, str], added: Sequence[DataFile], removed: Sequence[DataFile]
) -> int:
    """Add a snapshot, and one more where lists of files are to be joined; return the id of the last."""
    change.set_properties(note)
    update = change.update_snapshot(note)
    with update.overwrite() if removed else update.merge_append() as snapshot:
        for file in removed:
            snapshot.delete_data_file(file)
        for file in added:
            snapshot.append_data_file(file)
    table = table_of(change)
    before = table.current_snapshot()
    if removed and before is not None and len(before.manifests(table.io)) > _MOST_MANIFESTS:
        # An overwrite keeps every list, also those whose files are all gone; an append joins them.
        with change.update_snapshot(note).merge_append() as snapshot:
            pass
    return snapshot.snapshot_id


def refused(name: TableName, table: Table, error: Exception) -> HeadraceError:
    """Return the error of a commit that others preceded, after the table was opened."""
    present = present_table(table)
    since = snapshot_id(table)
    is_harmless = present is not None and find_other_commit(present, since, or_own=True) is None
    return files_joined(name, error) if is_harmless else other_writer(name, error)


def _is_made(table: Table, made: int) -> bool:
    """Tell whether a commit was made whose answer was lost."""
    present = present_table(table)
    return present is not None and present.snapshot_by_id(made) is not None


def present_table(table: Table) -> Table | None:
    """Return a table as its catalog has it now; None where it has none of this name any more."""
    try:
        return table.catalog.load_table(table.name())
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
