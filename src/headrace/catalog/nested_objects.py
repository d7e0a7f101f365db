"""Estimate from the database's statistics how many nested objects one document may hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.catalog.binding import BindingFinding
from headrace.catalog.table import Catalog
from headrace.errors import Kind
from headrace.model import TableName
from headrace.postgres.session import ReadSession
from headrace.schema.problems import LocatedError
from headrace.schema.tree import Field, IndexSpec, JoinField, ObjectField

Link = tuple[TableName, str]
"""A table, and its column that refers to the parent row."""

# A column that was never analysed has no row. Of a partitioned table there are rows for the whole tree.
_STATISTICS = """
SELECT s.schemaname::text, s.tablename::text, s.attname::text, greatest(c.reltuples, 0)::float8, s.n_distinct,
       coalesce(s.most_common_freqs[1], 0)::float8
FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (schema, name, attribute)
JOIN pg_stats s ON s.schemaname = wanted.schema AND s.tablename = wanted.name AND s.attname = wanted.attribute
JOIN pg_namespace n ON n.nspname = s.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = s.tablename
WHERE s.inherited = (c.relkind = 'p')
"""


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
    fanouts = _read(session, {link for spec in known for link in _links(spec.fields)})
    findings = []
    for spec in known:
        counted = list(_count_rows(spec.fields, 1, fanouts, top=True))
        total = sum(count for _, count in counted)
        if total > limits[spec.name]:
            findings.append(_finding(spec, total, limits[spec.name], max(counted, key=lambda pair: pair[1])))
    return findings


def _finding(spec: IndexSpec, total: float, limit: int, largest: tuple[JoinField, float]) -> BindingFinding:
    join, count = largest
    problem = (
        f"a document of {spec.name} may hold about {total:,.0f} nested objects ({count:,.0f} of them "
        f"{join.key}, by the statistics of {join.table}); the cluster refuses one with more than {limit:,}"
    )
    remedy = (
        "Add a `limit` to the join, make its list plain objects with `options: {type: object}`, or raise "
        "mapping.nested_objects.limit in the index's settings_file."
    )
    return BindingFinding("warning", LocatedError(Kind.BINDING, join.place, problem, remedy))


def _link(join: JoinField) -> Link:
    """Return the column that refers to the parent row; of several, the first."""
    if join.through is not None:
        return join.through.table, join.through.left_key
    return join.table, join.foreign_key[0]


def _links(fields: Iterable[Field]) -> Iterator[Link]:
    for field in fields:
        if isinstance(field, JoinField | ObjectField):
            yield from _links(field.fields)
        if isinstance(field, JoinField) and field.to_many:
            yield _link(field)


def _count_rows(
    fields: Iterable[Field], parents: float, fanouts: Mapping[Link, Fanout], *, top: bool
) -> Iterator[tuple[JoinField, float]]:
    """Yield each list, and how many of its rows a large document holds.

    At the top level that is the number at the most common parent, below it the average.
    """
    for field in fields:
        if isinstance(field, ObjectField):
            yield from _count_rows(field.fields, parents, fanouts, top=top)
        if not isinstance(field, JoinField):
            continue
        rows = parents
        if field.to_many:
            fanout = fanouts.get(_link(field), Fanout(0, 0))
            rows_each = fanout.most if top else fanout.usual
            rows = parents * (rows_each if field.limit is None else min(rows_each, field.limit))
            if dict(field.options).get("type", "nested") == "nested":
                yield field, rows
        yield from _count_rows(field.fields, rows, fanouts, top=top and not field.to_many)


def _read(session: ReadSession, links: set[Link]) -> dict[Link, Fanout]:
    if not links:
        return {}
    ordered = sorted(links)
    columns = (
        [table.schema for table, _ in ordered],
        [table.name for table, _ in ordered],
        [column for _, column in ordered],
    )
    fanouts = {}
    for schema, name, column, rows, distinct, top_share in session.query(_STATISTICS, columns):
        values = distinct if distinct > 0 else -distinct * rows
        usual = rows / values if values else 0.0
        fanouts[TableName(schema, name), column] = Fanout(usual, max(usual, top_share * rows))
    return fanouts
