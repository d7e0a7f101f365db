"""Read and write what a Delta table's commits say of the mirror that made them: up to where it is complete.

The `deltalake` library writes a position as two `txn` actions, which a table keeps for good. A Spark session
writes one `txn` action alone; its commits have the position in their `userMetadata`, and the action says from
which version on to look for it. A commit without files copies the position to the two actions then, since the
log's clean-up removes old commits.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from headrace.errors import HeadraceError
from headrace.mirror.lake import files_joined, other_writer, reaching_commit
from headrace.mirror.net_changes import Position
from headrace.model.names import TableName

_LSN, _SEQUENCE = "headrace.commit_lsn", "headrace.commit_seq"
SPARK_VERSION = "headrace.spark_version"
"""The action of a session's commit: the version that it was to be; 0: the other actions have the position."""
_OWN = "headrace"
"""Stands in the information of each commit that a mirror makes."""
_NOTE = re.compile(r"headrace (?P<lsn>\d+)/(?P<sequence>\d+) [0-9a-f]{32}")
_USER_METADATA = "userMetadata"
_HARMLESS = frozenset(
    {"OPTIMIZE", "VACUUM START", "VACUUM END", "ADD FEATURE", "UPGRADE PROTOCOL", "SET TBLPROPERTIES"}
)
"""Commits that leave the rows."""


def properties(position: Position, text: str) -> CommitProperties:
    """Return what a commit of the library's says, with its `note`, and that it is not tried twice."""
    lsn, sequence = position
    return CommitProperties(
        custom_metadata={_OWN: text},
        # The library would put a second try after another writer's commit, whose rows may be newer.
        max_commit_retries=0,
        app_transactions=[
            Transaction(_LSN, lsn),
            Transaction(_SEQUENCE, sequence),
            Transaction(SPARK_VERSION, 0),
        ],
    )


def note(position: Position) -> str:
    """Return what a commit says of itself, a session's in its `userMetadata`; no other says the same."""
    lsn, sequence = position
    return f"headrace {lsn}/{sequence} {uuid.uuid4().hex}"


def read_position(delta: DeltaTable) -> Position | None:
    """Return the last change that a table has; None where no commit that the log still has says so."""
    # Its note may be any commit since that version: others join files after it.
    by_session = delta.transaction_version(SPARK_VERSION)
    if by_session:
        commits = delta.history(delta.version() - by_session + 1)
        notes = (_NOTE.fullmatch(str(commit.get(_USER_METADATA))) for commit in commits)
        return next(((int(noted["lsn"]), int(noted["sequence"])) for noted in notes if noted), None)
    lsn, sequence = (delta.transaction_version(name) for name in (_LSN, _SEQUENCE))
    return None if lsn is None or sequence is None else (int(lsn), int(sequence))


def keep_position(delta: DeltaTable, position: Position) -> None:
    """Copy a session's position to where the log's clean-up leaves it, in a commit without files.

    Raises:
        CommitFailedError: another commit was faster.
    """
    delta.create_write_transaction(
        [],
        "append",
        delta.schema(),
        partition_by=delta.metadata().partition_columns,
        commit_properties=properties(position, note(position)),
    )


def find_noted(delta: DeltaTable, text: str, since: int) -> int | None:
    """Return the version after `since` whose commit has this note; None where there is none."""
    noted = (
        int(commit["version"])
        for commit in _commits(delta, since)
        if text in {commit.get(_OWN), commit.get(_USER_METADATA)}
    )
    return next(noted, None)


def _commits(delta: DeltaTable, since: int) -> list[dict[str, Any]]:
    """Return the commits after the version `since`, the last one first."""
    commits = delta.history(delta.version() - since) if delta.version() > since else []
    return [commit for commit in commits if commit["version"] > since]


def find_other_commit(delta: DeltaTable, since: int) -> str | None:
    """Return what another program did to the rows after the version `since`; None: nothing."""
    version = delta.version()
    # Versions only grow: at a lower one somebody has put the table back, or made it again.
    if version < since:
        return f"version {version} is in the place of {since}"
    strange = (commit for commit in _changing(delta, since) if not _is_own(commit))
    return next((f"{commit.get('operation')}, version {commit['version']}" for commit in strange), None)


def _changing(delta: DeltaTable, since: int) -> list[dict[str, Any]]:
    """Return the commits after the version `since` that may have changed rows, the last one first."""
    return [
        commit
        for commit in _commits(delta, since)
        if _is_own(commit) or commit.get("operation") not in _HARMLESS
    ]


def refused(table: TableName, after: DeltaTable, since: int, error: Exception) -> HeadraceError:
    """Return the error of a commit that others preceded.

    Args:
        table: the database's table.
        after: the lake's, as it is now.
        since: the version that the commit was to follow; -1: the table was not there.
        error: what the commit ended with.
    """
    is_harmless = after.version() > since and not _changing(after, since)
    return files_joined(table, error) if is_harmless else other_writer(table, error)


def _is_own(commit: Mapping[str, Any]) -> bool:
    return _OWN in commit or _NOTE.fullmatch(str(commit.get(_USER_METADATA))) is not None


@contextlib.contextmanager
def committing(
    table: TableName, position: Position, since: int, reopen: Callable[[], DeltaTable]
) -> Iterator[CommitProperties]:
    """Turn the library's errors of a commit into Headrace's; yield what the commit is to say.

    Args:
        table: the database's table.
        position: the last change that it has then.
        since: the version that the commit is to follow; -1: there is no table yet.
        reopen: opens the lake's table as it is now.
    """
    text = note(position)
    reaching_commit(table, "mirror_commit")
    try:
        yield properties(position, text)
    except CommitFailedError as error:
        after = reopen()
        # One that was made, and whose answer was lost, was tried twice.
        if find_noted(after, text, since) is None:
            raise refused(table, after, since, error) from error
    reaching_commit(table, "mirror_committed")
