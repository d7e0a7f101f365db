"""Find the ways from a table to others: its foreign keys, and those of others that refer to it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from headrace.catalog.binding import refusal
from headrace.catalog.table import Catalog, Column, ForeignKey, Table
from headrace.errors import Place
from headrace.model.names import TableName
from headrace.schema.tree import AggregateField, JoinField, Through

_SIDES = 2
_NOWHERE = Place(Path(), 0)
_BOOKKEEPING = frozenset(
    {"created", "createdat", "createdon", "insertedat", "updated", "updatedat", "updatedon", "modifiedat"}
)
"""Names of moments, without underscores, that say when a link was made, and nothing about it."""


@dataclass(frozen=True, slots=True)
class TableRelation:
    """A way from a row of one table to rows of another.

    Attributes:
        kind: as of `JoinField`.
        target: the table whose rows it leads to.
        columns: belongs_to: this row's columns, in the order of `key`; has_one, has_many: the target's
            columns, in the order of `references`, or of this row's key; many_to_many: none.
        name: what the rows may be called in a document.
        key: the columns that identify a row of the target; empty where it has no key.
        references: has_one, has_many: this row's columns that `columns` equal; empty: its key.
        through: the junction table of a many_to_many.
    """

    kind: Literal["belongs_to", "has_one", "has_many", "many_to_many"]
    target: TableName
    columns: tuple[str, ...]
    name: str
    key: tuple[str, ...]
    references: tuple[str, ...] = ()
    through: Through | None = None

    @property
    def to_many(self) -> bool:
        """Whether it may lead to several rows."""
        return self.kind in {"has_many", "many_to_many"}

    @property
    def link(self) -> tuple[TableName, str]:
        """The table and the first column that refer to this row."""
        if self.through is not None:
            return self.through.table, self.through.left_key
        return self.target, self.columns[0]

    @property
    def id(self) -> str:
        """Text that tells it from the table's other relations."""
        through = self.through
        keys = () if through is None else (through.table, through.left_key, through.right_key)
        return "|".join(map(str, (self.kind, self.target, *self.columns, *self.references, *keys)))

    def is_of(self, field: JoinField | AggregateField) -> bool:
        """Return whether a field of a schema file goes this way."""
        if self.target != field.table or self.references != field.references:
            return False
        if self.through is not None or field.through is not None:
            return self.through == field.through
        if isinstance(field, JoinField) and field.column:
            return self.kind == "belongs_to" and self.columns == field.column
        return self.kind != "belongs_to" and self.columns == field.foreign_key


def find_relations(catalog: Catalog, table: Table, key: tuple[str, ...] = ()) -> list[TableRelation]:
    """Return the relations of a table that the schema language can join by: first what it points at.

    Args:
        catalog: every table that may be joined.
        table: the table.
        key: the columns by which the file identifies its rows; empty: the primary key.
    """
    return judge_relations(catalog, table, key)[0]


def judge_relations(
    catalog: Catalog, table: Table, key: tuple[str, ...] = ()
) -> tuple[list[TableRelation], list[tuple[TableRelation, str]]]:
    """Return what `find_relations` does, and the relations that cannot be joined, each with the reason."""
    own_key = key or table.primary_key
    parents = (_parent(catalog, foreign_key) for foreign_key in table.foreign_keys)
    relations = (*filter(None, parents), *_children(catalog, table, own_key))
    judged = [(relation, _why_not(catalog, table, own_key, relation)) for relation in relations]
    found = [relation for relation, reason in judged if reason is None]
    return _named_apart(found), [(relation, reason) for relation, reason in judged if reason is not None]


def _why_not(catalog: Catalog, table: Table, own_key: tuple[str, ...], relation: TableRelation) -> str | None:
    """Return why `check` would refuse the join; None where it takes it."""
    if not relation.key:
        return "it has no key of NOT NULL columns"
    is_parent = relation.kind == "belongs_to"
    field = JoinField(
        key=relation.name,
        kind=relation.kind,
        table=relation.target,
        primary_key=relation.key,
        fields=(),
        place=_NOWHERE,
        column=relation.columns if is_parent else (),
        foreign_key=() if is_parent else relation.columns,
        references=relation.references,
        through=relation.through,
    )
    return refusal(catalog, (table, own_key), field)


def _named_apart(relations: Sequence[TableRelation]) -> list[TableRelation]:
    """Return relations of which those that lead the same way under one name have their column in it."""
    groups: dict[tuple[bool, str], list[TableRelation]] = {}
    for relation in relations:
        groups.setdefault((relation.kind == "belongs_to", relation.name), []).append(relation)
    found = []
    for relation in relations:
        alike = groups[relation.kind == "belongs_to", relation.name]
        name = relation.name if len(alike) == 1 else f"{relation.name}_by_{_lead(relation, alike)}"
        found.append(replace(relation, name=name))
    return found


