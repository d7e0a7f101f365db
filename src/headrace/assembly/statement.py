"""Render the statements that read the documents of an index, or digests and ids of them.

Statements that read documents return rows `(id, body)`, or `(id, body, routing)` where a column decides on
the routing; a NULL body means that there is no such document. Statements for comparisons return less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from headrace.assembly.conditions import column_sql, row_conditions
from headrace.assembly.matching import column_list, render_objects, unused_name
from headrace.assembly.plan import DocumentPlan, RowCondition, columns_read
from headrace.assembly.read_strategies import FEW_KEYS, MANY_KEYS, ReadStrategy, strategy_for_keys, uses_sets
from headrace.assembly.render import Alias, render_object, where_clause
from headrace.catalog.comparison import cast_type, equal, is_foreign, operator
from headrace.catalog.table import Catalog, Column
from headrace.model.names import CtidRange, TableName
from headrace.postgres.quoting import table as table_sql
from headrace.schema.tree import Filter, IndexSpec

_ROOT = Alias("t0")
_TRIED_ROWS = 10


def id_expression(key: tuple[Column, ...], parts: list[str]) -> str:
    """Render the document id, from the key's values as SQL expressions of the key's types.

    Ids are compared byte by byte: some collations treat different texts as equal, and some do not support
    pattern search.
    """
    texts = [
        # Under a nondeterministic collation `=` takes two ids for one.
        f"{part}::text" + (' COLLATE "C"' if column.collation else "")
        for column, part in zip(key, parts, strict=True)
    ]
    if len(key) == 1:
        return texts[0]
    # `%` first, so that an encoded colon is not encoded again.
    return " || ':' || ".join(f"replace(replace({text}, '%', '%25'), ':', '%3A')" for text in texts)


def keys_statement(plan: DocumentPlan, strategy: ReadStrategy = ReadStrategy.CORRELATED) -> str:
    """Render the statement for the documents of requested keys.

    Parameters: one text array for each part of the key. Each requested key that no row has in this very
    spelling also returns its id without a body: the row may be gone, or its key may be written differently
    now (`Bob` and `BOB` are one citext).
    """
    requested, root, row_id = _Requested.of(plan), _root(plan), _row_id(plan)
    key_id = id_expression(plan.key, [f"k.{name}" for name in requested.names])
    roots = _roots(plan, strategy, requested.roots)
    return (
        f"WITH {', '.join([requested.rows, *roots.tables])}\n"
        f"SELECT {row_id}, {roots.body}{_routing_column(plan)}\n"
        f"FROM {roots.source}\n"
        # A key without a live row comes back without a body: a delete.
        "UNION ALL\n"
        f"SELECT DISTINCT {key_id}, NULL{', NULL' if plan.routing else ''} FROM requested AS k\n"
        f"WHERE NOT EXISTS (SELECT FROM {root} WHERE {requested.matches} AND {row_id} = {key_id})"
    )


def casts_statement(plan: DocumentPlan) -> str:
    """Render a statement that fails if a key cannot be cast to its type; parameters as `keys_statement`."""
    requested = _Requested.of(plan)
    counted = ", ".join(f"count({name})" for name in requested.names)
    return f"WITH {requested.rows}\nSELECT {counted} FROM requested"


def range_keys_statement(plan: DocumentPlan, part: CtidRange) -> str:
    """Render the statement for all keys of a range's root rows; parameters: `range_parameters`."""
    root, bounds = _range(plan, part)
    conditions = " AND ".join([bounds, *_key_conditions(plan)])
    texts = ", ".join(f"{column_sql(_ROOT, column)}::text" for column in plan.key)
    return f"SELECT {texts}\nFROM {root}\nWHERE {conditions}"


