"""Write a first schema file for a table, and the single fields that the designer adds. Pure.

Fields come from the columns' types, joins from the foreign keys. The text loads and binds without errors; a
comment names what is left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headrace.catalog.comparison import INTEGERS
from headrace.catalog.hints import Hints
from headrace.catalog.relations import TableRelation, judge_relations
from headrace.catalog.remedies import key_advice, table_advice
from headrace.catalog.table import Catalog, Column, ForeignKey, Table, UniqueKey
from headrace.catalog.type_check import fitting_tags, reduces
from headrace.config.suggestion import suggest_index_name
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName, quote_if_needed
from headrace.model.suggestion import meant
from headrace.schema.language import METADATA
from headrace.schema.tree import Through
from headrace.schema.writing import (
    indented,
    unused_key,
    write_comment,
    write_name,
    write_names,
    write_scalar,
    write_text,
    write_word,
)

MANY_ROWS = 1000
"""So many rows of one parent are counted in place of a list."""
_MOST_LABELS = 50
_LONGEST_DESCRIPTION = 300
_DELETED = frozenset(
    "deleted isdeleted softdeleted deletedat deletedon deletedate datedeleted "
    "removed isremoved removedat removedon".split()
)
"""Names of columns, without underscores, that mark a row as deleted."""
_SECRET = re.compile(
    r"passwo?r?d|passphrase|secret|api_?key|(access|auth|refresh|reset)_?token|otp_seed", re.IGNORECASE
)
_CODES = frozenset(
    "email code status state type kind category channel country currency locale language sku slug zip "
    "postcode phone url".split()
)
"""Names of columns, or their last parts, that hold codes rather than prose."""
_POSITIONS = frozenset({"position", "ordinal", "sort_order", "line_no", "line_number", "seq"})
"""Names of columns that put rows in order."""


@dataclass(frozen=True, slots=True)
class Suggester:
    """Suggests fields of one database's tables.

    Attributes:
        catalog: every table that may be joined (`list_tables`).
        hints: what else the database says; empty where that was not read.
    """

    catalog: Catalog
    hints: Hints = field(default_factory=Hints)

    def schema(self, root: TableName) -> str:
        """Return a schema file for documents of `root`, as YAML text.

        Raises:
            HeadraceError: USAGE, where `root` is not in the catalog, or its rows cannot be documents.
        """
        table = self._root(root)
        head = [
            f"# Documents of {write_comment(str(root))}: one for each row. Take out what no search needs.",
            "version: 1",
            f"table: {write_name(root.name)}",
            *_schema_line(root, "public"),
            f"primary_key: {write_names(table.primary_key)}",
            *self._description(root, ""),
        ]
        deleted = deletion_column(table)
        if deleted is not None:
            head += ["soft_delete:", f"  column: {write_name(deleted.name)}"]
        keys = set(METADATA)
        fields = list(self.columns(table, keys))
        relations, refused = judge_relations(self.catalog, table)
        for relation in relations:
            fields += ["", *self._join_at_root(table, relation, keys)]
        for relation, reason in refused:
            columns = relation.columns or (relation.link[1],)
            way = f"{relation.target} ({', '.join(columns)})"
            fields += ["", f"# {write_comment(way)}: {write_comment(reason)}"]
        return "\n".join([*head, "", *_fields(fields)]) + "\n"

    def columns(self, table: Table, taken: set[str], without: Collection[str] = ()) -> Iterator[str]:
        """Yield a field for each of the table's own columns, with comments about those that are left out.

        Args:
            table: the table.
            taken: document keys that are in use; the new ones are added.
            without: columns that say nothing here.
        """
        deleted = deletion_column(table)
        for column in table.columns:
            if column.name in without or column == deleted:
                continue
            if (reason := why_not(column)) is not None:
                yield f"# {write_comment(column.name)} ({write_comment(column.type)}): {reason}"
            elif _SECRET.search(column.name):
                yield f"# {write_comment(column.name)}: looks like a secret"
            else:
                yield from self.column(table, column, taken)

    def column(self, table: Table, column: Column, taken: set[str]) -> list[str]:
        """Return the field of one column, whose type some field type reads."""
        tag = self.tag(table, column)
        key = _take(column.name, taken)
        lines = [f"- {tag}: {write_word(key)}"]
        if key != column.name or key.lower() != key:
            lines.append(f"  column: {write_name(column.name)}")
        if column.not_null:
            lines.append("  required: true")
        labels = self.hints.labels.get(column.base_type, ()) if tag == "enum" else ()
        if 0 < len(labels) <= _MOST_LABELS and all(labels):
            lines.append(f"  variants: [{', '.join(map(write_scalar, labels))}]")
        if tag == "json":
            lines.append("  options: {enabled: false}")
        return lines + indented(self._description(table.name, column.name))

    def tag(self, table: Table, column: Column) -> str:
        """Return the most useful type key: `keyword` for codes and references, `text` for prose."""
        tags = fitting_tags(column)
        if tags[0] != "keyword":
            return tags[0]
        if column.category == "E":
            return "enum"
        keys: Iterable[UniqueKey | ForeignKey] = (*table.unique_keys, *table.foreign_keys)
        exact = {name for key in keys for name in key.columns}
        is_code = column.name in exact or column.name.lower().rpartition("_")[2] in _CODES
        return "text" if column.base_type == "text" and not is_code else "keyword"

    def join(self, table: Table, relation: TableRelation, taken: set[str]) -> list[str]:
        """Return a join with the columns of its rows, without those that lead back.

        Args:
            table: the table whose rows lead to others.
            relation: the way.
            taken: document keys that are in use; the new one is added.
        """
        target = self.catalog[relation.target]
        lines = [
            f"- {relation.kind}: {write_word(_take(relation.name, taken))}",
            *self._target(table, target, relation.key),
            *indented(self._description(target.name, "")),
        ]
        if relation.through is not None:
            through = relation.through
            lines += [
                "  through:",
                f"    table: {write_name(through.table.name)}",
                *indented(_schema_line(through.table, table.name.schema), 4),
                *indented(_through_keys(through), 4),
            ]
        else:
            lines += _own_columns(relation)
        lines += indented(deletion_filters(target))
        if relation.to_many:
            lines += indented(_order(target))
        back = relation.columns if relation.kind in {"has_one", "has_many"} else ()
        return [*lines, *indented(_fields(list(self.columns(target, set(), without=back))))]

    def aggregate(
        self, table: Table, relation: TableRelation, op: str, column: Column | None, taken: set[str]
    ) -> list[str]:
        """Return a field that reduces related rows to one value.

        Args:
            table: the table whose rows lead to others.
            relation: the way; not a belongs_to.
            op: `count`, `ids`, or what reduces `column`.
            column: the target's column.
            taken: document keys that are in use; the new one is added.

        Raises:
            HeadraceError: USAGE: the database cannot reduce such a column so.
        """
        target = self.catalog[relation.target]
        name = f"{relation.name}_{op}" if column is None else f"{op}_{relation.name}_{column.name}"
        lines = [
            f"- {op}: {write_word(_take(name, taken))}",
            *self._target(table, target, relation.key if op == "ids" else ()),
        ]
        if op == "ids":
            key = target.column(relation.key[0])
            if len(relation.key) > 1 or key is None:
                problem = f"the key of {target.name} has several columns"
                raise HeadraceError(Kind.USAGE, problem, "Use a list.")
            lines.append(f"  element_type: {next(iter(fitting_tags(key)), 'keyword')}")
        elif column is not None:
            lines.append(f"  column: {write_name(column.name)}")
            if op != "avg":
                lines.append(f"  value_type: {self._value_type(target, op, column)}")
        if relation.through is not None:
            through = relation.through
            keys = ", ".join(_through_keys(through))
            schema = "".join(f"{line}, " for line in _schema_line(through.table, table.name.schema))
            lines.append(f"  through: {{table: {write_name(through.table.name)}, {schema}{keys}}}")
            if op != "ids":
                lines.append(f"  primary_key: {write_names(relation.key)}")
        else:
            lines += _own_columns(relation)
        return lines + indented(deletion_filters(target))

    def _value_type(self, target: Table, op: str, column: Column) -> str:
        wanted = ["decimal"] if op == "sum" and column.base_type == "numeric" else []
        if op == "sum":
            wanted += ["long"] if column.base_type in INTEGERS else ["double"]
        for value_type in (*wanted, *fitting_tags(column)):
            if reduces(op, value_type, column):
                return value_type
        problem = f"{op} takes no {column.type}, as {target.name}.{column.name} is"
        raise HeadraceError(Kind.USAGE, problem, "Choose another column.")

    def _root(self, root: TableName) -> Table:
        if root not in self.catalog:
            known = [str(name) for name in self.catalog.tables]
            raise HeadraceError(Kind.USAGE, f"the database has no table {root}", meant(str(root), known))
        table = self.catalog[root]
        advice = table_advice(table)
        if advice is None and table.primary_key:
            advice = key_advice(table, table.primary_key)
        if advice is not None:
            raise HeadraceError(Kind.USAGE, advice.problem, advice.remedy)
        if not table.primary_key:
            remedy = "Add one: a document's id is its row's key."
            raise HeadraceError(Kind.USAGE, f"the table {root} has no primary key", remedy)
        return table

    def _join_at_root(self, table: Table, relation: TableRelation, taken: set[str]) -> list[str]:
        """Return a join of the root's, or what stands in its place."""
        fanout = self.hints.fanouts.get(relation.link) if relation.to_many else None
        if fanout is not None and fanout.most > MANY_ROWS:
            return self.aggregate(table, relation, "count", None, taken)
        return self.join(table, relation, taken)

    def _target(self, parent: Table, table: Table, key: Sequence[str]) -> list[str]:
        key_line = [f"primary_key: {write_names(key)}"] if key else []
        schema_line = _schema_line(table.name, parent.name.schema)
        return indented([f"table: {write_name(table.name.name)}", *schema_line, *key_line])

    def _description(self, table: TableName, column: str) -> list[str]:
        text = " ".join(self.hints.comments.get((table, column), "").split())
        if len(text) > _LONGEST_DESCRIPTION:
            text = text[:_LONGEST_DESCRIPTION].rstrip() + "…"
        return [f"description: {write_text(text)}"] if text else []