def _lead(relation: TableRelation, alike: Sequence[TableRelation]) -> str:
    """Return what tells a relation from those that are called alike: its columns, or its junction table."""
    if relation.through is not None:
        junctions = [other.through.table for other in alike if other.through is not None]
        is_own = junctions.count(relation.through.table) == 1
        return relation.through.table.name if is_own else _base(relation.through.left_key)
    common = set.intersection(*(set(other.columns) for other in alike if other.through is None))
    own = [column for column in relation.columns if column not in common]
    return "_".join(map(_base, own or relation.columns))


def _base(column: str) -> str:
    return column.removesuffix("_id").removesuffix("Id") or column


def _parent(catalog: Catalog, key: ForeignKey) -> TableRelation | None:
    target = catalog.tables.get(key.target)
    if target is None:
        return None
    first = key.columns[0]
    name = first.removesuffix("_id").removesuffix("Id") if len(key.columns) == 1 else key.target.name
    columns, referred = _ordered(key, target.primary_key)
    name = name if name not in {first, ""} else key.target.name
    return TableRelation("belongs_to", key.target, columns, name, referred)


def _children(catalog: Catalog, table: Table, own_key: tuple[str, ...]) -> Iterator[TableRelation]:
    """Yield the relation of each foreign key to this table, whose rows `own_key` identifies."""
    for child in sorted(catalog.tables.values(), key=lambda candidate: candidate.name):
        for key in child.foreign_keys:
            if key.target != table.name:
                continue
            other = None if _is_referred(catalog, child) else _other_side(child, key)
            target = catalog.tables.get(other.target) if other else None
            if other and target:
                yield _many_to_many(child, (key, own_key), (other, target))
            else:
                yield _child(child, key, own_key)


def _many_to_many(
    junction: Table, left: tuple[ForeignKey, tuple[str, ...]], right: tuple[ForeignKey, Table]
) -> TableRelation:
    (key, own_key), (other, target) = left, right
    target_key = _key(target)
    through = Through(
        junction.name,
        key.columns[0],
        other.columns[0],
        left_references="" if key.target_columns == own_key else key.target_columns[0],
        right_references="" if other.target_columns == target_key else other.target_columns[0],
    )
    return TableRelation("many_to_many", target.name, (), target.name.name, target_key, through=through)


def _child(child: Table, key: ForeignKey, own_key: tuple[str, ...]) -> TableRelation:
    is_single = any(set(unique.columns) == set(key.columns) for unique in child.unique_keys)
    columns, referred = _ordered(key, own_key)
    references = () if referred == own_key else referred
    kind: Literal["has_one", "has_many"] = "has_one" if is_single else "has_many"
    return TableRelation(kind, child.name, columns, child.name.name, _key(child), references)


def _ordered(key: ForeignKey, target_key: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of a foreign key and those they refer to: in the order of the key, if it is that."""
    if set(key.target_columns) != set(target_key):
        return key.columns, key.target_columns
    pairs = dict(zip(key.target_columns, key.columns, strict=True))
    return tuple(pairs[column] for column in target_key), target_key


def _key(table: Table) -> tuple[str, ...]:
    """Return the columns that identify a row: the primary key's, unless only another key does."""
    keys = [unique for unique in table.unique_keys if unique.not_null and unique.immediate]
    found = sorted(keys, key=lambda unique: not unique.primary)
    return found[0].columns if found else table.primary_key


def _is_referred(catalog: Catalog, table: Table) -> bool:
    """Return whether rows of other tables belong to this one's: then its rows are more than links."""
    tables = (each for each in catalog.tables.values() if each.name != table.name)
    return any(key.target == table.name for each in tables for key in each.foreign_keys)


def _other_side(table: Table, key: ForeignKey) -> ForeignKey | None:
    """Return the other foreign key of a junction, whose rows are links and nothing else.

    Besides the two it may have a surrogate key, and moments at which the link was made or touched.
    """
    keys = [foreign_key for foreign_key in table.foreign_keys if len(foreign_key.columns) == 1]
    linked = {foreign_key.columns[0] for foreign_key in keys}
    surrogate = set(table.primary_key) if len(table.primary_key) == 1 else set()
    rest = [column for column in table.columns if column.name not in linked | surrogate]
    if key not in keys or len(keys) != _SIDES or len(linked) != _SIDES or not all(map(_is_bookkeeping, rest)):
        return None
    return next(foreign_key for foreign_key in keys if foreign_key != key)


def _is_bookkeeping(column: Column) -> bool:
    return column.category == "D" and column.name.replace("_", "").lower() in _BOOKKEEPING
