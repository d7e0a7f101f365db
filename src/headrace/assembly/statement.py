"""Which statements read the documents of an index?

Every statement returns rows `(id, body)`; a body that is NULL says that there is no such document.
"""

from __future__ import annotations

from headrace.assembly.conditions import column_sql, row_conditions
from headrace.assembly.plan import DocumentPlan
from headrace.assembly.render import Alias, render_object
from headrace.catalog.comparison import cast_type, equal
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
    names = [f"k{number}" for number in range(len(plan.key))]
    typed = ", ".join(
        f"k.{name}::{cast_type(column)} AS {name}" for name, column in zip(names, plan.key, strict=True)
    )
    arrays = ", ".join(f"${number}::text[]" for number in range(1, len(names) + 1))
    listed = ", ".join(names)
    matches = " AND ".join(
        equal(column_sql(str(_ROOT), column), column, f"k.{name}", column)
        for name, column in zip(names, plan.key, strict=True)
    )
    root = f"{table_sql(plan.table.name)} AS {_ROOT}"
    row_id = _row_id(plan)
    key_id = id_expression(plan.key, [f"k.{name}" for name in names])
    return (
        f"WITH requested AS (SELECT {typed} FROM unnest({arrays}) AS k ({listed}))\n"
        f"SELECT {row_id}, {_body(plan)}\n"
        f"FROM (SELECT DISTINCT {listed} FROM requested) AS k JOIN {root} ON {matches}\n"
        f"UNION ALL\n"
        f"SELECT DISTINCT {key_id}, NULL FROM requested AS k\n"
        f"WHERE NOT EXISTS (SELECT FROM {root} WHERE {matches} AND {row_id} = {key_id})"
    )


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
