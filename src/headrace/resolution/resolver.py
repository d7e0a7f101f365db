"""Resolve a batch of changes to document keys; the only module of this room that reads the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError, Kind, failures_of
from headrace.model.changes import Key, Op
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.quoting import table as quoted
from headrace.postgres.server_errors import is_refused_value
from headrace.postgres.session import ReadSession
from headrace.resolution.plan import ResolutionPlan, Route

_KEYS_PER_CHUNK = 5_000


@dataclass(frozen=True, slots=True)
class Touched:
    """The documents that a batch touches.

    Attributes:
        everything: indexes of which a truncate removes rows: every existing document may have changed, in
            addition to `keys`, which may be new.
        keys: pairs of an index and some root keys, as the database finds them; some twice, some without a row
            or without a change. The session is busy until they are exhausted.
    """

    everything: frozenset[str]
    keys: Iterator[tuple[str, list[Key]]]


class Resolver:
    """Resolves changes to document keys through one session that sees all of them; used from one thread.

    Args:
        session: reads what leads from a changed row to its documents.
        plan: how.
        unit_of: returns the id by which an error names an index.
    """

    def __init__(
        self, session: ReadSession, plan: ResolutionPlan, unit_of: Callable[[str], str] = str
    ) -> None:
        self._session = session
        self._plan = plan
        self._unit_of = unit_of

    def resolve(self, changes: pa.Table | pa.RecordBatch) -> Touched:
        """Return the touched documents. Memory holds the values that lead to them, and 5,000 keys.

        At most one query for each route of the plan, two where a label was renamed. Every transaction of
        `changes` must be visible to the session (decision 0012). When the keys are exhausted, all that they
        were read from is on the server's disk.

        Raises:
            HeadraceError: REPLICA_IDENTITY, where a change does not carry a column that leads to
                documents. From the iterator: SCHEMA_CHANGED, where a value does not fit the column's type
                any more; CONNECTION or DATABASE, from the session.
        """
        table = pa.Table.from_batches([changes]) if isinstance(changes, pa.RecordBatch) else changes
        everything, values = self._collect(table)
        return Touched(frozenset(everything), self._keys(values, table))

    def _keys(
        self, values: Mapping[Route, Mapping[Key, None]], changes: pa.Table
    ) -> Iterator[tuple[str, list[Key]]]:
        for route, lead in values.items():
            with failures_of(self._unit_of(route.index)):
                for keys in self._follow(route, list(lead), changes):
                    yield route.index, keys
        # Values of the change itself are in the log, and on disk; what a statement read may not be.
        if any(route.statement is not None for route in values):
            self._session.await_flush()  # if a crash undoes a row's move, the row leads to its old document

    def _collect(self, changes: pa.Table) -> tuple[set[str], dict[Route, dict[Key, None]]]:
        """Collect the indexes that a truncate touches, and the values for each route."""
        everything: set[str] = set()
        values: dict[Route, dict[Key, None]] = defaultdict(dict)
        for table, rows in tables_of(changes).items():
            routes = self._plan.routes.get(table, ())
            if routes and has_truncate(rows):
                # The rows are gone, so nothing says which documents they were in.
                everything |= {route.index for route in routes}
                rows = rows.filter(pc.not_equal(rows["op"], Op.TRUNCATE.value))  # noqa: PLW2901 - carry values
            # Routes of several indexes often read the same columns: the values are looked up once.
            for (columns, since, reads), same_routes in _by_columns(routes).items():
                found = dict.fromkeys(lead_values(rows_that_differ(rows, reads), table, columns, since))
                for route in same_routes:
                    values[route].update(found)
        return everything, values

    def _follow(self, route: Route, values: list[Key], changes: pa.Table) -> Iterator[list[Key]]:
        """Query a route; retry without old changes whose values do not fit their type, as a renamed label."""
        try:
            yield from self._query(route, values)
        except HeadraceError as error:
            if not is_refused_value(error):
                raise
        else:
            return
        # Older changes may hold a label of before; the index was read after them.
        late = changes.filter(pc.greater_equal(changes["_commit_lsn"], route.since))
        _, found = self._collect(late)
        try:
            yield from self._query(route, list(found.get(route, ())))
        except HeadraceError as error:
            if not is_refused_value(error):
                raise
            what = f"the log holds a value of {', '.join(route.columns)} that is none of its type any more"
            raise HeadraceError(
                Kind.SCHEMA_CHANGED,
                f"{what}: {error.cause}",
                "Start again: the documents that it leads to are built again.",
                f"{what}: {error.full_cause}",
            ) from error

    def _query(self, route: Route, values: list[Key]) -> Iterator[list[Key]]:
        if route.statement is None or not values:
            yield values
            return
        columns = [list(column) for column in zip(*values, strict=True)]
        found = self._session.stream(route.statement, columns, size=_KEYS_PER_CHUNK)
        with closing(found):
            while chunk := list(islice(found, _KEYS_PER_CHUNK)):
                # A root row whose key is NULL is no document.
                yield [key for key in chunk if None not in key]


_RouteColumns = tuple[tuple[str, ...], Lsn, frozenset[str] | None]


def _by_columns(routes: Iterable[Route]) -> dict[_RouteColumns, list[Route]]:
    """Group the routes that use the same columns of the changed rows."""
    found: dict[_RouteColumns, list[Route]] = defaultdict(list)
    for route in routes:
        found[route.columns, route.since, route.reads].append(route)
    return found


def tables_of(changes: pa.Table) -> dict[TableName, pa.Table]:
    """Group the rows by table; rows without a table are left out."""
    names = changes.select(["schema", "table"]).group_by(["schema", "table"]).aggregate([])
    result = {}
    for row in names.to_pylist():
        schema, table = row["schema"], row["table"]
        if table is not None:
            is_own = pc.and_(pc.equal(changes["schema"], schema), pc.equal(changes["table"], table))
            result[TableName(schema, table)] = changes.filter(is_own)
    return result


def has_truncate(rows: pa.Table) -> bool:
    """Return whether one of the rows is a truncate."""
    return bool(pc.any(pc.equal(rows["op"], Op.TRUNCATE.value)).as_py())


def rows_that_differ(rows: pa.Table, columns: frozenset[str] | None) -> pa.Table:
    """Leave out updates whose old row is known to hold the same in all of `columns`.

    An incomplete old row does not count for the columns that it lacks. With None, no update is left out.
    """
    if columns is None or not _may_hold(rows["before"], len(columns)):
        return rows
    # Inserts and deletes always count: they change whether the row is there.
    same = np.asarray(pc.equal(rows["op"], Op.UPDATE.value))
    for column in columns:
        before, had = _lookup(rows["before"], column)
        after, has = _lookup(rows["after"], column)
        equal = pc.fill_null(pc.equal(before, after), False)  # noqa: FBT003 - Arrow's name for it is as long
        nulls = pc.and_(pc.is_null(before), pc.is_null(after))
        same = same & had & has & np.asarray(pc.or_(equal, nulls))
    return rows.filter(pa.array(~same))


def _may_hold(side: pa.ChunkedArray, count: int) -> bool:
    """Return whether some row carries at least `count` columns on that side."""
    return any(bool((np.diff(np.asarray(maps.offsets)) >= count).any()) for maps in side.chunks)


def lead_values(rows: pa.Table, table: TableName, columns: tuple[str, ...], since: Lsn = 0) -> list[Key]:
    """Return the distinct values of `columns` in the rows' old and new sides, without those with a null.

    A column that is absent from one side of a change has the value of the other side. Outside of the old
    side's replica identity there is no column that leads anywhere (`required_columns`), and an unchanged
    TOAST value is absent from the new side.

    A change that committed before `since` (bytes) may lack a column and is left out then.

    Raises:
        HeadraceError: REPLICA_IDENTITY, where neither side of a change carries a column.
    """
    olds, news = [], []
    late = rows["_commit_lsn"].to_numpy() >= since
    for column in columns:
        before, had = _lookup(rows["before"], column)
        after, has = _lookup(rows["after"], column)
        if bool(np.any(~(had | has) & late)):
            raise _missing(table, column)
        olds.append(pc.if_else(pa.array(had), before, after))
        news.append(pc.if_else(pa.array(has), after, before))
    names = [str(number) for number in range(len(columns))]
    sides = [pa.Table.from_arrays(side, names=names) for side in (olds, news)]
    # A NULL equals no key, so it leads nowhere. Without threads the order is stable.
    distinct = pa.concat_tables(sides).drop_null().group_by(names, use_threads=False).aggregate([])
    return list(zip(*(distinct[name].to_pylist() for name in names), strict=True))


def _lookup(side: pa.ChunkedArray, column: str) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Find the column's value in each row, and whether the row carries it (a carried value may be null)."""
    maps = pa.concat_arrays(side.chunks) if side.num_chunks else pa.array([], side.type)
    offsets = np.asarray(maps.offsets)
    hits = np.flatnonzero(np.asarray(pc.equal(maps.keys, column)))
    # A sliced map shares the keys of the whole batch: hits outside of the slice are those of other rows.
    hits = hits[(hits >= offsets[0]) & (hits < offsets[-1])]
    places = np.full(len(maps), -1, dtype=np.int64)
    places[np.searchsorted(offsets, hits, side="right") - 1] = hits
    carried = places >= 0
    return maps.items.take(pa.array(places, mask=~carried)), carried


def _missing(table: TableName, column: str) -> HeadraceError:
    return HeadraceError(
        Kind.REPLICA_IDENTITY,
        f"a change of table {table} does not carry its column {column}, which leads to documents",
        f"Run headrace check for the replica identity that it needs, or ALTER TABLE {quoted(table)} "
        "REPLICA IDENTITY FULL, then reindex.",
    ).concerning(tables=[table])
