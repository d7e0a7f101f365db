"""Which statements read the documents of an index?

Those that read documents return rows `(id, body)`; a body that is NULL says that there is no such document.
Those that compare return less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from headrace.assembly.conditions import column_sql, row_conditions
from headrace.assembly.plan import DocumentPlan
from headrace.assembly.render import Alias, render_object
from headrace.catalog.comparison import cast_type, equal, is_foreign, operator, plain
from headrace.catalog.table import Column
from headrace.model import CtidRange
from headrace.postgres.quoting import table as table_sql

_ROOT = Alias(0)


def id_expression(key: tuple[Column, ...], parts: list[str]) -> str:
    """The document id as SQL, from the key's values as SQL expressions of the key's types."""
    texts = [f"{part}::text" for part in parts]
    if len(key) == 1:
        return texts[0]
    return " || ':' || ".join(f"replace(replace({text}, '%', '%25'), ':', '%3A')" for text in texts)


def keys_statement(plan: DocumentPlan) -> str:
    """The documents of requested keys; parameters: one text array for each part of the key.

    Each requested key that no row has, to the letter, also gives its id without a body: the row may be gone,
    or its key may be written differently now (`Bob` and `BOB` are one citext).
    """
    requested = _Requested.of(plan.key)
    matches = requested.matches
    root = f"{table_sql(plan.table.name)} AS {_ROOT}"
    row_id = _row_id(plan)
    key_id = id_expression(plan.key, [f"k.{name}" for name in requested.names])
    return (
        f"WITH {requested.rows}\n"
        f"SELECT {row_id}, {_body(plan)}\n"
        f"FROM (SELECT DISTINCT {requested.listed} FROM requested) AS k JOIN {root} ON {matches}\n"
        f"UNION ALL\n"
        f"SELECT DISTINCT {key_id}, NULL FROM requested AS k\n"
        f"WHERE NOT EXISTS (SELECT FROM {root} WHERE {matches} AND {row_id} = {key_id})"
    )


def presence_statement(plan: DocumentPlan) -> str:
    """Which of requested keys have a document; parameters as of `keys_statement`, rows `(id, stamp)`.

    The stamp is another one when the root row was written again, and only on it depends whether there is a
    document.
    """
    requested = _Requested.of(plan.key)
    root = f"{table_sql(plan.table.name)} AS {_ROOT}"
    return (
        f"WITH {requested.rows}\n"
        f"SELECT {_row_id(plan)}, {_ROOT}.xmin::text\n"
        f"FROM (SELECT DISTINCT {requested.listed} FROM requested) AS k JOIN {root} "
        f"ON {requested.matches}{_where(_live(plan))}"
    )


def digests_statement(plan: DocumentPlan, order: tuple[Column, ...], *, behind: bool, sampled: bool) -> str:
    """Id, length (bytes), digest and key of the documents next in the order of `order`, which is a key.

    Parameters: how many at most; with `sampled` the sample's seed and its `Sample.bound`; with `behind` a
    text for each column of `order`: only what comes behind them. Rows `(id, length, digest, text of the
    first column of `order`, …)`; the digest is the first 16 bytes of the document's SHA-256.
    """
    conditions = _live(plan)
    count = 2
    if sampled:
        conditions.append(f"{_lot(_row_id(plan), '$2')} < $3::bigint")
        count = 4
    if behind:
        conditions.append(_behind(order, count))
    texts = ", ".join(
        f"{column_sql(str(_ROOT), column)}::text AS o{number}" for number, column in enumerate(order)
    )
    listed = ", ".join(f"d.o{number}" for number in range(len(order)))
    document = f"convert_to({render_object(plan.members, _ROOT)}, 'UTF8')"
    return (
        f"SELECT d.id, octet_length(d.document), substr(sha256(d.document), 1, 16), {listed}\n"
        f"FROM (SELECT {_row_id(plan)} AS id, {document} AS document, {texts}\n"
        f"FROM {table_sql(plan.table.name)} AS {_ROOT}{_where(conditions)}\n"
        f"ORDER BY {', '.join(column_sql(str(_ROOT), column) for column in order)} LIMIT $1::int) AS d"
    )


def identities_statement(plan: DocumentPlan, *, listed: bool) -> str:
    """The ids of all documents, in buckets of a hash: see `headrace.assembly.identities`.

    Rows `(bucket, how many, sum of the hashes)`; with `listed` rows `(id)` of the buckets that the one
    parameter names, an array.
    """
    digest = "substr(sha256(convert_to(i.id, 'UTF8')), 1, 8)"
    root = f"{table_sql(plan.table.name)} AS {_ROOT}{_where(_live(plan))}"
    ids = (
        f"SELECT i.id, ('x' || encode({digest}, 'hex'))::bit(64)::bigint AS hash\n"
        f"FROM (SELECT {_row_id(plan)} AS id FROM {root}) AS i"
    )
    bucket = "((h.hash >> 48) & 65535)::int"
    if listed:
        return f"SELECT h.id FROM ({ids}) AS h WHERE {bucket} = ANY ($1::int[])"
    return f"SELECT {bucket}, count(*)::bigint, sum(h.hash)::text FROM ({ids}) AS h GROUP BY 1"


def range_statement(plan: DocumentPlan, part: CtidRange) -> str:
    """The live documents of a range of blocks; parameters: the first block, and the first one after it."""
    root = f"{table_sql(part.table or plan.table.name)} AS {_ROOT}"
    bounds = [f"{_ROOT}.ctid >= format('(%s,0)', $1::int8)::tid"]
    if part.last_block is not None:
        bounds.append(f"{_ROOT}.ctid < format('(%s,0)', $2::int8)::tid")
    conditions = " AND ".join([*bounds, *_live(plan)])
    return f"SELECT {_row_id(plan)}, {render_object(plan.members, _ROOT)}\nFROM {root}\nWHERE {conditions}"


def range_parameters(part: CtidRange) -> tuple[str, ...]:
    """The parameters of `range_statement`."""
    last = () if part.last_block is None else (str(part.last_block + 1),)
    return (str(part.first_block), *last)


def _row_id(plan: DocumentPlan) -> str:
    return id_expression(plan.key, [column_sql(str(_ROOT), column) for column in plan.key])


def _body(plan: DocumentPlan) -> str:
    document = render_object(plan.members, _ROOT)
    live = _live(plan)
    return f"CASE WHEN {' AND '.join(live)} THEN {document} END" if live else document


def _live(plan: DocumentPlan) -> list[str]:
    conditions = row_conditions(plan.table, plan.conditions, str(_ROOT))
    deletion = plan.deletion
    if deletion is not None:
        marker = column_sql(str(_ROOT), deletion.column)
        marked = marker if deletion.column.base_type == "bool" else f"{marker} IS NOT NULL"
        when = row_conditions(plan.table, deletion.conditions, str(_ROOT))
        conditions.append(f"({' AND '.join([marked, *when])}) IS NOT TRUE")
    return conditions


def first_statement(plan: DocumentPlan) -> str:
    """The first live documents in the order of the key; parameter: how many."""
    live = _live(plan)
    where = f"\nWHERE {' AND '.join(live)}" if live else ""
    order = ", ".join(column_sql(str(_ROOT), column) for column in plan.key)
    return (
        f"SELECT {_row_id(plan)}, {render_object(plan.members, _ROOT)}\n"
        f"FROM {table_sql(plan.table.name)} AS {_ROOT}{where}\nORDER BY {order}\nLIMIT $1::int8"
    )


@dataclass(frozen=True, slots=True)
class _Requested:
    """Keys that come as one text array for each part, as a table `requested` of typed columns.

    Attributes:
        names: of its columns.
        listed: these, for a list of columns.
        rows: the table, for a WITH.
        matches: the condition that a root row has the key `k`.
    """

    names: tuple[str, ...]
    listed: str
    rows: str
    matches: str

    @classmethod
    def of(cls, key: tuple[Column, ...]) -> Self:
        names = tuple(f"k{number}" for number in range(len(key)))
        typed = ", ".join(
            f"k.{name}::{cast_type(column)} AS {name}" for name, column in zip(names, key, strict=True)
        )
        arrays = ", ".join(f"${number}::text[]" for number in range(1, len(names) + 1))
        listed = ", ".join(names)
        matches = " AND ".join(
            equal(column_sql(str(_ROOT), column), column, f"k.{name}", column)
            for name, column in zip(names, key, strict=True)
        )
        rows = f"requested AS (SELECT {typed} FROM unnest({arrays}) AS k ({listed}))"
        return cls(names, listed, rows, matches)


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _lot(id_: str, seed: str) -> str:
    """`Sample.lot` as SQL."""
    drawn = f"substr(sha256(convert_to({seed}::text || {id_}, 'UTF8')), 1, 4)"
    return f"('x' || encode({drawn}, 'hex'))::bit(32)::bigint"


def _behind(order: tuple[Column, ...], first: int) -> str:
    """That a row comes behind the values of parameters, from `$first` on, in the order of these columns."""
    columns = [plain(column_sql(str(_ROOT), column), column) for column in order]
    values = [f"${first + number}::{cast_type(column)}" for number, column in enumerate(order)]
    if not any(is_foreign(column) for column in order):
        return f"({', '.join(columns)}) > ({', '.join(values)})"
    # An operator of a row comparison is one for all columns, so each is named for itself.
    signs = [(operator(column, ">"), operator(column, "=")) for column in order]
    condition = ""
    for column, value, (greater, same) in reversed(list(zip(columns, values, signs, strict=True))):
        condition = f"({column} {same} {value} AND {condition})" if condition else ""
        condition = f"({column} {greater} {value}{f' OR {condition}' if condition else ''})"
    leading = f"{columns[0]} {operator(order[0], '>=')} {values[0]}"
    return f"{leading} AND {condition}"
