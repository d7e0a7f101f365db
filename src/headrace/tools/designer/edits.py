"""Apply what was clicked to the text of a schema file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field as Limited

from headrace.catalog.relations import TableRelation, find_relations
from headrace.catalog.suggestion import why_not
from headrace.catalog.table import Column, Table
from headrace.errors import HeadraceError, Kind
from headrace.schema.core_type import core_type
from headrace.schema.editing import add_item, remove_field, remove_item, set_word
from headrace.schema.language import FILTER_OPS, METADATA
from headrace.schema.load import parse_schema
from headrace.schema.tree import Field, IndexSpec, JoinField, ObjectField
from headrace.schema.writing import write_name, write_scalar
from headrace.schema.yaml_nodes import source_of
from headrace.status.bodies import NoOptions
from headrace.tools.designer.database import DatabaseFacts
from headrace.tools.designer.view import owned_fields, reads_column

_LISTS = frozenset({"in", "not_in", "between"})
_NO_VALUE = frozenset({"is_null", "is_not_null"})


class Edit(NoOptions):
    """One change of a schema.

    Attributes:
        op: what is changed.
        at: the document keys that lead to the field; empty for the root.
        column: the column that is meant.
        relation: the relation that is meant, by its id.
        on: whether it is put in, or taken out.
        word: the aggregate, or the operator of a filter.
        value: the value of a filter, values separated by commas; the number of a limit; `desc`.
        number: which filter.
    """

    op: Literal["column", "relation", "aggregate", "remove", "limit", "order", "filter", "soft_delete"]
    at: tuple[str, ...] = ()
    column: str | None = None
    relation: str | None = None
    on: bool = True
    word: str = ""
    value: str = ""
    number: Annotated[int, Limited(ge=0)] = 0


def parse(text: str, file: str, index: str) -> IndexSpec:
    """Parse the text of a schema file, as a run does.

    Raises:
        ErrorGroup: SCHEMA; every mistake.
    """
    return parse_schema(source_of(Path(file), text), text, index)


def apply(text: str, edit: Edit, facts: DatabaseFacts) -> str:
    """Return the text of a schema file after an edit.

    Raises:
        HeadraceError: SCHEMA: the text has mistakes, or cannot be edited there; USAGE: the database has no
            such column or relation.
    """
    if edit.op == "remove":
        changed = remove_field(text, edit.at)
    elif edit.op == "limit":
        changed = set_word(text, edit.at, "limit", edit.value or None)
    elif edit.op == "filter" and not edit.on:
        changed = remove_item(text, edit.at, "filters", edit.number)
    else:
        changed = _apply_to_table(text, edit, facts)
    # An edit whose result does not load is refused now, and not when it is saved.
    parse(changed, "schema", "index")
    return changed


@dataclass(frozen=True, slots=True)
class _Place:
    """The table of a join, or of an object in it, the key of its rows by the file, and its fields."""

    table: Table
    key: tuple[str, ...]
    fields: tuple[Field, ...]


def _apply_to_fields(text: str, edit: Edit, facts: DatabaseFacts, place: _Place) -> str:
    if edit.op == "aggregate" or edit.on:
        return add_item(text, edit.at, "fields", _addition(edit, facts, place))
    return _without(text, edit, facts, place)


def _apply_to_table(text: str, edit: Edit, facts: DatabaseFacts) -> str:
    """Apply an edit that needs the table."""
    place = _find(parse(text, "schema", "index"), edit.at, facts)
    if edit.op in ("aggregate", "column", "relation"):
        return _apply_to_fields(text, edit, facts, place)
    name = "" if edit.column is None else write_name(_column_of(place.table, edit.column).name)
    if edit.op == "soft_delete":
        return set_word(text, edit.at, "soft_delete", f"{{column: {name}}}" if name else None)
    if edit.op == "order":
        direction = ", direction: desc" if edit.value == "desc" else ""
        return set_word(text, edit.at, "order_by", f"[{{column: {name}{direction}}}]" if name else None)
    return add_item(text, edit.at, "filters", [_filter(edit, place.table)])


def _addition(edit: Edit, facts: DatabaseFacts, place: _Place) -> Sequence[str]:
    """Return the lines of the field that an edit adds."""
    table, suggester = place.table, facts.suggester
    taken = {field.key for field in place.fields} | (set() if edit.at else METADATA)
    if edit.op == "column":
        column = _column_of(table, edit.column)
        # The page does not offer such a column, but its tables may be older than the database.
        if (reason := why_not(column)) is not None:
            raise HeadraceError(Kind.USAGE, f"{table.name}.{column.name}: {reason}", "Choose another column.")
        return suggester.column(table, column, taken)
    relation = _relation_of(edit, facts, place)
    if edit.op == "relation":
        return suggester.join(table, relation, taken)
    reduced = None if edit.column is None else _column_of(facts.catalog[relation.target], edit.column)
    return suggester.aggregate(table, relation, edit.word, reduced, taken)


def _without(text: str, edit: Edit, facts: DatabaseFacts, place: _Place) -> str:
    """Return the text without the fields of a column or a relation."""
    owned = owned_fields(place.fields, edit.at)
    if edit.op == "column":
        name = _column_of(place.table, edit.column).name
        paths = [path for path, field in owned if reads_column(field, name)]
    else:
        relation = _relation_of(edit, facts, place)
        paths = [path for path, field in owned if isinstance(field, JoinField) and relation.is_of(field)]
    for path in paths:
        text = remove_field(text, path)
    return text


def _filter(edit: Edit, table: Table) -> str:
    column = _column_of(table, edit.column)
    if edit.word not in FILTER_OPS:
        raise HeadraceError(
            Kind.USAGE, f"{edit.word!r} is not a filter operator", f"Choose one of {', '.join(FILTER_OPS)}."
        )
    head = f"- {{column: {write_name(column.name)}, op: {edit.word}"
    if edit.word in _NO_VALUE:
        return f"{head}}}"
    if edit.word in _LISTS:
        values = ", ".join(_value(part.strip(), column) for part in edit.value.split(","))
        return f"{head}, value: [{values}]}}"
    return f"{head}, value: {_value(edit.value, column)}}}"


def _value(text: str, column: Column) -> str:
    """Return a value as it stands in the file: a number as one where the column holds numbers."""
    is_literal = core_type(text) in {"int", "float", "bool"} and column.category in {"N", "B"}
    return text if is_literal else write_scalar(text)


def _find(spec: IndexSpec, at: Sequence[str], facts: DatabaseFacts) -> _Place:
    """Return the place of a join, or of an object in it; of the root where `at` is empty."""
    name, key, fields = spec.table, spec.primary_key, spec.fields
    for step in at:
        found = next((each for each in fields if each.key == step), None)
        if not isinstance(found, JoinField | ObjectField):
            raise HeadraceError(
                Kind.USAGE, f"the schema has no join {'.'.join(at)}", "It has changed meanwhile: look again."
            )
        if isinstance(found, JoinField):
            name, key = found.table, found.primary_key
        fields = found.fields
    return _Place(facts.catalog[facts.find(str(name))], key, fields)


def _column_of(table: Table, name: str | None) -> Column:
    column = table.column(name or "")
    if column is None:
        raise HeadraceError(Kind.USAGE, f"{table.name} has no column {name!r}", "Read the tables again.")
    return column


def _relation_of(edit: Edit, facts: DatabaseFacts, place: _Place) -> TableRelation:
    for relation in find_relations(facts.catalog, place.table, place.key):
        if relation.id == edit.relation:
            return relation
    raise HeadraceError(Kind.USAGE, f"{place.table.name} has no such relation", "Read the tables again.")
