"""What SQL text finds the related rows of many parents, each beside the values that lead to it?

No statistics may make this slow: they are missing after a restore, and estimates of how many rows share a
key are wrong by orders of magnitude in large tables. So PostgreSQL is left one way only. Where an index
serves, each value is looked up by LATERAL. Where none does, the table is read once by FULL JOIN, which runs
only as a hash or merge join and never as one pass over the table for each value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from headrace.assembly.conditions import column_sql
from headrace.assembly.forms import is_served, is_single, leads_into
from headrace.assembly.plan import AggregateValue, Joined, Junction, RelatedValue, RelationPlan, columns_read
from headrace.assembly.render import Alias, filtered, order_terms, where
from headrace.catalog.comparison import as_stored, equal
from headrace.catalog.table import Column, Table
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as table_sql

_BARRIER = "OFFSET 0"
"""Keeps a subquery apart: what is asked of its rows outside would change how it is joined."""


def name_apart(table: Table, ending: str) -> str:
    """A name that no column of the table has."""
    prefix = "l"
    while any(column.name.startswith(prefix) for column in table.columns):
        prefix += "_"
    return prefix + ending


def column_list(columns: Iterable[Column], alias: Alias) -> str:
    """These columns of the row, each once, under their own names."""
    return ", ".join(dict.fromkeys(f"{alias}.{identifier(column.name)}" for column in columns))


@dataclass(frozen=True, slots=True)
class Links:
    """A parent's columns that lead to its related rows, and what they are called beside these."""

    above: tuple[Column, ...]
    names: tuple[str, ...]

    def of(self, alias: Alias | str) -> str:
        """Their list."""
        return ", ".join(f"{alias}.{name}" for name in self.names)

    def asked(self, parents: str, alias: Alias) -> str:
        """The values of all parents, each once, as a FROM item `k`; `parents` calls a parent `alias`."""
        values = (
            f"{column_sql(str(alias), column)} AS {name}"
            for column, name in zip(self.above, self.names, strict=True)
        )
        return f"(SELECT DISTINCT {', '.join(values)} FROM {parents}) AS k"

    def lead_to(self, group: str, alias: Alias) -> str:
        """The condition that a group belongs to a parent."""
        return " AND ".join(
            equal(f"{group}.{name}", column, column_sql(str(alias), column), column)
            for column, name in zip(self.above, self.names, strict=True)
        )


def links_of(relation: RelationPlan) -> Links:
    """Under names that do not meet the related rows' own."""
    names = (name_apart(relation.table, str(number)) for number in range(len(relation.above)))
    return Links(relation.above, tuple(names))


def related_rows(value: Joined, alias: Alias, links: Links, asked: str) -> str:
    """All related rows beside their links; of a limited list, or of a single object, the first ones.

    Args:
        alias: what a related row is called.
        asked: the links, each once, as a FROM item `k`.
    """
    relation, most = value.relation, _most(value)
    order = order_terms(value, alias) if isinstance(value, RelatedValue) else ""
    if relation.junction is not None:
        rows = _through(value, relation.junction, alias, links, asked)
    else:
        ours = [column for column, _ in relation.links]
        table = _Table.of(value, alias, ours)
        matches = [
            equal(column_sql(str(alias), ours), ours, f"k.{name}", theirs)
            for (ours, theirs), name in zip(relation.links, links.names, strict=True)
        ]
        if is_served(relation):
            end = _BARRIER if most is None else f"ORDER BY {order} LIMIT {most}"
            return _looked_up(asked, links, table, matches, end)
        rows = _read_once(asked, links, table, matches)
    if most is None:
        return rows
    place = name_apart(relation.table, "n")
    window = f"(PARTITION BY {links.of(alias)} ORDER BY {order})"
    numbered = f"SELECT {alias}.*, row_number() OVER {window} AS {place} FROM ({rows}) AS {alias}"
    return f"SELECT * FROM ({numbered}) AS {alias} WHERE {alias}.{place} <= {most}"


def _most(value: Joined) -> int | None:
    """How many related rows a parent shows at most, where there may be more."""
    match value:
        case RelatedValue(many=True, limit=int() as limit):
            return limit
        case RelatedValue(many=False, relation=relation) if not is_single(relation):
            return 1
        case _:
            return None


