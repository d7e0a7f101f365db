"""What the mirror needs of a lake: tables whose every commit says up to where they have the log.

`delta.py` has such a lake; the rest of the mirror does not know which it writes to.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import quote

import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.mirror.files import DataFile
from headrace.mirror.keys import KeyIndex
from headrace.mirror.net_changes import REMOVAL, Ending, Key, Position
from headrace.mirror.python_values import arrow_values, python_rows
from headrace.model.failpoints import reach
from headrace.model.names import TableName
from headrace.model.table_pattern import format_table

POSITIONS = TableName("", "headrace_positions")
"""The table of the mirror's own, which stands beside the database's schemas."""
_T = TypeVar("_T")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class LakeTable(Protocol):
    """One table of a lake, as it was when it was opened.

    Each method that writes makes one commit, which no other writer's may precede: it raises HeadraceError
    (CONTINUITY) then. A commit whose answer was lost counts as made where the table has its position.
    """

    @property
    def name(self) -> TableName:
        """The database's table."""

    @property
    def uri(self) -> str:
        """Where it is."""

    @property
    def version(self) -> int:
        """The number by which readers name the table as its last commit left it."""

    @property
    def position(self) -> Position | None:
        """The last change that the table has; None where no mirror wrote it."""

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, with the metadata that they were written with: how it is partitioned, too."""

    def find_other_commit(self, since: int) -> str | None:
        """Return what another program did to the rows after the version `since`; None: nothing."""

    def merge(self, rows: pa.Table, key: Sequence[str], position: Position, ending: Ending = REMOVAL) -> None:
        """Write rows and end others by key.

        Args:
            rows: the table's columns, then `DELETED`. Where new rows replace others, at most one of each key.
            key: the key's columns.
            position: of the last change.
            ending: what becomes of rows that end.
        """

    def count_files(self, smaller_than: int) -> int:
        """Return how many files are smaller than some bytes, in the partition that has most of them."""

    def join_files(self, target_bytes: int) -> tuple[int, int]:
        """Join small files to such of about `target_bytes`; return how many became how many."""

    def remove_files(self, retention_seconds: float, noted: int | None = None) -> int:
        """Remove files that no version of the last `retention_seconds` has; return how many.

        Args:
            retention_seconds: how long versions can be read.
            noted: the version that is noted; those after it are not forgotten either.
        """

    def rows(self) -> Iterable[pa.RecordBatch]:
        """Yield all rows."""

    def rows_near(self, index: KeyIndex, columns: Sequence[str] | None) -> Iterable[pa.RecordBatch]:
        """Yield the rows of the files that have some keys, with columns (None: all) that have the key's."""


