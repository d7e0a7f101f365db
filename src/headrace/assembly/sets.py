"""What SQL text reads the related rows of many parents at once?

Bottom up, for each relation two members of a WITH: the related rows of all parents at hand, each beside the
parent's values that lead to it (its links), and what each group of them becomes. The groups are joined to the
parents by the links; parents with the same links share one.

Groups are joined to their parents, and related rows to the links where no index serves, by FULL JOIN,
because PostgreSQL can run it only as a hash or merge join: an estimate that is wrong by a thousand times, a
plan that is kept for other parameters, a table that was never analysed cannot turn it into one pass over
the table for each row. No row is gained by it upwards: every group has its parents, that is where its links
come from. Where an index serves, LEFT JOIN leaves lookups for each link and a pass over the table to choose
from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace.assembly.conditions import column_sql
from headrace.assembly.forms import Form, by_sets, is_served, is_single
from headrace.assembly.plan import (
    AggregateValue,
    Joined,
    Junction,
    Member,
    RelatedValue,
    Relation,
    columns_read,
    joined_values,
)
from headrace.assembly.render import (
    Alias,
    filtered,
    listed,
    order_terms,
    reduced,
    render_object,
    where,
)
from headrace.catalog.comparison import as_stored, equal
from headrace.catalog.table import Column, Table
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as table_sql


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of rows that are at hand as a set.

    Attributes:
        tables: members of a WITH, behind the set.
        joins: what follows the set in FROM.
        sql: the object, never NULL.
    """

    tables: tuple[str, ...]
    joins: str
    sql: str


def render_objects(
    members: tuple[Member, ...], alias: Alias, rows: str, form: Form, condition: str = ""
) -> Objects:
    """The objects of the rows of `rows`, a member of the WITH that has the columns of `columns_read`.

    Args:
        condition: a WHERE that leaves out rows whose object nobody asks for.
    """
    sets = _Sets(form)
    made, joins = sets.joined(members, alias, f"{rows} AS {alias}{condition}")
    return Objects(tuple(sets.tables), joins, render_object(members, alias, made))


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
class _Links:
    """The parent's columns that lead to a group, and what they are called beside its rows."""

    above: tuple[Column, ...]
    names: tuple[str, ...]

    def of(self, alias: str) -> str:
        return ", ".join(f"{alias}.{name}" for name in self.names)

    def asked(self, parents: str, alias: Alias) -> str:
        """The values of all parents, each once."""
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


@dataclass
class _Sets:
    form: Form
    tables: list[str] = field(default_factory=list)
    count: int = 0

    def joined(
        self, members: tuple[Member, ...], alias: Alias, parents: str
    ) -> tuple[dict[Joined, str], str]:
        """What stands for the values that are read as sets, and the joins that bring them.

        Args:
            parents: a FROM item that calls the rows at hand `alias`.
        """
        made: dict[Joined, str] = {}
        joins = ""
        for value in joined_values(members):
            if value in made or not by_sets(value, self.form):
                continue
            links = self._links(value.relation)
            group, result = self._group(value, alias, parents, links)
            made[value] = f"coalesce({group}.{result}, '{_nothing(value)}')"
            joins += f"\nFULL JOIN {group} ON {links.lead_to(group, alias)}"
        return made, joins

    def _links(self, relation: Relation) -> _Links:
        names = tuple(name_apart(relation.table, str(number)) for number in range(len(relation.above)))
        return _Links(relation.above, names)

    def _group(self, value: Joined, parent: Alias, parents: str, links: _Links) -> tuple[str, str]:
        """Add the groups of a relation; the name of their table and of the column with the result."""
        self.count += 1
        rows, group, alias = f"r{self.count}", f"g{self.count}", parent.below
        result = name_apart(value.relation.table, "v")
        self.tables.append(f"{rows} AS ({_rows(value, alias, links, links.asked(parents, parent))})")
        grouped, joins = f" GROUP BY {links.of(str(alias))}", ""
        match value:
            case AggregateValue():
                sql = reduced(value, alias)
            case RelatedValue(members=members):
                made, joins = self.joined(members, alias, f"{rows} AS {alias}")
                sql = render_object(members, alias, made)
                if value.many:
                    sql = listed(sql, order_terms(value, alias))
                else:
                    grouped = ""
        columns = f"{links.of(str(alias))}, {sql} AS {result}"
        self.tables.append(f"{group} AS (SELECT {columns}\nFROM {rows} AS {alias}{joins}{grouped})")
        return group, result


def _nothing(value: Joined) -> str:
    """The JSON text of a parent without related rows."""
    match value:
        case AggregateValue(op="count"):
            return "0"
        case AggregateValue(op="ids") | RelatedValue(many=True):
            return "[]"
        case _:
            return "null"