def suggest_schema(catalog: Catalog, root: TableName, hints: Hints | None = None) -> str:
    """Return a schema file for documents of `root`; as `Suggester.schema`.

    Raises:
        HeadraceError: USAGE, where `root` is not in the catalog, or its rows cannot be documents.
    """
    return Suggester(catalog, hints or Hints()).schema(root)


def suggest_name(root: TableName) -> str:
    """Return a name for an index of `root`."""
    return suggest_index_name(root.name)


def suggest_file(root: TableName) -> str:
    """Return the name of a schema file for `root`: whatever the table is called, a file of one folder."""
    is_plain = re.fullmatch(r"\w[\w-]*", root.name, re.ASCII)
    return f"{root.name if is_plain else suggest_name(root)}.schema.yml"


def why_not(column: Column) -> str | None:
    """Return why a column cannot be a field; None where it can."""
    return None if fitting_tags(column) else "no field type reads it"


def deletion_column(table: Table) -> Column | None:
    """Return the column that marks a row as deleted: a boolean, or a moment that is mostly NULL."""
    for column in table.columns:
        is_marker = column.base_type == "bool" or (column.category == "D" and not column.not_null)
        if is_marker and column.name.replace("_", "").lower() in _DELETED:
            return column
    return None


def deletion_filters(table: Table) -> list[str]:
    """Return filters that leave out rows of a related table that are marked as deleted."""
    column = deletion_column(table)
    if column is None:
        return []
    name = write_name(column.name)
    if column.base_type != "bool":
        return ["filters:", f"  - {{column: {name}, op: is_null}}"]
    if column.not_null:
        return ["filters:", f"  - {{column: {name}, op: eq, value: false}}"]
    return ["filters:", f"  - {{raw: {write_text(f'{quote_if_needed(column.name)} IS NOT TRUE')}}}"]


