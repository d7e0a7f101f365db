"""Plan the routes that start at each table, and the columns that old rows must have in the log. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from headrace.catalog.comparison import cast_type, equal, plain, same_text
from headrace.catalog.table import Catalog, Column
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as table_sql
from headrace.resolution.paths import Path, find_paths
from headrace.schema.tree import IndexSpec


@dataclass(frozen=True, slots=True)
class Route:
    """What is done with the values of a changed row's columns.

    Attributes:
        index: the index's name.
        columns: the changed row's columns.
        statement: leads their values to the root's keys; None where they are the root's key.
        reads: the columns that the documents depend on at this place; an update whose old row is known, and
            which changes none of them, touches nothing. None: every update counts.
        since: a change whose commit record begins before this position (bytes) may lack a column, because its
            table had other columns then; the index's documents were read after it.
    """

    index: str
    columns: tuple[str, ...]
    statement: str | None
    reads: frozenset[str] | None = None
    since: Lsn = 0


@dataclass(frozen=True, slots=True)
class ResolutionPlan:
    """The routes, by the name under which a table's changes arrive; picklable."""

    routes: dict[TableName, tuple[Route, ...]]


@dataclass(frozen=True, slots=True)
class RequiredColumns:
    """The columns that a table's old rows must have in the log.

    Attributes:
        columns: in the order in which they were found, each once.
        why: where they lead, for messages.
    """

    columns: tuple[str, ...]
    why: str


def plan_resolution(
    specs: Iterable[IndexSpec],
    catalog: Catalog,
    since: Mapping[str, Lsn] | None = None,
    every_update: Collection[str] = (),
) -> ResolutionPlan:
    """Plan resolution for all indexes.

    Args:
        specs: the indexes.
        catalog: with all of their tables.
        since: `Route.since` of each index, where it has one.
        every_update: indexes for which an update of a root row counts whatever it changes.

    Raises:
        HeadraceError: SCHEMA, see `find_paths`.
    """
    # Keyed by the route without `reads`: places with one statement share it, and what they all read counts.
    routes: dict[TableName, dict[Route, Route]] = {}
    for path in _all_paths(specs, catalog):
        begin = (since or {}).get(path.index, 0)
        reads = None if path.index in every_update and not path.hops else path.reads
        route = Route(path.index, _names(path), path_statement(path), since=begin)
        for name in _arriving_as(path.table, catalog):
            by_route = routes.setdefault(name, {})
            read = _union(by_route[route].reads, reads) if route in by_route else reads
            by_route[route] = replace(route, reads=read)
    return ResolutionPlan({name: tuple(by_route.values()) for name, by_route in routes.items()})


def _union(first: frozenset[str] | None, second: frozenset[str] | None) -> frozenset[str] | None:
    """Combine what two places of a document with the same route read: a tag's name, and the count of tags."""
    return None if first is None or second is None else first | second


def required_columns(specs: Iterable[IndexSpec], catalog: Catalog) -> dict[TableName, RequiredColumns]:
    """Return, for each table, what a replica identity must cover so that resolution never misses.

    The root's key, a child's foreign key, a junction's left key, the key of a row that others reference. A
    row's other columns need no old value: a document is read again, not patched.

    Raises:
        HeadraceError: SCHEMA, see `find_paths`.
    """
    columns_by_table: dict[TableName, dict[str, None]] = {}
    reasons: dict[TableName, dict[str, None]] = {}
    for path in _all_paths(specs, catalog):
        columns_by_table.setdefault(path.table, {}).update(dict.fromkeys(_names(path)))
        reasons.setdefault(path.table, {})[_reason(path)] = None
    return {
        table: RequiredColumns(tuple(columns), "; ".join(reasons[table]))
        for table, columns in columns_by_table.items()
    }


def _all_paths(specs: Iterable[IndexSpec], catalog: Catalog) -> Iterable[Path]:
    return chain.from_iterable(find_paths(spec, catalog) for spec in specs)


def _names(path: Path) -> tuple[str, ...]:
    return tuple(column.name for column in path.lead)


def _reason(path: Path) -> str:
    columns = ", ".join(_names(path))
    if not path.hops:
        return f"{columns} is the document's key in {path.index}"
    return f"{columns} leads to {path.hops[0].table} for {path.index}"


def _arriving_as(table: TableName, catalog: Catalog) -> set[TableName]:
    """Return the names under which changes arrive: its own, its partitions', and partitioned parents'."""
    leaves = set(catalog[table].partitions)
    parents = {
        name
        for name, table_ in catalog.tables.items()
        if table in table_.partitions or (leaves and leaves <= set(table_.partitions))
    }
    # A leaf that is detached still has rows in the log.
    return {table, *leaves, *parents}


def path_statement(path: Path) -> str | None:
    """Render the path's statement, or return None where the changed row's own values are the root's key.

    Its parameters are one text array for each column of `path.lead`, its rows the texts of a root key.
    A hop whose table would only confirm the values is left out.
    """
    values = tuple((f"v.v{number}::{cast_type(own)}", own) for number, own in enumerate(path.lead, 1))
    joins: list[str] = []
    for number, hop in enumerate(path.hops, 1):
        # Superset is enough: a key without a row becomes a delete of what is not there.
        if hop.match == hop.lead and all(map(same_text, [column for _, column in values], hop.lead)):
            continue
        alias = f"h{number}"
        conditions = " AND ".join(
            equal(_column_sql(alias, column), column, sql, typed)
            for column, (sql, typed) in zip(hop.match, values, strict=True)
        )
        joins.append(f"JOIN {table_sql(hop.table)} AS {alias} ON {conditions}")
        values = tuple((_column_sql(alias, column), column) for column in hop.lead)
    if not joins:
        return None
    numbers = range(1, len(path.lead) + 1)
    arrays = ", ".join(f"${number}::text[]" for number in numbers)
    names = ", ".join(f"v{number}" for number in numbers)
    # As texts: assembly casts them back, and whether two keys are equal is decided by the database.
    selected = ", ".join(f"{sql}::text" for sql, _ in values)
    return "\n".join([f"SELECT DISTINCT {selected}", f"FROM unnest({arrays}) AS v ({names})", *joins])


def _column_sql(alias: str, column: Column) -> str:
    return plain(f"{alias}.{identifier(column.name)}", column)
