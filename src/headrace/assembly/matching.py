"""Render SQL that reads the related rows of many parents at once.

Bottom up, each relation adds two members to a WITH: the related rows of all parents, each beside the parent's
values that lead to it (its links), and the result of each group of them. The groups are joined to the parents
by the links; parents with the same links share one group. That join is a FULL JOIN, which adds no row: the
links of every group come from its parents.

The plan must not depend on statistics: they are missing after a restore, and estimates of how many rows share
a key are wrong by orders of magnitude in large tables. So PostgreSQL is left only one way. Where an index
serves, each value is looked up by LATERAL. Where none does, the table is read once by FULL JOIN, which runs
only as a hash or merge join and never as one pass over the table for each value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

from headrace.assembly.conditions import column_sql
from headrace.assembly.plan import (
    AggregateValue,
    Joined,
    Junction,
    Member,
    RelatedValue,
    RelationPlan,
    columns_read,
    joined_values,
)
from headrace.assembly.read_strategies import ReadStrategy, is_served, is_single, leads_into, reads_as_set
from headrace.assembly.render import (
    Alias,
    aggregate_expression,
    below,
    list_expression,
    order_terms,
    render_object,
    render_related,
    table_source,
    where_clause,
)
from headrace.catalog.comparison import as_stored, equal, same_text
from headrace.catalog.table import Column, Table
from headrace.postgres.quoting import identifier

_BARRIER = "OFFSET 0"
"""An optimization fence: conditions outside of a subquery would change how it is joined."""


def unused_name(table: Table, ending: str) -> str:
    """Return a name that no column of the table has."""
    prefix = "l"
    # A prefix that no column has: every ending makes a free name.
    while any(column.name.startswith(prefix) for column in table.columns):
        prefix += "_"
    return prefix + ending


def column_list(columns: Iterable[Column], alias: Alias) -> str:
    """List these columns of the row, each once, under their own names."""
    return ", ".join(dict.fromkeys(f"{alias}.{identifier(column.name)}" for column in columns))


@dataclass(frozen=True, slots=True)
class Links:
    """A parent's columns that lead to its related rows, and their names beside the related rows.

    Attributes:
        above: the parent's columns.
        names: their names beside the related rows.
    """

    above: tuple[Column, ...]
    names: tuple[str, ...]

    def of(self, alias: str) -> str:
        """List the links' names."""
        return ", ".join(f"{alias}.{name}" for name in self.names)

    def parents_links(self, parents: str, alias: Alias) -> str:
        """Render the links of all parents, each once, as a FROM item `k`; `parents` calls one `alias`."""
        values = (
            f"{column_sql(alias, column)} AS {name}"
            for column, name in zip(self.above, self.names, strict=True)
        )
        return f"(SELECT DISTINCT {', '.join(values)} FROM {parents}) AS k"

    def lead_to(self, group: str, alias: Alias) -> str:
        """Render the condition that a group belongs to a parent."""
        return " AND ".join(
            equal(f"{group}.{name}", column, column_sql(alias, column), column)
            for column, name in zip(self.above, self.names, strict=True)
        )


def links_of(relation: RelationPlan) -> Links:
    """Return the relation's links, under names that differ from the related rows' own."""
    names = (unused_name(relation.table, str(number)) for number in range(len(relation.above)))
    return Links(relation.above, tuple(names))


def related_rows(value: Joined, alias: Alias, links: Links, parents_links: str) -> str:
    """Render all related rows beside their links; of a limited list, or of a single object, the first ones.

    Args:
        value: what the rows become.
        alias: what a related row is called.
        links: the links' names.
        parents_links: the links, each once, as a FROM item `k`.
    """
    relation, limit = value.relation, _row_limit(value)
    order = order_terms(value, alias) if isinstance(value, RelatedValue) else ""
    if relation.junction is not None:
        rows = _through(value, relation.junction, alias, links, parents_links)
    else:
        ours = [column for column, _ in relation.links]
        table = _Table.of(value, alias, ours)
        matches = [
            equal(column_sql(alias, ours), ours, f"k.{name}", theirs)
            for (ours, theirs), name in zip(relation.links, links.names, strict=True)
        ]
        if is_served(relation):
            end = _BARRIER if limit is None else f"ORDER BY {order} LIMIT {limit}"
            return _by_lookup(parents_links, links, table, matches, end)
        rows = _by_full_join(parents_links, links, table, matches)
    if limit is None:
        return rows
    place = unused_name(relation.table, "n")
    window = f"(PARTITION BY {links.of(alias)} ORDER BY {order})"
    numbered = f"SELECT {alias}.*, row_number() OVER {window} AS {place} FROM ({rows}) AS {alias}"
    return f"SELECT * FROM ({numbered}) AS {alias} WHERE {alias}.{place} <= {limit}"