class Lake(Protocol):
    """Tables in a folder, an object store or a catalog."""

    @property
    def location(self) -> str:
        """Where they are."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What is raised where it cannot be read or written, OSError included."""

    @property
    def file_bytes(self) -> int:
        """The size of data files, about."""

    def path(self, table: TableName) -> str:
        """Return where `table` is."""

    def open(self, table: TableName) -> LakeTable | None:
        """Open a table; None where there is none."""

    def write(self, table: TableName, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write rows to files of `table`, which may not be there yet; no commit names them yet.

        Args:
            table: the table.
            schema: the rows' columns; their metadata say how it is partitioned (`partitions_of`).
            batches: the rows.

        Raises:
            HeadraceError: VALUE: a value cannot be a partition's; CONFIG: there are too many partitions.
            OSError: they cannot be written.
        """

    def remove(self, table: TableName, files: Iterable[DataFile]) -> None:
        """Remove files that `write` wrote and no commit names, as far as that is possible."""

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
        """Make `files` all that the table consists of, or add them to it, in one commit.

        It is partitioned as `schema` says from then on, as the files must be.

        Args:
            table: the table.
            schema: its columns; where files are added, those that it has.
            files: the files, which `write` wrote.
            position: of the last change.
            after: the table as it was when its rows were read, or the changes after its position chosen.
                None: there was none, and it is made; where files are added, as it is.
            adds: whether the files that are there stay.

        Raises:
            HeadraceError: CONTINUITY where another mirror has written it since.
        """


def known_position(table: LakeTable) -> Position:
    """Return the last change that a table has.

    Raises:
        HeadraceError: CONTINUITY where no mirror wrote it.
    """
    if table.position is None:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the lake's table {table.name} was not written by a mirror",
            f"Remove {table.uri}, or give the mirror another location.",
        )
    return table.position


def look(
    table: LakeTable,
    key: Sequence[str],
    keys: Sequence[Key],
    columns: Sequence[str],
    ending: Ending = REMOVAL,
) -> dict[Key, dict[str, Any]]:
    """Return the values of `columns` in a table's rows with these keys that have not ended, by key.

    Raises:
        HeadraceError: CONTINUITY: one of them is not there.
    """
    kinds = [table.schema.field(name).type for name in key]
    values = [arrow_values(part, kind) for part, kind in zip(zip(*keys, strict=True), kinds, strict=True)]
    index = KeyIndex(pa.table(values, names=[*key]), key)
    wanted = [*key, *(name for name in columns if name not in key)]
    found: dict[Key, dict[str, Any]] = {}
    read = wanted if ending.live is None else [*wanted, ending.live[0]]
    for batch in table.rows_near(index, read):
        rows = batch.filter(pa.array(index.find(batch) >= 0))
        rows = rows.filter(ending.is_live(rows))
        for row in python_rows(rows.select(wanted)):
            found[tuple(row[name] for name in key)] = row
    if len(found) < len(keys):
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the lake's table {table.name} lacks an updated row: another program may have removed it",
            "Unless the mirror reads the table again by itself, stop it and run "
            f"`headrace mirror verify {format_table(table.name)} --repair`.",
        )
    return found


def opened(lake: Lake, name: TableName) -> LakeTable:
    """Open a table that a lake must have.

    Raises:
        HeadraceError: CONTINUITY where it is gone.
    """
    table = lake.open(name)
    if table is None:
        raise HeadraceError(
            Kind.CONTINUITY, f"the lake's table {name} is gone", "Start `headrace mirror`: it loads it again."
        )
    return table


def check_unwritten(table: TableName, before: LakeTable | None, now: LakeTable | None) -> None:
    """Make sure that no other mirror, which may have been thought dead, has written a table meanwhile.

    Commits that leave the position, as those that join files do, leave the rows.

    Raises:
        HeadraceError: CONTINUITY.
    """
    # Positions are compared, not versions: commits that join files leave all rows.
    found, known = (None if table is None else table.position for table in (now, before))
    if found != known:
        raise other_writer(table, f"it has the log up to {found}, and had it up to {known}")


def other_writer(table: TableName, error: Exception | str) -> HeadraceError:
    """Return the error of a commit that another program's commit preceded."""
    return HeadraceError(
        Kind.CONTINUITY,
        f"another program has written the lake's table {table} meanwhile: {error}",
        "Let one mirror alone write a location; then start it again.",
    )


def reaching_commit(table: TableName, name: Literal["mirror_commit", "mirror_committed"]) -> None:
    """Reach a commit's failpoint, where it is one of the database's tables."""
    if table != POSITIONS:
        reach(name)


def files_joined(table: TableName, error: Exception | str) -> HeadraceError:
    """Return the error of a commit that a commit preceded which left all rows: it may be made again."""
    return HeadraceError(
        Kind.SINK_BUSY, f"another program has rewritten files of the lake's table {table} meanwhile: {error}"
    )


@contextlib.contextmanager
def reaching(lake: Lake) -> Iterator[None]:
    """Turn the errors of a lake that does not answer into Headrace's.

    Raises:
        HeadraceError: SINK_UNREACHABLE; DISK, where a folder's disk is full.
    """
    try:
        yield
    except lake.errors as error:
        _check_room(lake, error)
        raise HeadraceError(
            Kind.SINK_UNREACHABLE,
            f"the lake at {lake.location} cannot be read or written: {first_line(error)}",
            "Credentials of an object store stand in the environment: see docs/guides/mirror.md.",
        ) from error


def first_line(error: Exception) -> str:
    """Return what an error says in its first line."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def check_answers(lake: Lake, error: Exception) -> None:
    """Make sure that one of a lake's errors, met at one table, is no error of the lake as a whole.

    Raises:
        HeadraceError: SINK_UNREACHABLE; DISK, where a folder's disk is full.
    """
    _check_room(lake, error)
    with reaching(lake):
        positions = lake.open(POSITIONS)
        for _ in () if positions is None else positions.rows():
            pass


def trying_again(lake: Lake, work: Callable[[], _T]) -> _T:
    """Do some work at one table; once more where it fails and the lake as a whole answers.

    It may answer again since then: only what fails twice is the table's.

    Raises:
        HeadraceError: SINK_UNREACHABLE; DISK, where a folder's disk is full.
    """
    try:
        return work()
    except lake.errors as error:
        check_answers(lake, error)
        return work()


def _check_room(lake: Lake, error: Exception) -> None:
    # Libraries in Rust have errors of their own, which end with the system's number.
    is_told = any(f"(os error {number})" in str(error) for number in _FULL)
    if is_told or getattr(error, "errno", None) in _FULL:
        raise HeadraceError(Kind.DISK, f"the disk of {lake.location} is full", "Make room.") from error


def folder_name(name: str) -> str:
    """Return a folder's name for a database name; the bytes of other characters stand as `~HH`.

    No reader of a lake's tables decodes it: `%` and blanks are read differently by different ones.
    """
    if name.casefold() == POSITIONS.name:
        # whatever lies in the folder of the mirror's own table is removed as left behind
        return f"~{ord(name[0]):02X}{name[1:]}"
    # Two characters are not encoded by URLs.
    return quote(name, safe="").replace("~", "%7E").replace(".", "%2E").replace("%", "~")
