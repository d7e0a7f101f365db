"""Find the columns by which the rows of a PGSync node belong to the row above, and write them as a join.

PGSync joins by the database's foreign keys, unless a node names a `foreign_key`. Where the database has none,
the usual names are guessed, and noted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.catalog.remedies import key_advice
from headrace.catalog.table import Table
from headrace.model.names import TableName, quote_if_needed
from headrace.tools.convert.notes import Notes
from headrace.tools.convert.pgsync_file import Relationship
from headrace.tools.convert.schema_text import FieldEntry, names_value
from headrace.tools.convert.sides import Side


@dataclass(frozen=True, slots=True)
class Link:
    """Rows of two tables belong together where `below` of the one equals `above` of the other."""

    below: tuple[str, ...]
    above: tuple[str, ...]

    def ordered_by(self, key: Sequence[str]) -> Link:
        """Return the link with `above` in the order of `key`, where it has the same columns."""
        if set(key) != set(self.above):
            return self
        pairs = dict(zip(self.above, self.below, strict=True))
        return Link(tuple(pairs[name] for name in key), tuple(key))

    def __str__(self) -> str:
        pairs = zip(self.below, self.above, strict=True)
        return " and ".join(f"{ours} = {theirs}" for ours, theirs in pairs)


@dataclass(frozen=True, slots=True)
class Between:
    """Rows of two tables belong together through those of a third one.

    Attributes:
        left: its rows (below) and the parent's (above).
        right: its rows (above) and the related ones (below).
    """

    middle: Side
    left: Link
    right: Link

    @property
    def is_single(self) -> bool:
        """Whether one column on each side joins them."""
        return len(self.left.below) == 1 == len(self.right.below)


def find_link(parent: Side, child: Side, relationship: Relationship, notes: Notes) -> Link:
    """Return the columns by which the rows of `child` belong to a row of `parent`."""
    if (keys := relationship.foreign_key) is not None:
        return Link(tuple(keys.child), tuple(keys.parent)).ordered_by(parent.key)
    links = list(_links(child.table, parent.table))
    if not relationship.to_many and len(links) > 1 and parent.name != child.name:
        links.reverse()  # one row is rather the one that this one points at
    if links:
        _tell_choice(links, parent.name, child.name, notes)
        return links[0].ordered_by(parent.key)
    if relationship.to_many:
        guess = Link((f"{parent.name.name}_id",), parent.key[:1])
    else:
        guess = Link(child.key[:1], (f"{child.name.name}_id",))
    _tell_guess(parent, child, f"{guess} is guessed", notes)
    return guess


def find_between(parent: Side, child: Side, middle: Side, notes: Notes) -> Between:
    """Return the columns by which the table between joins both."""
    is_same = parent.name == child.name
    # Both foreign keys of a table that joins another one to itself lead there: which is which is a guess.
    left = _choose(middle, parent, notes, name="above", is_guess=is_same)
    right = _choose(middle, child, notes, name="below", taken=left if is_same else None)
    return Between(middle, left, Link(right.above, right.below))


def _links(child: Table, parent: Table) -> Iterator[Link]:
    """Yield the foreign keys between two tables: those of the child, then those of the parent."""
    places = {column.name: number for number, column in enumerate(child.columns)}
    # Constraints have no order of their own, and the same file must come out each time.
    for key in sorted(child.foreign_keys, key=lambda key: places[key.columns[0]]):
        if key.target == parent.name:
            yield Link(key.columns, key.target_columns)
    if child.name == parent.name:
        return
    for key in parent.foreign_keys:
        if key.target == child.name:
            yield Link(key.target_columns, key.columns)


def _choose(
    middle: Side, other: Side, notes: Notes, *, name: str, is_guess: bool = False, taken: Link | None = None
) -> Link:
    """Return the first of the links between two tables, or else a guess; note what is not certain.

    Args:
        middle: the table between.
        other: the table that it is linked to.
        notes: where notes go.
        name: where the other table's row is in the document, for people.
        is_guess: whether even a single link is not certain.
        taken: a link that is another one's.
    """
    links = [link for link in _links(middle.table, other.table) if link != taken]
    if not links:
        guess = Link((f"{other.name.name}_id",), other.key[:1])
        _tell_guess(middle, other, f"{guess} is guessed for the row {name}", notes)
        return guess
    if len(links) > 1 or is_guess:
        notes.left(
            f"several foreign keys lead from {middle.name} to {other.name}; {links[0]} is taken for the row "
            "above",
            "Check whether it is the right one; if not, swap left_key and right_key.",
        )
    return links[0]


def _tell_choice(links: Sequence[Link], parent: TableName, child: TableName, notes: Notes) -> None:
    if parent == child:
        notes.differs(
            f"{child} joins itself: the rows whose {links[0]} of the row above are taken; "
            "PGSync 7.3 compares both ends at once, and finds the row itself",
            'Name `"foreign_key"` for the other direction.',
        )
    elif len(links) > 1:
        notes.left(
            f"several foreign keys join {child} and {parent}: PGSync joins by all of them at once; "
            f"{links[0]} is taken, not {'; '.join(map(str, links[1:]))}",
            'Name the one that is meant as "foreign_key".',
        )


def _tell_guess(one: Side, other: Side, guessed: str, notes: Notes) -> None:
    notes.left(
        f"the database has no foreign key between {one.name} and {other.name}: {guessed}",
        'Name "foreign_key" in the file, or correct the columns in the schema file.',
    )


def table_words(name: TableName, default: str) -> FieldEntry:
    """Return the words that name a table; its schema is left out where it is the default."""
    schema = {} if name.schema == default else {"schema": quote_if_needed(name.schema)}
    return {"table": quote_if_needed(name.name)} | schema


def foreign_key_words(above: Side, link: Link) -> FieldEntry:
    """Return the columns that point at the row above; it is pointed at by its key where nothing is said."""
    references = {} if link.above == above.key else {"references": names_value(link.above)}
    return {"foreign_key": names_value(link.below), **references}


def join_words(above: Side, side: Side, link: Link, key: str, notes: Notes, *, to_many: bool) -> FieldEntry:
    """Return a join without its fields, under the document key `key`."""
    where = table_words(side.name, above.name.schema)
    # A row that is pointed at by a key is there once: it is joined from this side, without its own key.
    if not to_many and key_advice(side.table, link.below) is None and link.above != above.key:
        found = {"primary_key": names_value(link.below), "column": names_value(link.above)}
        return {"belongs_to": key, **where, **found}
    unique = any(set(known.columns) <= set(link.below) for known in side.table.unique_keys)
    if not to_many and not unique:
        notes.differs(
            f"several rows of {side.name} may have one {', '.join(link.below)}: the first by its key is "
            "shown, in PGSync any"
        )
    return {
        "has_many" if to_many else "has_one": key,
        **where,
        "primary_key": names_value(side.key),
        **foreign_key_words(above, link),
    }


def junction_words(above: Side, side: Side, between: Between, key: str) -> FieldEntry:
    """Return a join through another table without its fields, under the document key `key`."""
    through = table_words(between.middle.name, above.name.schema)
    through |= {
        "left_key": quote_if_needed(between.left.below[0]),
        "right_key": quote_if_needed(between.right.above[0]),
    }
    if between.left.above != above.key:
        through["left_references"] = quote_if_needed(between.left.above[0])
    if between.right.below != side.key:
        through["right_references"] = quote_if_needed(between.right.below[0])
    where = table_words(side.name, above.name.schema)
    return {"many_to_many": key, **where, "primary_key": names_value(side.key), "through": through}