def _row_limit(value: Joined) -> int | None:
    """Return how many related rows a parent shows at most, where there may be more."""
    match value:
        case RelatedValue(many=True, limit=int() as limit):
            return limit
        case RelatedValue(many=False, relation=relation) if not is_single(relation):
            return 1
        case _:
            return None


def _through(value: Joined, through: Junction, alias: Alias, links: Links, parents_links: str) -> str:
    """Render the rows behind a junction, each once.

    A junction may name a row twice, also in two spellings.
    """
    left, right, related = through.left, through.right, through.related
    columns = f"{column_sql('j', left)} AS m, {column_sql('j', right)} AS r"
    source, conditions = table_source(through, "j")
    junction = _Table("j", source, tuple(conditions), columns, "m")
    leads = [equal(column_sql("j", left), left, f"k.{links.names[0]}", through.parent)]
    find = _by_lookup if leads_into(through) else _by_full_join
    named = f"SELECT DISTINCT {links.of('j')}, j.r FROM ({find(parents_links, links, junction, leads)}) AS j"
    end = unused_name(value.relation.table, "r")
    ends, table = Links((right,), (end,)), _Table.of(value, alias, [related])
    meets = [equal(f"k.{end}", right, column_sql(alias, related), related)]
    find = _by_lookup if as_stored(related, right) else _by_full_join
    found = find(f"(SELECT DISTINCT p.r AS {end} FROM p) AS k", ends, table, meets)
    met = equal("p.r", right, f"{alias}.{end}", right)
    all_rows = f"SELECT {links.of('p')}, {alias}.* FROM p FULL JOIN ({found}) AS {alias} ON {met} {_BARRIER}"
    exists = _exists(alias, table.proof)
    rows = f"WITH p AS ({named}) SELECT * FROM ({all_rows}) AS {alias} WHERE {exists}"
    # The DISTINCT above has joined equal values; of another type or collation two may meet the same row.
    if same_text(right, related):
        return rows
    once = f"{links.of(alias)}, {column_list(value.relation.key, alias)}"
    return f"SELECT DISTINCT ON ({once}) * FROM ({rows}) AS {alias}"


@dataclass(frozen=True, slots=True)
class _Table:
    """A table in which rows are found.

    Attributes:
        alias: of a row.
        source: the FROM item, which calls a row `alias`.
        conditions: on a row itself.
        columns: the list of those that are read.
        proof: a column that is not NULL in a row that was found.
    """

    alias: str
    source: str
    conditions: tuple[str, ...]
    columns: str
    proof: str

    @classmethod
    def of(cls, value: Joined, alias: Alias, met: list[Column]) -> Self:
        """Return the table of a relation; `met` are the columns by which a row is found."""
        source, conditions = table_source(value.relation, alias)
        columns = column_list([*met, *_columns_above(value)], alias)
        return cls(alias, source, tuple(conditions), columns, identifier(met[0].name))


def _by_lookup(
    parents_links: str, links: Links, table: _Table, matches: list[str], end: str = _BARRIER
) -> str:
    """Render the rows of `table` that match each of `parents_links`, found one by one."""
    rows = f"SELECT {table.columns} FROM {table.source}{where_clause([*matches, *table.conditions])} {end}"
    columns = f"{links.of('k')}, {table.alias}.*"
    return f"SELECT {columns} FROM {parents_links} CROSS JOIN LATERAL ({rows}) AS {table.alias}"


