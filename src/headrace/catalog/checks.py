"""Check by queries what the catalog alone does not show: functions, labels, nested objects.

`access` checks privileges, `binding` all that needs no query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.catalog.binding import BindingFinding
from headrace.catalog.table import Catalog, Table
from headrace.errors import Kind, LocatedError, Place
from headrace.model.names import TableName, name_arrays
from headrace.model.suggestion import meant
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql
from headrace.schema.raw import RAW_REMEDY, called_functions
from headrace.schema.tree import ColumnField, Field, Filter, IndexSpec, JoinField, own_fields, related_fields

_OWN_SCHEMA = "pg_catalog"
"""The schema in which a reading session looks up names without a schema."""

_VOLATILITY = read_sql(__package__, "function_volatility")

Function = tuple[str, str]
"""Schema and name."""


def function_findings(session: ReadSession, specs: Iterable[IndexSpec]) -> list[BindingFinding]:
    """Warn of functions in raw filters that may not give the same value at every reading; at most one query.

    Only the declaration of a user's function is known: one that is declared IMMUTABLE is believed, even if it
    reads a table.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    calls = dict.fromkeys(_find_calls(specs))
    if not calls:
        return []
    volatilities = _read_volatilities(session, sorted({function for _, function in calls}))
    return [
        _function_finding(condition, function, is_volatile=volatilities[function])
        for condition, function in calls
        if function in volatilities
    ]


def _find_calls(specs: Iterable[IndexSpec]) -> Iterator[tuple[Filter, Function]]:
    """Yield the functions that raw filters call, unless a filter is accepted as it is."""
    for spec in specs:
        for _, condition in spec.conditions():
            if condition.raw and not condition.unsafe:
                for schema, name in called_functions(condition.raw):
                    yield condition, (schema or _OWN_SCHEMA, name)


def _read_volatilities(session: ReadSession, names: Sequence[Function]) -> dict[Function, bool]:
    """Read which functions may give another value at another reading, and whether they are VOLATILE."""
    rows = session.query(_VOLATILITY, tuple(map(list, zip(*names, strict=True))))
    return {
        (schema, name): is_volatile
        for schema, name, is_volatile, is_stable in rows
        # PostgreSQL's own stable functions depend on settings that a reading session pins.
        if is_volatile or (is_stable and schema != _OWN_SCHEMA)
    }


def _function_finding(condition: Filter, name: Function, *, is_volatile: bool) -> BindingFinding:
    shown = name[1] if name[0] == _OWN_SCHEMA else ".".join(name)
    if is_volatile:
        problem = f"the function {shown} is VOLATILE: it may give another value at every reading"
        remedy = f"If it does not, declare it IMMUTABLE. {RAW_REMEDY}"
        return BindingFinding("error", LocatedError(Kind.BINDING, condition.place, problem, remedy))
    problem = f"the function {shown} is STABLE: what else it reads leads to no document when it changes"
    remedy = "If it reads nothing else, declare it IMMUTABLE; `unsafe: true` beside the filter accepts it."
    return _warning(condition.place, problem, remedy)


_LABELS = read_sql(__package__, "enum_labels")


def read_labels(session: ReadSession, enums: Iterable[str]) -> dict[str, list[str]]:
    """Read the labels of enums in their order, by `Column.base_type`.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    return dict(session.query(_LABELS, (sorted(enums),)))


def label_findings(
    session: ReadSession, specs: Iterable[IndexSpec], catalog: Catalog
) -> list[BindingFinding]:
    """Warn of variants that no row can have, and of labels that are missing in the order; one query.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    wanted: list[tuple[ColumnField, str]] = []
    for spec in specs:
        if spec.table in catalog:
            wanted += _enum_fields(catalog[spec.table], spec.fields, catalog)
    if not wanted:
        return []
    labels = read_labels(session, {name for _, name in wanted})
    return [finding for field, name in wanted for finding in _compare_labels(field, labels.get(name, []))]


def _enum_fields(
    table: Table, fields: Iterable[Field], catalog: Catalog
) -> Iterator[tuple[ColumnField, str]]:
    for field in own_fields(fields):
        if isinstance(field, ColumnField) and field.variants and not field.transforms:
            column = table.column(field.column)
            if column is not None and column.category == "E":
                yield field, column.base_type
        elif isinstance(field, JoinField) and field.table in catalog:
            yield from _enum_fields(catalog[field.table], field.fields, catalog)


