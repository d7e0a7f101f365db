"""Check that the database has what a schema names, and that its documents can be correct."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.catalog import type_check
from headrace.catalog.comparison import as_stored
from headrace.catalog.remedies import KINDS, Advice, conversion_advice, index_advice, key_advice, table_advice
from headrace.catalog.table import Catalog, Column, Table
from headrace.errors import HeadraceError, Kind, LocatedError, Place
from headrace.model.names import TableName
from headrace.model.suggestion import nearest
from headrace.model.units import quantity
from headrace.postgres import quoting
from headrace.schema.raw import is_moment
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    Field,
    Filter,
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    ObjectField,
    Through,
    own_fields,
)

_Side = tuple[Table, tuple[str, ...]]
"""A table of a join and the key that identifies its rows."""

_MOMENTS = frozenset({"date", "time", "timetz", "timestamp", "timestamptz"})
_ASSEMBLING = "each chunk of up to 1000 documents"
"""The reader of related rows, for messages; without an index it scans the table once for each chunk."""

_FLAT = "flat_object"


@dataclass(frozen=True, slots=True)
class BindingFinding:
    """A problem of a schema: an `error` that must be corrected, or a `warning` that documents survive."""

    level: Literal["error", "warning"]
    error: HeadraceError


def bind(spec: IndexSpec, catalog: Catalog) -> list[HeadraceError]:
    """Return the errors that keep `spec` from being built from the database; empty where there are none."""
    return [finding.error for finding in findings(spec, catalog) if finding.level == "error"]


def findings(spec: IndexSpec, catalog: Catalog) -> list[BindingFinding]:
    """Return the errors and warnings about `spec`, each once, in the order of the file."""
    binder = _Binder(catalog)
    binder.index(complete(spec, catalog))
    # A table or key that several fields name is checked for each of them.
    return list({str(finding.error): finding for finding in binder.findings}.values())


def refusal(catalog: Catalog, parent: _Side, field: JoinField) -> str | None:
    """Return the first error of a join to rows of `parent`; None where it has none."""
    binder = _Binder(catalog)
    binder.join(*parent, field)
    errors = [each.error for each in binder.findings if each.level == "error"]
    return next((error.problem for error in errors if isinstance(error, LocatedError)), None)


def complete(spec: IndexSpec, catalog: Catalog) -> IndexSpec:
    """Return `spec` with the primary keys that the file leaves out: the root's and the aggregates'."""
    table = catalog.tables.get(spec.table)
    primary_key = spec.primary_key or (table.primary_key if table else ())
    return dataclasses.replace(spec, primary_key=primary_key, fields=_complete_fields(spec.fields, catalog))


def _complete_fields(fields: tuple[Field, ...], catalog: Catalog) -> tuple[Field, ...]:
    result: list[Field] = []
    for field in fields:
        if isinstance(field, AggregateField) and not field.primary_key and field.table in catalog:
            result.append(dataclasses.replace(field, primary_key=catalog[field.table].primary_key))
        elif isinstance(field, ObjectField | JoinField):
            result.append(dataclasses.replace(field, fields=_complete_fields(field.fields, catalog)))
        else:
            result.append(field)
    return tuple(result)


def _shown(column: Column) -> str:
    return f"{column.type} COLLATE {column.collation}" if column.collation else column.type


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return the remedy that names the likely intended name; empty where there is none."""
    near = nearest(name, known)
    if near is None:
        return ""
    if near.lower() == name:
        quoted = quoting.identifier(near)
        return f"Write '{quoted}': a name outside of SQL double quotes is folded to lower case."
    return f"Did you mean {near!r}?"


