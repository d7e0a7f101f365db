"""What SQL text reads the related rows of many parents at once?

Bottom up, for each relation two members of a WITH: the related rows of all parents at hand, each beside the
parent's values that lead to it (its links), and what each group of them becomes. The groups are joined to the
parents by the links; parents with the same links share one.

That is a FULL JOIN because it can only be a hash or merge join, whatever PostgreSQL believes of the sizes. No
row is gained by it: every group has its parents, that is where its links come from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.assembly.forms import ReadStrategy, by_sets
from headrace.assembly.matching import Links, links_of, name_apart, related_rows
from headrace.assembly.plan import AggregateValue, Joined, Member, RelatedValue, joined_values
from headrace.assembly.render import Alias, listed, order_terms, reduced, render_object


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
    members: tuple[Member, ...], alias: Alias, rows: str, form: ReadStrategy, condition: str = ""
) -> Objects:
    """The objects of the rows of `rows`, a member of the WITH that has the columns of `columns_read`.

    Args:
        condition: a WHERE that leaves out rows whose object nobody asks for.
    """
    sets = _Sets(form)
    made, joins = sets.joined(members, alias, f"{rows} AS {alias}{condition}")
    return Objects(tuple(sets.tables), joins, render_object(members, alias, made))


@dataclass
class _Sets:
    form: ReadStrategy
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
            links = links_of(value.relation)
            group, result = self._group(value, alias, parents, links)
            made[value] = f"coalesce({group}.{result}, '{_nothing(value)}')"
            joins += f"\nFULL JOIN {group} ON {links.lead_to(group, alias)}"
        return made, joins

    def _group(self, value: Joined, parent: Alias, parents: str, links: Links) -> tuple[str, str]:
        """Add the groups of a relation; the name of their table and of the column with the result."""
        self.count += 1
        rows, group, alias = f"r{self.count}", f"g{self.count}", parent.below
        result = name_apart(value.relation.table, "v")
        self.tables.append(f"{rows} AS ({related_rows(value, alias, links, links.asked(parents, parent))})")
        grouped, joins = f" GROUP BY {links.of(alias)}", ""
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
        columns = f"{links.of(alias)}, {sql} AS {result}"
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
