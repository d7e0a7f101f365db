"""Which paths start at a changed table, and what must the log carry of its old rows?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.catalog.table import Catalog
from headrace.model import Lsn, TableName
from headrace.resolution.paths import Path, find_paths
from headrace.resolution.render import path_statement
from headrace.schema.tree import IndexSpec


@dataclass(frozen=True, slots=True)
class Route:
    """What is done with the values of a changed row's columns.

    Attributes:
        statement: leads them to the root's keys; None where they are the root's key.
        reads: the columns that the documents depend on at this place; an update whose old row is known, and
            which changes none of them, leads nowhere. None: every update counts.
        since: a change whose commit record begins before this place (bytes) may lack a column, because its
            table had another shape then; the index's documents were read after it.
    """

    index: str
    columns: tuple[str, ...]
    statement: str | None
    reads: frozenset[str] | None = None
    since: Lsn = 0


@dataclass(frozen=True, slots=True)
class ResolutionPlan:
    """The routes by the name under which a table's changes arrive; picklable."""

    routes: dict[TableName, tuple[Route, ...]]


@dataclass(frozen=True, slots=True)
class RequiredColumns:
    """The columns that a table's old rows must carry in the log.

    Attributes:
        columns: in the order in which they were found, each once.
        why: where they lead, for people.
    """

    columns: tuple[str, ...]
    why: str


def plan_resolution(
    specs: Iterable[IndexSpec], catalog: Catalog, since: Mapping[str, Lsn] | None = None
) -> ResolutionPlan:
    """The plan for all indexes.

    Args:
        since: `Route.since` of each index, where it has one.

    Raises:
        HeadraceError: SCHEMA, see `find_paths`.
    """
    routes: dict[TableName, dict[Route, Route]] = {}
    for path in _all_paths(specs, catalog):
        begin = (since or {}).get(path.index, 0)
        way = Route(path.index, _names(path), path_statement(path), since=begin)
        for name in _arriving_as(path.table, catalog):
            found = routes.setdefault(name, {})
            found[way] = replace(
                way, reads=_both(found[way].reads, path.reads) if way in found else path.reads
            )
    return ResolutionPlan({name: tuple(found.values()) for name, found in routes.items()})


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """What two places of a document read that one way leads to: a tag's name, and how many tags there are."""
    return None if one is None or other is None else one | other


def required_columns(specs: Iterable[IndexSpec], catalog: Catalog) -> dict[TableName, RequiredColumns]:
    """For each table, what a replica identity must cover so that resolution never misses.

    The root's key, a child's foreign key, a junction's left key, the key of a row that others point at. A
    row's other columns need no old value: a document is read anew, not patched.

    Raises:
        HeadraceError: SCHEMA, see `find_paths`.
    """
    found: dict[TableName, dict[str, None]] = {}
    reasons: dict[TableName, dict[str, None]] = {}
    for path in _all_paths(specs, catalog):
        found.setdefault(path.table, {}).update(dict.fromkeys(_names(path)))
        reasons.setdefault(path.table, {})[_reason(path)] = None
    return {
        table: RequiredColumns(tuple(columns), "; ".join(reasons[table])) for table, columns in found.items()
    }


def _all_paths(specs: Iterable[IndexSpec], catalog: Catalog) -> Iterable[Path]:
    for spec in specs:
        yield from find_paths(spec, catalog)


def _names(path: Path) -> tuple[str, ...]:
    return tuple(column.name for column in path.lead)


def _reason(path: Path) -> str:
    columns = ", ".join(_names(path))
    if not path.hops:
        return f"{columns} is the document's key in {path.index}"
    return f"{columns} leads to {path.hops[0].table} for {path.index}"


def _arriving_as(table: TableName, catalog: Catalog) -> set[TableName]:
    """Its own name, its partitions', and those of the partitioned tables that it is a part of."""
    leaves = set(catalog[table].partitions)
    parents = {
        name
        for name, one in catalog.tables.items()
        if table in one.partitions or (leaves and leaves <= set(one.partitions))
    }
    return {table, *leaves, *parents}