class _Binder:
    """Walk one schema and collect findings."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.findings: list[BindingFinding] = []

    def index(self, spec: IndexSpec) -> None:
        table = self._table(spec.table, spec.place)
        if table is None:
            return
        if not spec.primary_key and table_advice(table) is None:
            problem = f"the table {spec.table} has no primary key, and the schema names none"
            self._error(spec.place, problem, f"ALTER TABLE {quoting.table(spec.table)} ADD PRIMARY KEY (…);")
        else:
            self._key(table, spec.primary_key, spec.place)
        self._filters(table, spec.filters)
        self._column(table, spec.routing, spec.place)
        if spec.soft_delete is not None:
            self._column(table, spec.soft_delete.column, spec.soft_delete.place)
            self._filters(table, spec.soft_delete.when)
        self._fields(table, spec.primary_key, spec.fields)

    def _fields(self, table: Table, key: tuple[str, ...], fields: Iterable[Field]) -> None:
        for field in own_fields(fields):
            match field:
                case ColumnField():
                    self._scalar(table, key, field)
                case GeoField():
                    self._geo(table, field)
                case MapField():
                    self._map(table, field)
                case JoinField():
                    self.join(table, key, field)
                case AggregateField():
                    self._aggregate(table, key, field)

    # one row's own columns

    def _scalar(self, table: Table, key: tuple[str, ...], field: ColumnField) -> None:
        column = self._column(table, field.column, field.place)
        if column is None:
            return
        if field.opensearch == _FLAT:
            self._warning(
                field.place,
                f"{table.name}.{column.name} becomes a {_FLAT}: a text of more than 32,766 bytes in it "
                "makes the cluster refuse the document",
                'A CHECK on the column keeps it shorter; `on_error = "quarantine"` leaves the document out.',
            )
        self._check_type(table, column, field)
        if field.transforms and not type_check.holds_texts(column):
            self._misfit(table, column, field.place, "has transforms, which are for text")
        if field.required and field.default is None and field.column not in key:
            self._check_not_null(table, (field.column,), field.place)
        if field.default is not None and not type_check.accepts(field.opensearch, field.default):
            problem = f"the default {field.default!r} is no {field.opensearch}, and the index refuses it"
            self._error(field.place, problem, "Write a value of the field's type.")

    def _check_type(self, table: Table, column: Column, field: ColumnField) -> None:
        """Check that the field's type reads the column's."""
        what, remedy = f"{table.name}.{column.name} is {column.type}", type_check.custom_remedy(field, column)
        if field.tag == "custom":
            if not type_check.reads_custom(field.postgres, column):
                self._error(field.place, f"{what} and accepts only {', '.join(field.postgres)}", remedy)
        elif not type_check.reads(field.tag, column):
            tags = type_check.fitting_tags(column)
            declare = f"Declare it as {' or '.join(tags[:3])}." if tags else remedy
            self._error(field.place, f"{what} and is declared as {field.tag}", declare)

    def _check_not_null(self, table: Table, names: Iterable[str], place: Place) -> None:
        """Warn where a required field's column may be NULL."""
        loose = [name for name in names if (column := table.column(name)) and not column.not_null]
        if loose:
            problem = f"{table.name}.{loose[0]} may be NULL, and the field is required"
            self._warning(place, problem, "Remove `required: true`, or make the column NOT NULL.")

    def _geo(self, table: Table, field: GeoField) -> None:
        if field.required:
            self._check_not_null(table, field.columns, field.place)
        for name in (field.lat, field.lon):
            column = self._column(table, name, field.place)
            if column is not None and column.category != "N":
                self._misfit(table, column, field.place, "is a coordinate, which is a number")
        single = self._column(table, field.column, field.place)
        if single is not None and not (type_check.is_text(single) or type_check.reads("json", single)):
            self._misfit(table, single, field.place, "is a point, which is json or text")

    def _map(self, table: Table, field: MapField) -> None:
        column = self._column(table, field.column, field.place)
        if field.required:
            self._check_not_null(table, (field.column,), field.place)
        if column is not None and not type_check.reads("json", column):
            self._misfit(table, column, field.place, "is a map, which is json")

    # related rows

    def join(self, parent: Table, key: tuple[str, ...], field: JoinField) -> None:
        table = self._table(field.table, field.table_place or field.place)
        if table is None:
            return
        self._key(table, field.primary_key, field.place)
        if field.kind == "belongs_to":
            self._check_link((parent, field.column), (table, field.primary_key), field.place, is_below=False)
            if field.required:
                self._check_not_null(parent, field.column, field.place)
                self._check_required_row(parent, field, table)
        self._children(parent, key, table, field)
        self._filters(table, field.filters)
        for term in field.order_by:
            column = self._column(table, term.column, field.place)
            if column is not None and not type_check.is_ordered(column):
                self._misfit(table, column, field.place, "has no order")
        self._fields(table, field.primary_key, field.fields)

    def _check_required_row(self, parent: Table, field: JoinField, table: Table) -> None:
        """Warn where no foreign key guarantees the required row."""
        if not any(
            key.holds and key.target == table.name and set(key.columns) == set(field.column)
            for key in parent.foreign_keys
        ):
            problem = f"no foreign key keeps the row of {table.name} that the field requires"
            self._warning(field.place, problem, "Remove `required: true`, or add the foreign key.")

    def _children(
        self, parent: Table, key: tuple[str, ...], table: Table, field: JoinField | AggregateField
    ) -> None:
        """Check the lookup of the rows of `table` that belong to a row of `parent`."""
        if field.foreign_key:
            reader = f"each change of {table.name}"
            referred = self._referred((parent, key), field.references, field.place, reader)
            self._check_link((table, field.foreign_key), referred, field.place, is_below=True)
        if field.through is not None:
            self._through(field, field.through, (parent, key), (table, field.primary_key))

    def _through(
        self, field: JoinField | AggregateField, through: Through, left: _Side, right: _Side
    ) -> None:
        junction = self._table(through.table, field.place)
        if junction is None:
            return
        self._filters(junction, through.filters)
        named = [tuple(filter(None, (name,))) for name in (through.left_references, through.right_references)]
        left = self._referred(left, named[0], field.place, f"each change of {junction.name}")
        right = self._referred(right, named[1], field.place, _ASSEMBLING)
        self._check_link((junction, (through.left_key,)), left, field.place, is_below=True)
        self._check_link((junction, (through.right_key,)), right, field.place, is_below=False)

    def _referred(self, side: _Side, columns: tuple[str, ...], place: Place, reader: str) -> _Side:
        """Return the columns that another table's rows refer to: those of a side, unless others are named."""
        if not columns:
            return side
        table, _ = side
        self._check_pairs(table, columns, table, columns, place)
        self._check_index(table, columns, place, reader)
        return table, columns

    def _aggregate(self, parent: Table, key: tuple[str, ...], field: AggregateField) -> None:
        table = self._table(field.table, field.table_place or field.place)
        if table is None:
            return
        self._children(parent, key, table, field)
        self._filters(table, field.filters)
        if field.op == "ids":
            self._ids(table, field)
        column = self._column(table, field.column, field.place)
        if column is not None and not type_check.reduces(field.op, field.value_type, column):
            result = f" to {field.value_type}" if field.value_type else ""
            tags = type_check.fitting_tags(column) if field.op in ("min", "max") else []
            self._misfit(table, column, field.place, f"cannot be reduced by {field.op}{result}", tags)

    def _ids(self, table: Table, field: AggregateField) -> None:
        if len(field.primary_key) != 1:
            key = ", ".join(field.primary_key) or "none"
            problem = f"ids collects a key of one column, and {table.name} has: {key}"
            self._error(field.place, problem, "Use has_many with the key's columns as fields.")
            return
        column = self._column(table, field.primary_key[0], field.place)
        if column is not None and field.value_type and not type_check.collects(field.value_type, column):
            tags = type_check.fitting_tags(column)
            self._misfit(table, column, field.place, f"is collected as {field.value_type}", tags)

    # what they share

    def _table(self, name: TableName, place: Place) -> Table | None:
        table = self._catalog.tables.get(name)
        if table is None:
            self._error(place, f"the database has no table {name}", self._other_table(name))
        else:
            self._advise("error", place, table_advice(table))
        return table

    def _other_table(self, name: TableName) -> str:
        """Return the remedy that names the likely intended table, in any schema."""
        neighbours = [other.name for other in self._catalog.existing if other.schema == name.schema]
        near = _did_you_mean(name.name, neighbours)
        homes = [other.schema for other in self._catalog.existing if other.name == name.name]
        if homes and not near:
            return f"There is one in the schema {homes[0]!r}: add `schema: {homes[0]}`."
        return near or "Correct `table:` or `schema:`."

    def _column(self, table: Table, name: str | None, place: Place) -> Column | None:
        if name is None:
            return None
        column = table.column(name)
        if column is None:
            names = ", ".join(known.name for known in table.columns[:20])
            near = _did_you_mean(name, [known.name for known in table.columns])
            self._error(place, f"the table {table.name} has no column {name!r}", near or f"It has: {names}.")
        return column

    def _join_column(self, table: Table, name: str, place: Place) -> Column | None:
        column = self._column(table, name, place)
        # A row could not be led to its documents by a column that the log lacks.
        if column is not None and column.generated:
            problem = f"{table.name}.{column.name} is generated: the log does not carry it"
            self._error(place, problem, "Join by an ordinary column.")
        return column

    def _key(self, table: Table, key: Sequence[str], place: Place) -> None:
        """Check that `key` identifies a row."""
        if table.kind not in KINDS and None not in [self._column(table, name, place) for name in key]:
            self._advise("error", place, key_advice(table, key))

    def _check_link(self, holder: _Side, target: _Side, place: Place, *, is_below: bool) -> None:
        """Check the columns by which rows of `holder` refer to those of `target`.

        `is_below`: the holder's rows are nested, so that assembly looks them up by the target's key; else a
        change of the target does.
        """
        self._check_pairs(*holder, *target, place)
        self._check_index(*holder, place, _ASSEMBLING if is_below else f"each change of {target[0].name}")
        below, above = (holder, target) if is_below else (target, holder)
        self._check_conversion(below, above, place)

    def _check_pairs(
        self, left: Table, columns: Sequence[str], right: Table, key: Sequence[str], place: Place
    ) -> None:
        """Check that the columns that join two tables exist, can be compared, and are in the log."""
        found = [self._join_column(left, name, place) for name in columns]
        if len(columns) != len(key):
            if key:
                counted = quantity(len(columns), "column")
                problem = f"{counted} of {left.name} for a key of {len(key)} in {right.name}"
                self._error(place, problem, f"Name one for each of: {', '.join(key)}.")
            return
        for column, name in zip(found, key, strict=True):
            target = right.column(name)
            if column is not None and target is not None and not type_check.are_comparable(column, target):
                compared = f"{right.name}.{name} ({_shown(target)})"
                problem = f"{left.name}.{column.name} ({_shown(column)}) cannot be compared with {compared}"
                self._error(place, problem, "Join by columns of the same type and collation.")

    def _check_index(self, table: Table, columns: Sequence[str], place: Place, reader: str) -> None:
        """Warn where `reader` looks rows up by these columns without an index."""
        if table.kind not in KINDS and all(table.column(name) is not None for name in columns):
            self._advise("warning", place, index_advice(table, columns, reader))

    def _check_conversion(self, below: _Side, above: _Side, place: Place) -> None:
        """Warn where an index exists and cannot serve, because its column is compared as another type.

        Assembly finds the rows of `below` by the values of `above`. A change of `below` finds the rows of
        `above`, by values that have a collation only where it is nondeterministic.
        """
        upwards = f"each change of {below[0].name}"
        for side, other, reader in ((below, above, _ASSEMBLING), (above, below, upwards)):
            table, names = side
            for name, target in zip(names, other[1], strict=False):
                column, compared = table.column(name), other[0].column(target)
                if column is None or compared is None or not type_check.are_comparable(column, compared):
                    return
                if reader is upwards and not compared.nondeterministic:
                    compared = dataclasses.replace(compared, collation="")
                if table.serves(names) and not as_stored(column, compared):
                    self._advise(
                        "warning", place, conversion_advice(table, column, other[0], compared, reader)
                    )

    def _filters(self, table: Table, filters: Iterable[Filter]) -> None:
        for condition in filters:
            column = self._column(table, condition.column, condition.place)
            moments = [value for value in condition.values if isinstance(value, str) and is_moment(value)]
            if column is not None and column.base_type in _MOMENTS and moments:
                problem = f"{moments[0]!r} is another moment at every reading, and no change says so"
                self._error(
                    condition.place, problem, "Write a fixed date, or filter by the time when you search."
                )

    def _misfit(
        self, table: Table, column: Column, place: Place, problem: str, tags: Sequence[str] = ()
    ) -> None:
        remedy = f"Declare it as {' or '.join(tags[:3])}." if tags else "Use a column of another type."
        self._error(place, f"{table.name}.{column.name} is {column.type} and {problem}", remedy)

    def _advise(self, level: Literal["error", "warning"], place: Place, advice: Advice | None) -> None:
        if advice is not None:
            error = LocatedError(Kind.BINDING, place, advice.problem, advice.remedy).mended_by(advice.sql)
            self.findings.append(BindingFinding(level, error))

    def _error(self, place: Place, problem: str, remedy: str) -> None:
        self._advise("error", place, Advice(problem, remedy))

    def _warning(self, place: Place, problem: str, remedy: str) -> None:
        self._advise("warning", place, Advice(problem, remedy))