def sample_keys_statement(plan: DocumentPlan, part: CtidRange, count: int, *, live: bool) -> str:
    """Render the keys of the first `count` root rows of a range; parameters: `range_parameters`.

    Args:
        live: only of rows that are documents; a row that makes a condition fail then fails the statement.
    """
    conditions = "".join(f" AND {condition}" for condition in _live_conditions(plan)) if live else ""
    return f"{range_keys_statement(plan, part)}{conditions}\nLIMIT {count:d}"


def keys_statements(plan: DocumentPlan) -> dict[int, str]:
    """Return the statements that differ, by the number of keys from which each is the fastest."""
    found: dict[int, str] = {}
    for count in (1, FEW_KEYS + 1, MANY_KEYS):
        statement = keys_statement(plan, strategy_for_keys(plan, count))
        if statement not in list(found.values())[-1:]:
            found[count] = statement
    return found


def presence_statement(plan: DocumentPlan) -> str:
    """Render which of requested keys have a document; parameters as of `keys_statement`, rows `(id, stamp)`.

    The stamp changes when the root row is written; only the root row decides whether there is a document. It
    is NULL for a row that is no document. The conditions stand after the join: before it, a row that makes
    one fail would affect all other rows of a small table.
    """
    requested = _Requested.of(plan)
    passes, stamp = " AND ".join(_live_conditions(plan)), f"{_ROOT}.xmin::text"
    if passes:
        stamp = f"CASE WHEN {passes} THEN {stamp} END"
    return f"WITH {requested.rows}\nSELECT {_row_id(plan)}, {stamp}\nFROM {requested.roots}"


def conditions_statement(plan: DocumentPlan) -> str:
    """Render which conditions a root row meets; parameters as of `keys_statement`.

    One row for each requested key that a row has: whether each filter holds, in the plan's order, then
    whether the row counts as deleted (false without `soft_delete`).
    """
    requested = _Requested.of(plan)
    filters = [row_conditions(plan.table, (condition,), _ROOT) for condition in plan.conditions]
    columns = [f"({' AND '.join(rendered)}) IS TRUE" for rendered in filters]
    live = _live_conditions(replace(plan, conditions=()))
    columns.append(f"NOT ({' AND '.join(live)})" if live else "false")
    return f"WITH {requested.rows}\nSELECT {', '.join(columns)}\nFROM {requested.roots}"


def digests_statement(
    plan: DocumentPlan, order: tuple[Column, ...], strategy: ReadStrategy, *, after: bool, sampled: bool
) -> str:
    """Render id, length (bytes), digest and key of the next documents, in the order of a key's columns.

    Parameters: the number of documents at most; with `sampled` the sample's seed and its `Sample.bound`; with
    `after` a text for each column of `order`: only documents after these are read. Rows `(id, length,
    digest, text of the first column of `order`, …)`; the digest is the first 16 bytes of the document's
    SHA-256.
    """
    texts, listed = _order_texts(order), ", ".join(f"d.o{number}" for number in range(len(order)))
    next_ones = _next_rows(plan, order, _live_conditions(plan), after=after, sampled=sampled)
    ordered = _order_by(order)
    roots = _roots(plan, strategy, next_ones, live=True)
    source = f"{roots.source}\n{ordered}" if roots.tables else roots.source
    document = f"convert_to({roots.body}, 'UTF8')"
    return (
        f"{_with(roots)}"
        f"SELECT d.id, octet_length(d.document), substr(sha256(d.document), 1, 16), {listed}\n"
        f"FROM (SELECT {_row_id(plan)} AS id, {document} AS document, {texts}\n"
        f"FROM {source}) AS d"
    )


def ids_statement(plan: DocumentPlan, order: tuple[Column, ...], *, after: bool, sampled: bool) -> str:
    """Render as `digests_statement` all rows that have a key, whatever they hold: rows `(id, text, …)`."""
    next_ones = _next_rows(plan, order, [], after=after, sampled=sampled)
    return f"SELECT {_row_id(plan)}, {_order_texts(order)}\nFROM {next_ones}"


