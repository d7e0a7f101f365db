"""From where does a changed row lead to which documents? The paths, as data; pure.

For every place where a table stands in an index's tree (root, join at any depth, junction, aggregate) there
is one path: which of the changed row's own columns lead upwards, and the hops from there to the root.

Why this never misses (the whole argument: docs/decisions/0021). A document
depends on a chain of rows, from the changed row up to the root. The changed row's own link is known from
the change, before and after. The hops above are read later than the change, from current state. If none of
their links has changed in between, the reading finds the root. If one has, take the earliest such change:
it is in the stream, in the same transaction or a later one, its own old values give the link as it was, and
the chain above it is shorter. So by induction some resolution touches the root, and each one reads a state
that includes the first change. Filters, orders and limits are ignored: a superset of documents is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from headrace.catalog.table import Catalog, Column
from headrace.catalog.usage import own_columns
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.schema.tree import (
    AggregateField,
    Field,
    Filter,
    IndexSpec,
    JoinField,
    ObjectField,
    Place,
    Through,
)


@dataclass(frozen=True, slots=True)
class Hop:
    """The rows of `table` whose `match` columns equal the values at hand, and their `lead` columns."""

    table: TableName
    match: tuple[Column, ...]
    lead: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Path:
    """From a changed row to the root rows of an index.

    Attributes:
        index: the index's name.
        field: the place in the document, dotted; empty for the root.
        table: whose changes start here.
        lead: the changed row's columns whose old and new values count.
        hops: from the changed row's parent to the root; the last one leads to the root's key.
        reads: the changed row's columns that the document depends on at this place, `lead` among them; None
            where that is not known, because a condition is the user's own SQL.
    """

    index: str
    field: str
    table: TableName
    lead: tuple[Column, ...]
    hops: tuple[Hop, ...] = ()
    reads: frozenset[str] | None = None


def find_paths(spec: IndexSpec, catalog: Catalog) -> Iterator[Path]:
    """All paths of one index.

    Raises:
        HeadraceError: SCHEMA, with the place, for a table or column that the catalog does not have and for
            keys that do not fit together.
    """
    key = _columns(catalog, spec.table, spec.primary_key, spec.place)
    deletion = spec.soft_delete
    filters = spec.filters if deletion is None else (*spec.filters, *deletion.when)
    marker = () if deletion is None else (deletion.column,)
    routing = () if spec.routing is None else (spec.routing,)
    read = _reads(filters, spec.primary_key, marker, routing, own_columns(spec.fields))
    root = Path(spec.name, "", spec.table, key, reads=read)
    yield root
    yield from _below(spec.fields, root, key, catalog)


def _below(
    fields: Iterable[Field], parent: Path, parent_key: tuple[Column, ...], catalog: Catalog
) -> Iterator[Path]:
    for one in fields:
        match one:
            case ObjectField():
                yield from _below(one.fields, parent, parent_key, catalog)
            case JoinField(kind="belongs_to"):
                key = _columns(catalog, one.table, one.primary_key, one.place)
                holders = _columns(catalog, parent.table, one.column, one.place)
                child = _child(parent, one, key, holders, reads=_reads_of(one, one.primary_key))
                yield child
                yield from _below(one.fields, child, key, catalog)
            case JoinField():
                key = _columns(catalog, one.table, one.primary_key, one.place)
                *junction, child = _related(parent, parent_key, key, one, catalog)
                yield from (*junction, child)
                yield from _below(one.fields, child, key, catalog)
            case AggregateField():
                names = one.primary_key or _table_key(catalog, one.table, one.place)
                key = _columns(catalog, one.table, names, one.place)
                yield from _related(parent, parent_key, key, one, catalog)
            case _:
                pass


def _related(
    parent: Path,
    parent_key: tuple[Column, ...],
    key: tuple[Column, ...],
    one: JoinField | AggregateField,
    catalog: Catalog,
) -> Iterator[Path]:
    """The junction's path, if there is one, and then the related table's."""
    if one.through is None:
        holders = _columns(catalog, one.table, one.foreign_key, one.place)
        names = [*one.foreign_key, *(column.name for column in key)]
        yield _child(parent, one, holders, parent_key, reads=_reads_of(one, names))
        return
    through = one.through
    left, right = _junction_columns(catalog, through, one.place)
    reads = frozenset({through.left_key, through.right_key})
    between = _child(parent, one, (left,), parent_key, table=through.table, reads=reads)
    yield between
    reads_of_it = _reads_of(one, [column.name for column in key])
    yield _child(between, one, key, (right,), field=between.field, reads=reads_of_it)


def _child(
    parent: Path,
    one: JoinField | AggregateField,
    lead: tuple[Column, ...],
    match: tuple[Column, ...],
    *,
    reads: frozenset[str] | None,
    table: TableName | None = None,
    field: str | None = None,
) -> Path:
    if len(lead) != len(match) or not lead:
        raise HeadraceError(
            Kind.SCHEMA,
            f"{one.place}: {len(lead)} columns of {table or one.table} meet {len(match)} of {parent.table}",
            "Name as many columns as the key has.",
        )
    return Path(
        index=parent.index,
        field=field or ".".join(filter(None, (parent.field, one.key))),
        table=table or one.table,
        lead=lead,
        hops=(Hop(parent.table, match, parent.lead), *parent.hops),
        reads=reads,
    )


def _reads_of(one: JoinField | AggregateField, links: Iterable[str]) -> frozenset[str] | None:
    """What a document reads of a related row: the columns that link it, and what is shown or counted."""
    if isinstance(one, AggregateField):
        return _reads(one.filters, links, () if one.column is None else (one.column,))
    return _reads(one.filters, links, (term.column for term in one.order_by), own_columns(one.fields))


def _reads(filters: Iterable[Filter], *names: Iterable[str]) -> frozenset[str] | None:
    columns = [one.column for one in filters]
    known = [column for column in columns if column is not None]
    return None if len(known) < len(columns) else frozenset(chain(known, *names))


def _junction_columns(catalog: Catalog, through: Through, place: Place) -> tuple[Column, Column]:
    left, right = _columns(catalog, through.table, (through.left_key, through.right_key), place)
    return left, right


def _table_key(catalog: Catalog, table: TableName, place: Place) -> tuple[str, ...]:
    if table not in catalog:
        raise HeadraceError(Kind.SCHEMA, f"{place}: there is no table {table}", "Correct its name.")
    return catalog[table].primary_key


def _columns(catalog: Catalog, table: TableName, names: Iterable[str], place: Place) -> tuple[Column, ...]:
    if table not in catalog:
        raise HeadraceError(Kind.SCHEMA, f"{place}: there is no table {table}", "Correct its name.")
    columns = []
    for name in names:
        column = catalog[table].column(name)
        if column is None:
            raise HeadraceError(
                Kind.SCHEMA, f"{place}: table {table} has no column {name}", "Correct the column's name."
            )
        columns.append(column)
    return tuple(columns)