def _compare_labels(field: ColumnField, labels: list[str]) -> Iterator[BindingFinding]:
    unknown = [variant for variant in field.variants if variant not in labels]
    if unknown:
        problem = f"the enum has no label {unknown[0]!r}, which the variants name"
        yield _warning(field.place, problem, meant(unknown[0], labels))
    left_out = [label for label in labels if label not in field.variants]
    if left_out:
        problem = f"the variants leave out {', '.join(map(repr, left_out))}: no place in their order"
        yield _warning(field.place, problem, "Name every label, the lowest first.")


Link = tuple[TableName, str]
"""A table, and its column that refers to the parent row."""

_STATISTICS = read_sql(__package__, "fanouts")


@dataclass(frozen=True, slots=True)
class Fanout:
    """How many rows refer to one parent row.

    Attributes:
        usual: the average over all parents.
        most: the number at the most common parent.
    """

    usual: float
    most: float


def nested_findings(
    session: ReadSession, specs: Iterable[IndexSpec], catalog: Catalog, limits: Mapping[str, int]
) -> list[BindingFinding]:
    """Warn of documents that may hold more nested objects than the cluster accepts in one.

    Args:
        limits: `mapping.nested_objects.limit` of each index, by its name.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    known = [spec for spec in specs if spec.table in catalog]
    related = (field for spec in known for field in related_fields(spec.fields))
    lists = (field for field in related if isinstance(field, JoinField) and field.to_many)
    fanouts = read_fanouts(session, set(map(_link, lists)))
    findings = []
    for spec in known:
        counted = list(_count_rows(spec.fields, 1, fanouts, top=True))
        total = sum(count for _, count in counted)
        if total > limits[spec.name]:
            findings.append(
                _nested_finding(spec, total, limits[spec.name], max(counted, key=lambda pair: pair[1]))
            )
    return findings


def _nested_finding(
    spec: IndexSpec, total: float, limit: int, largest: tuple[JoinField, float]
) -> BindingFinding:
    join, count = largest
    problem = (
        f"a document of {spec.name} may hold about {total:,.0f} nested objects ({count:,.0f} of them "
        f"{join.key}, by the statistics of {join.table}); the cluster refuses one with more than {limit:,}"
    )
    remedy = (
        "Add a `limit` to the join, make its list plain objects with `options: {type: object}`, or raise "
        "mapping.nested_objects.limit in the index's settings_file."
    )
    return _warning(join.place, problem, remedy)


def _link(join: JoinField) -> Link:
    """Return the column that refers to the parent row; of several, the first."""
    if join.through is not None:
        return join.through.table, join.through.left_key
    return join.table, join.foreign_key[0]


def _count_rows(
    fields: Iterable[Field], parents: float, fanouts: Mapping[Link, Fanout], *, top: bool
) -> Iterator[tuple[JoinField, float]]:
    """Yield each list, and how many of its rows a large document holds.

    At the top level that is the number at the most common parent, below it the average.
    """
    for field in own_fields(fields):
        if not isinstance(field, JoinField):
            continue
        rows = parents
        if field.to_many:
            fanout = fanouts.get(_link(field), Fanout(0, 0))
            rows_each = fanout.most if top else fanout.usual
            rows = parents * (rows_each if field.limit is None else min(rows_each, field.limit))
            # Plain objects are no documents of their own in the index.
            if not field.scalar and dict(field.options).get("type", "nested") == "nested":
                yield field, rows
        yield from _count_rows(field.fields, rows, fanouts, top=top and not field.to_many)


def read_fanouts(session: ReadSession, links: set[Link]) -> dict[Link, Fanout]:
    """Read from the statistics how many rows refer to one parent row; nothing of columns without any.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    if not links:
        return {}
    ordered = sorted(links)
    columns = (*name_arrays([table for table, _ in ordered]), [column for _, column in ordered])
    fanouts = {}
    for schema, name, column, rows, distinct, top_share in session.query(_STATISTICS, columns):
        # Negative: a share of the rows, so that it stays right while the table grows.
        values = distinct if distinct > 0 else -distinct * rows
        usual = rows / values if values else 0.0
        fanouts[TableName(schema, name), column] = Fanout(usual, max(usual, top_share * rows))
    return fanouts


def _warning(place: Place, problem: str, remedy: str) -> BindingFinding:
    return BindingFinding("warning", LocatedError(Kind.BINDING, place, problem, remedy))