def _next_rows(
    plan: DocumentPlan, order: tuple[Column, ...], live: list[str], *, after: bool, sampled: bool
) -> str:
    """Render FROM and what follows it, with the parameters of `digests_statement`."""
    conditions = [*_key_conditions(plan), *live]
    count = 2
    if sampled:
        conditions.append(f"{_lot(_row_id(plan), '$2')} < $3::bigint")
        count = 4
    if after:
        conditions.append(_after(order, count))
    return f"{_root(plan)}{where_clause(conditions)}\n{_order_by(order)} LIMIT $1::int"


def _order_by(order: tuple[Column, ...]) -> str:
    return f"ORDER BY {', '.join(column_sql(_ROOT, column) for column in order)}"


def _order_texts(order: tuple[Column, ...]) -> str:
    return ", ".join(f"{column_sql(_ROOT, column)}::text AS o{number}" for number, column in enumerate(order))


def identities_statement(plan: DocumentPlan, *, listed: bool) -> str:
    """Render the ids of all documents, in buckets of a hash: see `headrace.assembly.digests`.

    Rows `(bucket, count, sum of the hashes)`; with `listed` rows `(id)` of the buckets in the one parameter,
    an array.
    """
    # Python computes the same for the ids of the cluster (`digests`).
    digest = "substr(sha256(convert_to(i.id, 'UTF8')), 1, 8)"
    root = f"{_root(plan)}{where_clause([*_key_conditions(plan), *_live_conditions(plan)])}"
    ids = (
        f"SELECT i.id, ('x' || encode({digest}, 'hex'))::bit(64)::bigint AS hash\n"
        f"FROM (SELECT {_row_id(plan)} AS id FROM {root}) AS i"
    )
    # `>>` repeats the sign of a bigint: the mask leaves 16 bits.
    bucket = "((h.hash >> 48) & 65535)::int"
    if listed:
        return f"SELECT h.id FROM ({ids}) AS h WHERE {bucket} = ANY ($1::int[])"
    return f"SELECT {bucket}, count(*)::bigint, sum(h.hash)::text FROM ({ids}) AS h GROUP BY 1"


def range_statement(
    plan: DocumentPlan, part: CtidRange, strategy: ReadStrategy = ReadStrategy.CORRELATED
) -> str:
    """Render the live documents of a range of blocks; parameters: `range_parameters`."""
    root, bounds = _range(plan, part)
    conditions = " AND ".join([bounds, *_key_conditions(plan), *_live_conditions(plan)])
    roots = _roots(plan, strategy, f"{root}\nWHERE {conditions}", live=True)
    return f"{_with(roots)}SELECT {_row_id(plan)}, {roots.body}{_routing_column(plan)}\nFROM {roots.source}"


def _range(plan: DocumentPlan, part: CtidRange) -> tuple[str, str]:
    """Render the FROM item, and the condition that a row lies in the range."""
    # Conditions on ctid alone give a TID range scan, which reads no other block (PostgreSQL 14).
    bounds = [f"{_ROOT}.ctid >= format('(%s,0)', $1::int8)::tid"]
    if part.last_block is not None:
        bounds.append(f"{_ROOT}.ctid < format('(%s,0)', $2::int8)::tid")
    return f"{table_sql(part.table or plan.table.name)} AS {_ROOT}", " AND ".join(bounds)


def _with(roots: _Roots) -> str:
    return f"WITH {', '.join(roots.tables)}\n" if roots.tables else ""


def range_parameters(part: CtidRange) -> tuple[str, ...]:
    """Return the parameters of `range_statement`: the first block, and the first one after the range."""
    last = () if part.last_block is None else (str(part.last_block + 1),)
    # Exclusive: every row of the last block lies before (next block, 0).
    return (str(part.first_block), *last)


def _root(plan: DocumentPlan) -> str:
    return f"{table_sql(plan.table.name)} AS {_ROOT}"


