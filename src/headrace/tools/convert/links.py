"""Find the columns by which the rows of a PGSync node belong to the row above.

PGSync joins by the database's foreign keys, unless a node names a `foreign_key`. Without the database the
usual names are guessed, and noted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.catalog.table import Catalog, Column, Table
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.tools.convert.notes import Notes
from headrace.tools.convert.pgsync_file import Node, Relationship


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


@dataclass(frozen=True, slots=True)
class Between:
    """Rows of two tables belong together through those of a third one.

    Attributes:
        left: its rows (below) and the parent's (above).
        right: its rows (above) and the related ones (below).
    """

    table: TableName
    key: tuple[str, ...]
    left: Link
    right: Link

    @property
    def is_single(self) -> bool:
        """Whether one column on each side joins them."""
        return len(self.left.below) == 1 == len(self.right.below)


@dataclass(frozen=True, slots=True)
class Side:
    """A table of a document as the database has it, or as the file alone tells it.

    Attributes:
        table: None where the database is not known, or does not have it.
        key: the columns that tell its rows apart.
    """

    name: TableName
    table: Table | None
    key: tuple[str, ...]

    def column(self, name: str) -> Column | None:
        """Return a column; None where the database is not known, or does not have it."""
        return None if self.table is None else self.table.column(name)


def find_link(parent: Side, child: Side, node: Node, notes: Notes) -> Link:
    """Return the columns by which the rows of `child` belong to a row of `parent`."""
    relationship = _of(node)
    if relationship.parent:
        return Link(relationship.child, relationship.parent).ordered_by(parent.key)
    if parent.table is not None and child.table is not None:
        links = list(_links(child.table, parent.table))
        if not relationship.to_many and len(links) > 1 and parent.name != child.name:
            links.reverse()  # one row is rather the one that this one points at
        if links:
            _tell_choice(links, parent, child, relationship, notes)
            return links[0].ordered_by(parent.key)
    guess = _guess(parent, child, to_many=relationship.to_many)
    _tell_guess(parent, child, relationship.line, f"{_pairs(guess)} is guessed", notes)
    return guess


def find_between(parent: Side, child: Side, node: Node, catalog: Catalog | None, notes: Notes) -> Between:
    """Return the table between, and the columns by which it joins both."""
    relationship = _of(node)
    assert relationship.through is not None
    middle = side_of(relationship.through, catalog, ())
    if catalog is not None and middle.table is None:
        tell_missing(relationship.through, relationship.line, catalog, notes)
    is_same = parent.name == child.name
    # Both foreign keys of a table that joins another one to itself lead there: which is which is a guess.
    line, left_links = relationship.line, _known_links(middle, parent)
    left = _choose(left_links, middle, parent, notes, line=line, name="above", is_guess=is_same)
    others = [link for link in _known_links(middle, child) if not is_same or link != left]
    right = _choose(others, middle, child, notes, line=line, name="below")
    return Between(middle.name, middle.key, left, Link(right.above, right.below))


def side_of(name: TableName, catalog: Catalog | None, declared: tuple[str, ...]) -> Side:
    """Return what is known of a table.

    Its key is the primary key, else what is declared, else a unique key, else `id`.
    """
    table = None if catalog is None else catalog.tables.get(name)
    key: tuple[str, ...] = declared
    if table is not None:
        unique = (known.columns for known in table.unique_keys if known.not_null and known.immediate)
        key = table.primary_key or key or next(unique, ())
    return Side(name, table, key or ("id",))


def tell_missing(name: TableName, line: int, catalog: Catalog, notes: Notes) -> None:
    """Note that the database has no such table, and which one may be meant."""
    known = [str(other) for other in (*catalog.existing, *catalog.tables)]
    notes.left(line, f"the database has no table {name}", meant(str(name), known))


def _of(node: Node) -> Relationship:
    assert node.relationship is not None
    return node.relationship


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


def _known_links(child: Side, parent: Side) -> list[Link]:
    """Return the foreign keys between two tables; none where one of them is unknown."""
    return [] if child.table is None or parent.table is None else list(_links(child.table, parent.table))


def _choose(
    links: Sequence[Link],
    middle: Side,
    other: Side,
    notes: Notes,
    *,
    line: int,
    name: str,
    is_guess: bool = False,
) -> Link:
    """Return the first of the links between two tables, or else a guess; note what is not certain.

    Args:
        line: of the relationship.
        name: where the other table's row is in the document, for people.
        is_guess: whether even a single link is not certain.
    """
    if links:
        if len(links) > 1 or is_guess:
            _tell_through(middle, other, links[0], line, notes)
        return links[0]
    guess = Link((f"{other.name.name}_id",), other.key[:1] or ("id",))
    _tell_guess(middle, other, line, f"{_pairs(guess)} is guessed for the row {name}", notes)
    return guess


def _guess(parent: Side, child: Side, *, to_many: bool) -> Link:
    if to_many:
        return Link((f"{parent.name.name}_id",), parent.key[:1])
    return Link(child.key[:1], (f"{child.name.name}_id",))


def _tell_choice(
    links: list[Link], parent: Side, child: Side, relationship: Relationship, notes: Notes
) -> None:
    if parent.name == child.name:
        notes.differs(
            relationship.line,
            f"{child.name} joins itself: the rows whose {_pairs(links[0])} of the row above are taken; "
            "PGSync 7.3 compares both ends at once, and finds the row itself",
            'Name `"foreign_key"` for the other direction.',
        )
    elif len(links) > 1:
        notes.left(
            relationship.line,
            f"several foreign keys join {child.name} and {parent.name}: PGSync joins by all of them at once; "
            f"{_pairs(links[0])} is taken, not {'; '.join(map(_pairs, links[1:]))}",
            'Name the one that is meant as "foreign_key".',
        )


def _tell_through(middle: Side, other: Side, taken: Link, line: int, notes: Notes) -> None:
    notes.left(
        line,
        f"several foreign keys lead from {middle.name} to {other.name}; {_pairs(taken)} is taken for the row "
        "above",
        "Check whether it is the right one; if not, swap left_key and right_key.",
    )


def _tell_guess(one: Side, other: Side, line: int, guessed: str, notes: Notes) -> None:
    known = one.table is not None and other.table is not None
    notes.left(
        line,
        f"the database has no foreign key between {one.name} and {other.name}: {guessed}"
        if known
        else f"without the database it is unknown how {one.name} and {other.name} are joined: {guessed}",
        'Name "foreign_key" in the file, or correct the columns in the schema file.'
        if known
        else "Name --env or --database, or correct the columns in the schema file.",
    )


def _pairs(link: Link) -> str:
    return " and ".join(f"{ours} = {theirs}" for ours, theirs in zip(link.below, link.above, strict=True))