def _by_full_join(parents_links: str, links: Links, table: _Table, matches: list[str]) -> str:
    """Render the same rows from one pass over the whole table."""
    alias, rows = table.alias, table.source
    if table.conditions:
        rows = f"(SELECT {alias}.* FROM {rows}{where_clause([*table.conditions])}) AS {alias}"
    columns, condition = f"{links.of('k')}, {table.columns}", " AND ".join(matches)
    all_rows = f"SELECT {columns} FROM {parents_links} FULL JOIN {rows} ON {condition}"
    found = f"{_exists(alias, links.names[0])} AND {_exists(alias, table.proof)}"
    return f"SELECT * FROM ({all_rows} {_BARRIER}) AS {alias} WHERE {found}"


def _exists(alias: str, name: str) -> str:
    """Render that a row was joined; IS NOT NULL of a composite value would test every part of it."""
    return f"{alias}.{name} IS DISTINCT FROM NULL"


def _columns_above(value: Joined) -> Iterator[Column]:
    """Iterate over the columns of the related rows that are read above their set; some twice."""
    yield from value.relation.key
    match value:
        case RelatedValue():
            yield from (column for column, _ in value.order)
            yield from columns_read(value.members)
        case AggregateValue(column=Column() as column):
            yield column


def render_objects(
    members: tuple[Member, ...], alias: Alias, rows: str, strategy: ReadStrategy, condition: str = ""
) -> tuple[list[str], str, str]:
    """Render the objects of the rows of `rows`, a member of the WITH that has the columns of `columns_read`.

    Args:
        members: of the object.
        alias: of a row.
        rows: the member's name.
        strategy: how related rows are read.
        condition: a WHERE that leaves out rows whose object is not needed.

    Returns:
        Further members of the WITH, what follows `rows` in FROM, and the object, which is never NULL.
    """
    sets = _Sets(strategy)
    rendered, joins = sets.joined(members, alias, f"{rows} AS {alias}{condition}")
    return sets.tables, joins, render_object(members, alias, rendered)


@dataclass
class _Sets:
    strategy: ReadStrategy
    tables: list[str] = field(default_factory=list)
    count: int = 0

    def joined(
        self, members: tuple[Member, ...], alias: Alias, parents: str
    ) -> tuple[dict[Joined, str], str]:
        """Render the values that are read as sets, and the joins that add them.

        Args:
            members: of the object.
            alias: of a parent.
            parents: a FROM item that calls the parents `alias`.
        """
        rendered: dict[Joined, str] = {}
        joins = ""
        for value in joined_values(members):
            # The same relation in two places of a document is read once.
            if value in rendered or not reads_as_set(value, self.strategy):
                continue
            links = links_of(value.relation)
            group, result = self._group(value, alias, parents, links)
            rendered[value] = f"coalesce({group}.{result}, '{_empty(value)}')"
            joins += f"\nFULL JOIN {group} ON {links.lead_to(group, alias)}"
        return rendered, joins

    def _group(self, value: Joined, parent: Alias, parents: str, links: Links) -> tuple[str, str]:
        """Add the groups of a relation; returns the name of their table and of the result's column."""
        self.count += 1
        rows, group, alias = f"r{self.count}", f"g{self.count}", below(parent)
        result = unused_name(value.relation.table, "v")
        found = related_rows(value, alias, links, links.parents_links(parents, parent))
        self.tables.append(f"{rows} AS ({found})")
        grouped, joins = f" GROUP BY {links.of(alias)}", ""
        match value:
            case AggregateValue():
                sql = aggregate_expression(value, alias)
            case RelatedValue(members=members):
                rendered, joins = self.joined(members, alias, f"{rows} AS {alias}")
                sql = render_related(value, alias, rendered)
                if value.many:
                    sql = list_expression(sql, order_terms(value, alias))
                else:
                    grouped = ""
        columns = f"{links.of(alias)}, {sql} AS {result}"
        self.tables.append(f"{group} AS (SELECT {columns}\nFROM {rows} AS {alias}{joins}{grouped})")
        return group, result


def _empty(value: Joined) -> str:
    """Return the JSON text for a parent without related rows."""
    match value:
        case AggregateValue(op="count"):
            return "0"
        case AggregateValue(op="ids") | RelatedValue(many=True):
            return "[]"
        case _:
            return "null"