def _routing_column(plan: DocumentPlan) -> str:
    """Render the third column; where it is null or empty, the id decides on the shard."""
    if plan.routing is None:
        return ""
    return f", coalesce(nullif({column_sql(_ROOT, plan.routing)}::text, ''), {_row_id(plan)})"


def _row_id(plan: DocumentPlan) -> str:
    return id_expression(plan.key, [column_sql(_ROOT, column) for column in plan.key])


@dataclass(frozen=True, slots=True)
class _Roots:
    """Root rows and their documents.

    Attributes:
        tables: members of a WITH.
        source: the FROM item; it calls a root row t0.
        body: the document, NULL for a row that is none.
    """

    tables: tuple[str, ...]
    source: str
    body: str


def _roots(plan: DocumentPlan, strategy: ReadStrategy, source: str, *, live: bool = False) -> _Roots:
    """Render the documents of `source`, which calls a row of the root table t0.

    Args:
        live: whether it contains live rows only.
    """
    conditions = [] if live else _live_conditions(plan)
    passes = " AND ".join(conditions)
    if not uses_sets(plan, strategy):
        document = render_object(plan.members, _ROOT)
        return _Roots((), source, f"CASE WHEN {passes} THEN {document} END" if passes else document)
    routing = () if plan.routing is None else (plan.routing,)
    columns = column_list([*plan.key, *routing, *columns_read(plan.members)], _ROOT)
    mark = unused_name(plan.table, "live")
    if passes:
        columns += f", {passes} AS {mark}"
    rows = f"r0 AS (SELECT {columns}\nFROM {source})"
    condition = f" WHERE {_ROOT}.{mark}" if passes else ""
    tables, joins, document = render_objects(plan.members, _ROOT, "r0", strategy, condition)
    body = f"CASE WHEN {_ROOT}.{mark} THEN {document} END" if passes else document
    return _Roots((rows, *tables), f"r0 AS {_ROOT}{joins}", body)


def _live_conditions(plan: DocumentPlan) -> list[str]:
    conditions = row_conditions(plan.table, plan.conditions, _ROOT)
    deletion = plan.deletion
    if deletion is not None:
        marker = column_sql(_ROOT, deletion.column)
        marked = marker if deletion.column.base_type == "bool" else f"{marker} IS NOT NULL"
        when = row_conditions(plan.table, deletion.conditions, _ROOT)
        # NULL is not deleted.
        conditions.append(f"({' AND '.join([marked, *when])}) IS NOT TRUE")
    return conditions


def _key_conditions(plan: DocumentPlan) -> list[str]:
    """Render that a row has a key: a unique index allows NULL, and such a row is no document."""
    return [f"{column_sql(_ROOT, column)} IS NOT NULL" for column in plan.key if not column.not_null]


def first_statement(plan: DocumentPlan) -> str:
    """Render the first live documents in the order of the key; parameter: how many."""
    rows = _next_rows(plan, plan.key, _live_conditions(plan), after=False, sampled=False)
    return f"SELECT {_row_id(plan)}, {render_object(plan.members, _ROOT)}\nFROM {rows}"


@dataclass(frozen=True, slots=True)
class _Requested:
    """Requested keys, one text array for each part, as a table `requested` of typed columns.

    Attributes:
        names: of its columns.
        rows: the table, for a WITH.
        matches: the condition that a root row has the key `k`.
        roots: the FROM item of the root rows that have one of the keys.
    """

    names: tuple[str, ...]
    rows: str
    matches: str
    roots: str

    @classmethod
    def of(cls, plan: DocumentPlan) -> Self:
        key = plan.key
        names = tuple(f"k{number}" for number in range(len(key)))
        typed = ", ".join(
            f"k.{name}::{cast_type(column)} AS {name}" for name, column in zip(names, key, strict=True)
        )
        arrays = ", ".join(f"${number}::text[]" for number in range(1, len(names) + 1))
        listed = ", ".join(names)
        matches = " AND ".join(
            equal(column_sql(_ROOT, column), column, f"k.{name}", column)
            for name, column in zip(names, key, strict=True)
        )
        rows = f"requested AS (SELECT {typed} FROM unnest({arrays}) AS k ({listed}))"
        roots = f"(SELECT DISTINCT {listed} FROM requested) AS k JOIN {_root(plan)} ON {matches}"
        return cls(names, rows, matches, roots)


