"""Read units of a table's rows into files: the work of a load, which any process can do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.mirror.columns import fitted
from headrace.mirror.files import DataFile
from headrace.mirror.lake import Lake
from headrace.mirror.modes import LoadMoment
from headrace.mirror.tables import LOCK_SECONDS, MirroredTable
from headrace.model.names import CtidRange, TableName
from headrace.postgres.copying import RowSession
from headrace.snapshot.reading import read_part

CONNECTIONS = 2
"""So many units are read at once."""
_BATCH_BYTES = 8 << 20


class RewrittenError(HeadraceError):
    """The rows of a table moved while they were read: it was truncated, or rewritten."""


@contextlib.contextmanager
def reading_rows(name: TableName) -> Iterator[None]:
    """Tell the only gap that the reading of rows meets from those of the lake and of the log.

    Raises:
        RewrittenError: in its place.
    """
    try:
        yield
    except HeadraceError as error:
        if error.kind is not Kind.CONTINUITY:
            raise
        cause = f"the table {name} was truncated, or rewritten, while it was read"
        raise RewrittenError(error.kind, cause, "Nothing to do: it is read again.") from error


@dataclass(frozen=True, slots=True)
class LoadUnit:
    """Some ranges of a table, whose rows become files of their own; picklable.

    Attributes:
        url: the database.
        snapshot: the id of an exported snapshot, in which the rows are read.
        table: the table, without what `catalog` says.
        schema: the columns of the lake's table.
        moment: of the snapshot.
        ranges: where the rows stand.
    """

    url: str
    snapshot: str
    table: MirroredTable
    schema: pa.Schema
    moment: LoadMoment
    ranges: tuple[CtidRange, ...]


@dataclass(frozen=True, slots=True)
class LoadedUnit:
    """What became of a unit.

    Attributes:
        files: the files that have its rows, as the unit's snapshot sees them.
        told: which values did not fit, and are NULL.
    """

    files: tuple[DataFile, ...]
    told: tuple[str, ...] = ()


UnitLoader = Callable[[Lake, Iterator[LoadUnit]], Iterator[LoadedUnit]]
"""Calls `load_unit` for each unit, some at once, and yields each as it is done, in any order."""


def load_unit(lake: Lake, unit: LoadUnit) -> LoadedUnit:
    """Write the rows of a unit to files.

    Raises:
        HeadraceError: CONTINUITY, a table was rewritten meanwhile; CONNECTION, DATABASE, VALUE.
        OSError: the files cannot be written.
    """
    with RowSession(unit.url, snapshot=unit.snapshot, lock_seconds=LOCK_SECONDS) as session:
        told: list[str] = []
        read = read_rows(session, unit.table, unit.ranges, tell=told.append)
        rows = (fitted(unit.table.rules.loaded(batch, unit.moment), unit.schema) for batch in read)
        try:
            files = lake.write(unit.table.name, unit.schema, rows)
        except HeadraceError as error:
            raise (error if error.kind is not Kind.VALUE else _explain(session, unit) or error) from error
    return LoadedUnit(tuple(files), tuple(told))


def _explain(session: RowSession, unit: LoadUnit) -> HeadraceError | None:
    """Return the error of the first rows with a value that does not fit, by their key; None: all fit."""
    explained = map(unit.table.explain_unfit, read_rows(session, unit.table.in_texts, unit.ranges))
    return next((error for error in explained if error is not None), None)


def load_in_threads(
    lake: Lake,
    units: Iterable[LoadUnit],
    load: Callable[[Lake, LoadUnit], LoadedUnit] = load_unit,
    connections: int = CONNECTIONS,
) -> Iterator[LoadedUnit]:
    """Load units of a table with several connections; yield each when it is done.

    Where one fails, or the caller breaks off, the files of all are removed.
    """
    wanted = [*units]
    with ThreadPoolExecutor(connections, "headrace load") as threads:
        loading = [threads.submit(load, lake, unit) for unit in wanted]
        try:
            for done in as_completed(loading):
                yield done.result()
        except BaseException:
            # Whoever breaks off need not wait for units that nobody has begun.
            threads.shutdown(cancel_futures=True)
            read = [one.result() for one in loading if not one.cancelled() and one.exception() is None]
            lake.remove(wanted[0].table.name, [file for loaded in read for file in loaded.files])
            raise


def read_rows(
    session: RowSession,
    table: MirroredTable,
    ranges: Iterable[CtidRange],
    conditions: Sequence[str] = (),
    tell: Callable[[str], object] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """Yield a table's rows as the lake has them.

    Args:
        session: in a snapshot.
        table: the table.
        ranges: where the rows stand.
        conditions: SQL that they satisfy.
        tell: is told which values did not fit, and are NULL.

    Raises:
        RewrittenError: the rows moved meanwhile.
        HeadraceError: CONNECTION, DATABASE, VALUE.
    """
    selection = table.selection(*conditions)
    with reading_rows(table.name):
        for range_ in ranges:
            for batch in read_part(session, selection, range_, table.read_schema, _BATCH_BYTES):
                yield table.in_lake(batch, tell)
