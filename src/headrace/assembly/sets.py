"""Render SQL that reads the related rows of many parents at once.

Bottom up, each relation adds two members to a WITH: the related rows of all parents, each beside the parent's
values that lead to it (its links), and the result of each group of them. The groups are joined to the parents
by the links; parents with the same links share one group.

The join is a FULL JOIN because that can only be a hash or merge join, whatever PostgreSQL estimates. It adds
no row: the links of every group come from its parents.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.assembly.matching import Links, links_of, related_rows, unused_name
from headrace.assembly.plan import AggregateValue, Joined, Member, RelatedValue, joined_values
from headrace.assembly.read_strategies import ReadStrategy, reads_as_set
from headrace.assembly.render import Alias, aggregate_expression, list_expression, order_terms, render_object


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of rows that are available as a set.

    Attributes:
        tables: members of a WITH, after the set.
        joins: what follows the set in FROM.
        sql: the object, never NULL.
    """

    tables: tuple[str, ...]
    joins: str
    sql: str


def render_objects(
    members: tuple[Member, ...], alias: Alias, rows: str, strategy: ReadStrategy, condition: str = ""
) -> Objects:
    """Render the objects of the rows of `rows`, a member of the WITH that has the columns of `columns_read`.

    Args:
        members: of the object.
        alias: of a row.
        rows: the member's name.
        strategy: how related rows are read.
        condition: a WHERE that leaves out rows whose object is not needed.
    """
    sets = _Sets(strategy)
    rendered, joins = sets.joined(members, alias, f"{rows} AS {alias}{condition}")
    return Objects(tuple(sets.tables), joins, render_object(members, alias, rendered))


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
        rows, group, alias = f"r{self.count}", f"g{self.count}", parent.below
        result = unused_name(value.relation.table, "v")
        self.tables.append(
            f"{rows} AS ({related_rows(value, alias, links, links.parents_links(parents, parent))})"
        )
        grouped, joins = f" GROUP BY {links.of(alias)}", ""
        match value:
            case AggregateValue():
                sql = aggregate_expression(value, alias)
            case RelatedValue(members=members):
                rendered, joins = self.joined(members, alias, f"{rows} AS {alias}")
                sql = render_object(members, alias, rendered)
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