def _lot(id_: str, seed: str) -> str:
    """Render `Sample.lot`."""
    digest = f"substr(sha256(convert_to({seed}::text || {id_}, 'UTF8')), 1, 4)"
    return f"('x' || encode({digest}, 'hex'))::bit(32)::bigint"


def _after(order: tuple[Column, ...], first: int) -> str:
    """Render that a row comes after the values of the parameters from `$first` on."""
    columns = [column_sql(_ROOT, column) for column in order]
    values = [f"${first + number}::{cast_type(column)}" for number, column in enumerate(order)]
    if not any(is_foreign(column) for column in order):
        return f"({', '.join(columns)}) > ({', '.join(values)})"
    # A row comparison has one operator for all columns, but each column here needs its own.
    signs = [(operator(column, ">"), operator(column, "=")) for column in order]
    condition = ""
    for column, value, (greater, same) in reversed(list(zip(columns, values, signs, strict=True))):
        condition = f"({column} {same} {value} AND {condition})" if condition else ""
        condition = f"({column} {greater} {value}{f' OR {condition}' if condition else ''})"
    leading = f"{columns[0]} {operator(order[0], '>=')} {values[0]}"
    return f"{leading} AND {condition}"


def filter_probes(spec: IndexSpec, catalog: Catalog) -> Iterator[tuple[TableName, Filter, str]]:
    """Yield each filter whose table and column exist, with a query that applies it alone.

    The query is to be explained, not run: only the server knows its functions, operators and types. It
    rejects for example a value that does not fit its column's type, or an unknown name in a raw filter.
    """
    for name, filter_, condition in _lone_conditions(spec, catalog):
        yield name, filter_, f"SELECT 1 FROM {table_sql(name)} AS {_ROOT} WHERE {condition}"


def filter_trials(spec: IndexSpec, catalog: Catalog) -> Iterator[tuple[TableName, Filter, str]]:
    """Yield each raw filter whose table exists with queries that apply it to some rows, and to one of nulls.

    The queries are to be run: the server reads the body of most functions only when it executes them.
    """
    for name, filter_, condition in _lone_conditions(spec, catalog):
        if filter_.raw is not None:
            nulls = f"(SELECT (NULL::{table_sql(name)}).*)"  # the table may be empty
            for rows in (f"{table_sql(name)} AS {_ROOT} LIMIT {_TRIED_ROWS}", f"{nulls} AS {_ROOT}"):
                tried = f"SELECT ({condition}) AS tried FROM {rows}"
                yield name, filter_, f"SELECT count(r.tried) FROM ({tried}) AS r"


def _lone_conditions(spec: IndexSpec, catalog: Catalog) -> Iterator[tuple[TableName, Filter, str]]:
    """Yield each filter whose table and column exist, with its condition on a row that is called t0."""
    for name, filter_ in spec.conditions():
        if name not in catalog:
            continue
        table = catalog[name]
        column = None if filter_.column is None else table.column(filter_.column)
        if (column is None) == (filter_.raw is not None):
            conditions = row_conditions(table, (RowCondition(filter_, column),), _ROOT)
            yield name, filter_, " AND ".join(conditions)


def document_probe(plan: DocumentPlan) -> tuple[str, list[list[str]]]:
    """Render a statement that reads documents, to be explained, and its parameters: no key.

    Of both strategies it uses the one that demands more of the server: sets are joined where lookups only
    compare.
    """
    return keys_statement(plan, ReadStrategy.AGGREGATED), [[] for _ in plan.key]