def _fields(lines: list[str]) -> list[str]:
    """Return `fields:` with the lines of its items; an empty list after them where all are comments."""
    has_items = any(line.startswith("- ") for line in lines)
    return ["fields:", *indented(lines)] if has_items else [*lines, "fields: []"]


def _order(table: Table) -> list[str]:
    numbers = (column.name for column in table.columns if column.category == "N")
    name = next((name for name in numbers if name.lower() in _POSITIONS), None)
    return [] if name is None else [f"order_by: [{{column: {write_name(name)}}}]"]


def _own_columns(relation: TableRelation) -> list[str]:
    word = "column" if relation.kind == "belongs_to" else "foreign_key"
    references = [f"  references: {write_names(relation.references)}"] if relation.references else []
    return [f"  {word}: {write_names(relation.columns)}", *references]


def _through_keys(through: Through) -> list[str]:
    words = ("left_key", "right_key", "left_references", "right_references")
    values = ((word, getattr(through, word)) for word in words)
    return [f"{word}: {write_name(value)}" for word, value in values if value]


def _take(name: str, taken: set[str]) -> str:
    key = unused_key(name, taken)
    taken.add(key)
    return key


def _schema_line(name: TableName, default: str) -> list[str]:
    return [] if name.schema == default else [f"schema: {write_name(name.schema)}"]