def _through(value: Joined, between: Junction, alias: Alias, links: Links, asked: str) -> str:
    """By way of a junction, which may name a row twice, also in two spellings; each row is found once."""
    left, right = column_sql("j", between.left), column_sql("j", between.right)
    junction = _Table("j", f"{table_sql(between.table.name)} AS j", (), f"{left} AS m, {right} AS r", "m")
    leads = [equal(left, between.left, f"k.{links.names[0]}", between.parent)]
    find = _looked_up if leads_into(between) else _read_once
    named = f"SELECT DISTINCT {links.of('j')}, j.r FROM ({find(asked, links, junction, leads)}) AS j"
    ends = Links((between.right,), (name_apart(value.relation.table, "r"),))
    [end] = ends.names
    meets = [equal(f"k.{end}", between.right, column_sql(str(alias), between.related), between.related)]
    find = _looked_up if as_stored(between.related, between.right) else _read_once
    table = _Table.of(value, alias, [between.related])
    found = find(f"(SELECT DISTINCT p.r AS {end} FROM p) AS k", ends, table, meets)
    met = equal("p.r", between.right, f"{alias}.{end}", between.right)
    every = f"SELECT {links.of('p')}, {alias}.* FROM p FULL JOIN ({found}) AS {alias} ON {met} {_BARRIER}"
    rows = (
        f"WITH p AS ({named}) SELECT * FROM ({every}) AS {alias} WHERE {_is_there(str(alias), table.proof)}"
    )
    if between.right.base_type == between.related.base_type:
        return rows
    once = f"{links.of(alias)}, {alias}.{identifier(between.related.name)}"
    return f"SELECT DISTINCT ON ({once}) * FROM ({rows}) AS {alias}"


@dataclass(frozen=True, slots=True)
class _Table:
    """A table in which rows are looked for.

    Attributes:
        source: what stands in FROM; it calls a row `alias`.
        conditions: that a row has to meet by itself.
        columns: the list of those that are read.
        proof: one of them that is not NULL in a row that is found.
    """

    alias: str
    source: str
    conditions: tuple[str, ...]
    columns: str
    proof: str

    @classmethod
    def of(cls, value: Joined, alias: Alias, met: list[Column]) -> Self:
        """The table of the relation; `met` are the columns by which a row is found."""
        source, conditions = filtered(value.relation, alias)
        columns = column_list([*met, *_read(value)], alias)
        return cls(str(alias), source, tuple(conditions), columns, identifier(met[0].name))


def _looked_up(asked: str, links: Links, table: _Table, matches: list[str], end: str = _BARRIER) -> str:
    """The rows of `table` that match each of `asked`, found one by one."""
    rows = f"SELECT {table.columns} FROM {table.source}{where([*matches, *table.conditions])} {end}"
    return (
        f"SELECT {links.of('k')}, {table.alias}.* FROM {asked} CROSS JOIN LATERAL ({rows}) AS {table.alias}"
    )


def _read_once(asked: str, links: Links, table: _Table, matches: list[str]) -> str:
    """The same from one reading of the whole table."""
    alias, conditions = table.alias, list(table.conditions)
    rows = table.source
    if conditions:
        rows = f"(SELECT {alias}.* FROM {rows}{where(conditions)}) AS {alias}"
    every = (
        f"SELECT {links.of('k')}, {table.columns} FROM {asked} FULL JOIN {rows} ON {' AND '.join(matches)}"
    )
    found = f"{_is_there(alias, links.names[0])} AND {_is_there(alias, table.proof)}"
    return f"SELECT * FROM ({every} {_BARRIER}) AS {alias} WHERE {found}"


def _is_there(alias: str, name: str) -> str:
    """That a row was joined; of a composite value IS NOT NULL would ask for every part of it."""
    return f"{alias}.{name} IS DISTINCT FROM NULL"


def _read(value: Joined) -> Iterator[Column]:
    """The columns of the related rows that are read above their set; some twice."""
    yield from value.relation.key
    match value:
        case RelatedValue():
            yield from (column for column, _ in value.order)
            yield from columns_read(value.members)
        case AggregateValue(column=Column() as column):
            yield column