def _rows(value: Joined, alias: Alias, links: _Links, asked: str) -> str:
    """All related rows beside their links; of a limited list, or of a single object, the first ones."""
    relation = value.relation
    most = _most(value)
    if relation.junction is not None:
        rows = _through(value, relation.junction, alias, links, asked)
    elif isinstance(value, RelatedValue) and most is not None and is_served(relation):
        return _first(value, most, alias, links, asked)
    else:
        rows = _direct(value, alias, links, asked)
    if most is None or not isinstance(value, RelatedValue):
        return rows
    place = name_apart(relation.table, "n")
    window = f"(PARTITION BY {links.of(str(alias))} ORDER BY {order_terms(value, alias)})"
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


def _first(value: RelatedValue, most: int, alias: Alias, links: _Links, asked: str) -> str:
    """The first rows of each parent one by one: an index may hold them in order, and they may have many."""
    source, conditions = filtered(value.relation, alias)
    matches = _matches(value.relation, alias, links)
    rows = f"SELECT {column_list(_read(value), alias)} FROM {source}{where([*matches, *conditions])}"
    first = f"{rows} ORDER BY {order_terms(value, alias)} LIMIT {most}"
    return f"SELECT {links.of('k')}, {alias}.* FROM {asked} CROSS JOIN LATERAL ({first}) AS {alias}"


def _direct(value: Joined, alias: Alias, links: _Links, asked: str) -> str:
    relation = value.relation
    ours = [column for column, _ in relation.links]
    return _matched(
        asked,
        _related(value, alias),
        " AND ".join(_matches(relation, alias, links)),
        (links.of("k"), column_list([*ours, *_read(value)], alias)),
        _Pair(str(alias), links.names[0], identifier(ours[0].name)),
        served=is_served(relation),
    )


def _matches(relation: Relation, alias: Alias, links: _Links) -> list[str]:
    return [
        equal(column_sql(str(alias), ours), ours, f"k.{name}", theirs)
        for (ours, theirs), name in zip(relation.links, links.names, strict=True)
    ]


def _through(value: Joined, between: Junction, alias: Alias, links: _Links, asked: str) -> str:
    """By way of a junction, which may name a row twice, also in two spellings."""
    left, right = column_sql("j", between.left), column_sql("j", between.right)
    named = _matched(
        asked,
        f"{table_sql(between.table.name)} AS j",
        equal(left, between.left, f"k.{links.names[0]}", between.parent),
        (links.of("k"), f"{left} AS m", f"{right} AS r"),
        _Pair("j", links.names[0], "m"),
        served=is_served(value.relation),
    )
    related = identifier(between.related.name)
    rows = _matched(
        f"(SELECT DISTINCT {links.of('j')}, j.r FROM ({named}) AS j) AS k",
        _related(value, alias),
        equal("k.r", between.right, column_sql(str(alias), between.related), between.related),
        (links.of("k"), column_list([between.related, *_read(value)], alias)),
        _Pair(str(alias), links.names[0], related),
        served=as_stored(between.related, between.right),
    )
    if between.right.base_type == between.related.base_type:
        return rows
    once = f"{links.of(str(alias))}, {alias}.{related}"
    return f"SELECT DISTINCT ON ({once}) * FROM ({rows}) AS {alias}"


@dataclass(frozen=True, slots=True)
class _Pair:
    """What two joined rows are called, and a column of each that is not NULL in a pair."""

    alias: str
    left: str
    right: str


def _matched(
    left: str, right: str, condition: str, columns: tuple[str, ...], pair: _Pair, *, served: bool
) -> str:
    """The pairs of rows of two sets that meet the condition; `served` by an index of the right one."""
    kind = "LEFT" if served else "FULL"
    # OFFSET keeps the conditions outside: inside they would make it an inner join, which may run either way.
    every = f"SELECT {', '.join(columns)} FROM {left} {kind} JOIN {right} ON {condition} OFFSET 0"
    both = f"{pair.alias}.{pair.left} IS NOT NULL AND {pair.alias}.{pair.right} IS NOT NULL"
    return f"SELECT * FROM ({every}) AS {pair.alias} WHERE {both}"


def _related(value: Joined, alias: Alias) -> str:
    """The rows of the relation's table that pass its conditions, as a FROM item."""
    source, conditions = filtered(value.relation, alias)
    return f"(SELECT {alias}.* FROM {source}{where(conditions)}) AS {alias}" if conditions else source


def _read(value: Joined) -> Iterator[Column]:
    """The columns of the related rows that are read above their set; some twice."""
    yield from value.relation.key
    match value:
        case RelatedValue():
            yield from (column for column, _ in value.order)
            yield from columns_read(value.members)
        case AggregateValue(column=Column() as column):
            yield column
