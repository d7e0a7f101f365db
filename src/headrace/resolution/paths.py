"""Find the paths from every table to the documents of an index, as data. Pure.

Each place where a table stands in an index's tree (root, join at any depth, junction, aggregate) has one
path: the columns of the changed row that lead upwards, and the hops from there to the root.

Why this never misses (the whole argument: decision 0021). A document depends on a chain of rows, from
the changed row up to the root. The changed row's own link is known from the change, before and after. The
hops above are read later than the change, from current state. If none of their links has changed in between,
the read finds the root. If one has, take the earliest such change: it is in the stream, in the same
transaction or a later one, its own old values give the link as it was, and the chain above it is shorter. So
by induction some resolution touches the root, and each of them reads a state that includes the first change.
Filters, orders and limits are ignored: a superset of documents is correct.

A row may be linked by columns of its parent that are no key (`references`). They count as read there: the
parent's own change leads to the document by its key, so their old values are not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from headrace.catalog.table import Catalog, Column, find_columns, find_table
from headrace.catalog.usage import own_columns
from headrace.errors import Kind, LocatedError, Place
from headrace.model.names import TableName
from headrace.model.units import quantity
from headrace.schema.tree import AggregateField, Field, Filter, IndexSpec, JoinField, ObjectField


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a path: a lookup in a table.

    Attributes:
        table: where rows are looked up.
        match: the columns that equal the values of the step before.
        lead: the columns whose values lead to the next step.
    """

    table: TableName
    match: tuple[Column, ...]
    lead: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Path:
    """The way from a changed row to the root rows of an index.

    Attributes:
        index: the index's name.
        field: the place in the document, dotted; empty for the root.
        table: whose changes start here.
        lead: the changed row's columns whose old and new values count.
        hops: from the changed row's parent to the root; the last one leads to the root's key.
        reads: the changed row's columns that the document depends on at this place, including `lead`; None
            where they are unknown, because a condition is the user's own SQL.
    """

    index: str
    field: str
    table: TableName
    lead: tuple[Column, ...]
    hops: tuple[Hop, ...] = ()
    reads: frozenset[str] | None = None


def find_paths(spec: IndexSpec, catalog: Catalog) -> Iterator[Path]:
    """Find all paths of one index.

    Raises:
        HeadraceError: SCHEMA, with the place, for a table or column that the catalog does not have and for
            keys that do not fit together.
    """
    key = _columns(catalog, spec.table, spec.primary_key, spec.place)
    deletion = spec.soft_delete
    filters = spec.filters if deletion is None else (*spec.filters, *deletion.when)
    marker = () if deletion is None else (deletion.column,)
    # Another routing value moves the document to another shard, even where no field shows that column.
    routing = () if spec.routing is None else (spec.routing,)
    read = _reads(filters, spec.primary_key, marker, routing, own_columns(spec.fields))
    root = Path(spec.name, "", spec.table, key, reads=read)
    yield root
    yield from _paths_below(spec.fields, root, key, catalog)


def _paths_below(
    fields: Iterable[Field], parent: Path, parent_key: tuple[Column, ...], catalog: Catalog
) -> Iterator[Path]:
    for field in fields:
        match field:
            case ObjectField():
                yield from _paths_below(field.fields, parent, parent_key, catalog)
            case JoinField(kind="belongs_to"):
                key = _columns(catalog, field.table, field.primary_key, field.place)
                link_columns = _columns(catalog, parent.table, field.column, field.place)
                reads = _field_reads(field, field.primary_key)
                child = _child_path(parent, field, key, link_columns, reads=reads)
                yield child
                yield from _paths_below(field.fields, child, key, catalog)
            case JoinField():
                key = _columns(catalog, field.table, field.primary_key, field.place)
                *junction, child = _related_paths(parent, parent_key, key, field, catalog)
                yield from (*junction, child)
                yield from _paths_below(field.fields, child, key, catalog)
            case AggregateField():
                names = field.primary_key or find_table(catalog, field.table, field.place).primary_key
                key = _columns(catalog, field.table, names, field.place)
                yield from _related_paths(parent, parent_key, key, field, catalog)


def _related_paths(
    parent: Path,
    parent_key: tuple[Column, ...],
    key: tuple[Column, ...],
    field: JoinField | AggregateField,
    catalog: Catalog,
) -> Iterator[Path]:
    """Yield the junction's path, if there is one, and then the related table's."""
    if field.through is None:
        link_columns = _columns(catalog, field.table, field.foreign_key, field.place)
        # The parent's column that the foreign key names, which need not be its key.
        referred = _columns(catalog, parent.table, field.references, field.place) or parent_key
        names = [*field.foreign_key, *(column.name for column in key)]
        yield _child_path(parent, field, link_columns, referred, reads=_field_reads(field, names))
        return
    through = field.through
    left, right = _columns(catalog, through.table, (through.left_key, through.right_key), field.place)
    reads = _reads(through.filters, (through.left_key, through.right_key))
    referred = _columns(catalog, parent.table, filter(None, [through.left_references]), field.place)
    junction = _child_path(parent, field, (left,), referred or parent_key, table=through.table, reads=reads)
    yield junction
    end = _columns(catalog, field.table, filter(None, [through.right_references]), field.place) or key
    related_reads = _field_reads(field, [column.name for column in (*key, *end)])
    yield _child_path(junction, field, end, (right,), field=junction.field, reads=related_reads)


def _child_path(
    parent: Path,
    join: JoinField | AggregateField,
    lead: tuple[Column, ...],
    match: tuple[Column, ...],
    *,
    reads: frozenset[str] | None,
    table: TableName | None = None,
    field: str | None = None,
) -> Path:
    if len(lead) != len(match) or not lead:
        raise LocatedError(
            Kind.SCHEMA,
            join.place,
            f"{quantity(len(lead), 'column')} of {table or join.table} for {len(match)} of {parent.table}",
            "Name as many columns as the key has.",
        )
    return Path(
        index=parent.index,
        field=field or ".".join(filter(None, (parent.field, join.key))),
        table=table or join.table,
        lead=lead,
        # The hop to the parent comes first: a statement climbs from the changed row to the root.
        hops=(Hop(parent.table, match, parent.lead), *parent.hops),
        reads=reads,
    )


def _field_reads(field: JoinField | AggregateField, links: Iterable[str]) -> frozenset[str] | None:
    """Return the columns of a related row that a document reads: links, and what is shown or counted."""
    if isinstance(field, AggregateField):
        return _reads(field.filters, links, () if field.column is None else (field.column,))
    return _reads(field.filters, links, (term.column for term in field.order_by), own_columns(field.fields))


def _reads(filters: Iterable[Filter], *names: Iterable[str]) -> frozenset[str] | None:
    columns = [filter_.column for filter_ in filters]
    known = [column for column in columns if column is not None]
    # A raw condition may read any column: then every update counts.
    return None if len(known) < len(columns) else frozenset(chain(known, *names))


def _columns(catalog: Catalog, table: TableName, names: Iterable[str], place: Place) -> tuple[Column, ...]:
    return find_columns(find_table(catalog, table, place), names, place)
