"""Does the database have what a specification names, and can documents be right there?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.catalog import fitting
from headrace.catalog.table import Catalog, Column, Table
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.model.nearest import nearest
from headrace.postgres import quoting
from headrace.spec.problems import LocatedError
from headrace.spec.tree import (
    AggregateField,
    ColumnField,
    Field,
    Filter,
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    ObjectField,
    Place,
    Through,
)

_Side = tuple[Table, tuple[str, ...]]
"""A table of a join and the key by which its rows are known."""

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found: an `error` that must be corrected, or a `warning` that documents survive."""

    level: Literal["error", "warning"]
    error: HeadraceError


def bind(spec: IndexSpec, catalog: Catalog) -> list[HeadraceError]:
    """What keeps `spec` from being built from the database that `catalog` describes; empty: nothing does."""
    return [finding.error for finding in findings(spec, catalog) if finding.level == "error"]


def findings(spec: IndexSpec, catalog: Catalog) -> list[Finding]:
    """Errors and warnings about `spec`, each once, in the order of the file."""
    binder = _Binder(catalog)
    binder.index(complete(spec, catalog))
    return list({str(finding.error): finding for finding in binder.findings}.values())


def complete(spec: IndexSpec, catalog: Catalog) -> IndexSpec:
    """`spec` with the primary keys that the file leaves out: the root's, and those that aggregates count."""
    table = catalog.tables.get(spec.table)
    primary_key = spec.primary_key or (table.primary_key if table else ())
    return dataclasses.replace(spec, primary_key=primary_key, fields=_completed(spec.fields, catalog))


def _completed(fields: tuple[Field, ...], catalog: Catalog) -> tuple[Field, ...]:
    result: list[Field] = []
    for field in fields:
        if isinstance(field, AggregateField) and not field.primary_key and field.table in catalog:
            result.append(dataclasses.replace(field, primary_key=catalog[field.table].primary_key))
        elif isinstance(field, ObjectField | JoinField):
            result.append(dataclasses.replace(field, fields=_completed(field.fields, catalog)))
        else:
            result.append(field)
    return tuple(result)


class _Binder:
    """Walks one specification; collects findings."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.findings: list[Finding] = []

    def index(self, spec: IndexSpec) -> None:
        table = self._table(spec.table, spec.place)
        if table is None:
            return
        if not spec.primary_key:
            self._error(
                spec.place,
                f"the table {spec.table} has no primary key, and the schema names none",
                f"ALTER TABLE {quoting.table(spec.table)} ADD PRIMARY KEY (…);",
            )
        else:
            self._key(table, spec.primary_key, spec.place)
        self._filters(table, spec.filters)
        if spec.soft_delete is not None:
            self._column(table, spec.soft_delete.column, spec.soft_delete.place)
            self._filters(table, spec.soft_delete.when)
        self._fields(table, spec.primary_key, spec.fields)

    def _fields(self, table: Table, key: tuple[str, ...], fields: Iterable[Field]) -> None:
        for field in fields:
            match field:
                case ColumnField():
                    self._scalar(table, key, field)
                case GeoField():
                    self._geo(table, field)
                case MapField():
                    self._map(table, field)
                case ObjectField():
                    self._fields(table, key, field.fields)
                case JoinField():
                    self._join(table, key, field)
                case AggregateField():
                    self._aggregate(table, key, field)

    # one row's own columns

    def _scalar(self, table: Table, key: tuple[str, ...], field: ColumnField) -> None:
        column = self._column(table, field.column, field.place)
        if column is None:
            return
        if field.tag == "custom":
            if not fitting.reads_custom(field.postgres, column):
                self._misfit(table, column, field.place, f"accepts only {', '.join(field.postgres)}", [])
        elif not fitting.reads(field.tag, column):
            self._misfit(
                table, column, field.place, f"is declared as {field.tag}", fitting.fitting_tags(column)
            )
        if field.transforms and not fitting.is_text(column):
            self._misfit(table, column, field.place, "has transforms, which are for text", [])
        if field.required and not column.not_null and field.default is None and field.column not in key:
            self._warning(
                field.place,
                f"{table.name}.{column.name} may be NULL, and the field is required",
                "Remove `required: true`, or make the column NOT NULL.",
            )

    def _geo(self, table: Table, field: GeoField) -> None:
        for name in (field.lat, field.lon):
            column = self._column(table, name, field.place) if name is not None else None
            if column is not None and column.category != "N":
                self._misfit(table, column, field.place, "is a coordinate, which is a number", [])
        single = self._column(table, field.column, field.place) if field.column is not None else None
        if single is not None and not (fitting.is_text(single) or fitting.reads("json", single)):
            self._misfit(table, single, field.place, "is a point, which is json or text", [])

    def _map(self, table: Table, field: MapField) -> None:
        column = self._column(table, field.column, field.place)
        if column is not None and not fitting.reads("json", column):
            self._misfit(table, column, field.place, "is a map, which is json", [])

    # related rows

    def _join(self, parent: Table, key: tuple[str, ...], field: JoinField) -> None:
        table = self._table(field.table, field.place)
        if table is None:
            return
        self._key(table, field.primary_key, field.place)
        if field.kind == "belongs_to":
            self._pairs(parent, field.column, table, field.primary_key, field.place)
            self._indexed(parent, field.column, field.place)
        elif field.foreign_key:
            self._pairs(table, field.foreign_key, parent, key, field.place)
            self._indexed(table, field.foreign_key, field.place)
        if field.through is not None:
            self._through(field, field.through, (parent, key), (table, field.primary_key))
        self._filters(table, field.filters)
        for term in field.order_by:
            column = self._column(table, term.column, field.place)
            if column is not None and not fitting.ordered(column):
                self._misfit(table, column, field.place, "has no order", [])
        self._fields(table, field.primary_key, field.fields)

    def _through(
        self, field: JoinField | AggregateField, through: Through, left: _Side, right: _Side
    ) -> None:
        junction = self._table(through.table, field.place)
        if junction is None:
            return
        for column, (table, key) in ((through.left_key, left), (through.right_key, right)):
            self._pairs(junction, (column,), table, key, field.place)
            self._indexed(junction, (column,), field.place)

    def _aggregate(self, parent: Table, key: tuple[str, ...], field: AggregateField) -> None:
        table = self._table(field.table, field.place)
        if table is None:
            return
        if field.foreign_key:
            self._pairs(table, field.foreign_key, parent, key, field.place)
            self._indexed(table, field.foreign_key, field.place)
        if field.through is not None:
            self._through(field, field.through, (parent, key), (table, field.primary_key))
        self._filters(table, field.filters)
        if field.op == "ids":
            self._ids(table, field)
        column = self._column(table, field.column, field.place) if field.column else None
        if column is not None and not fitting.reduces(field.op, field.value_type, column):
            result = f" to {field.value_type}" if field.value_type else ""
            tags = fitting.fitting_tags(column) if field.op in ("min", "max") else []
            self._misfit(table, column, field.place, f"cannot be reduced by {field.op}{result}", tags)

    def _ids(self, table: Table, field: AggregateField) -> None:
        if len(field.primary_key) != 1:
            key = ", ".join(field.primary_key) or "none"
            self._error(
                field.place,
                f"ids collects a key of one column, and {table.name} has: {key}",
                "Use has_many with the key's columns as fields.",
            )
            return
        column = self._column(table, field.primary_key[0], field.place)
        if column is not None and field.value_type and not fitting.collects(field.value_type, column):
            self._misfit(
                table,
                column,
                field.place,
                f"is collected as {field.value_type}",
                fitting.fitting_tags(column),
            )

    # what they share

    def _table(self, name: TableName, place: Place) -> Table | None:
        table = self._catalog.tables.get(name)
        if table is None:
            near = nearest(name.name, (known.name for known in self._catalog.tables))
            self._error(
                place,
                f"the database has no table {name}",
                f"Did you mean {near!r}?" if near else "Correct `table:` or `schema:`.",
            )
        elif table.kind in _KINDS:
            self._error(
                place,
                f"{name} is {_KINDS[table.kind]}: its changes are not in the log",
                "Name the table itself.",
            )
        return table

    def _column(self, table: Table, name: str, place: Place) -> Column | None:
        column = table.column(name)
        if column is None:
            near = nearest(name, (known.name for known in table.columns))
            names = ", ".join(known.name for known in table.columns[:20])
            self._error(
                place,
                f"the table {table.name} has no column {name!r}",
                f"Did you mean {near!r}?" if near else f"It has: {names}.",
            )
        return column

    def _key(self, table: Table, key: Sequence[str], place: Place) -> None:
        """`key` must be what identifies a row: a unique index, every column NOT NULL."""
        if table.kind in _KINDS or None in [self._column(table, name, place) for name in key]:
            return
        if any(set(known.columns) == set(key) and known.not_null for known in table.unique_keys):
            return
        real = ", ".join(table.primary_key)
        self._error(
            place,
            f"({', '.join(key)}) is no key of {table.name}: no unique index of NOT NULL columns covers it",
            f"Write `primary_key: [{real}]`." if real else "Add a primary key to the table.",
        )

    def _pairs(
        self, left: Table, columns: Sequence[str], right: Table, key: Sequence[str], place: Place
    ) -> None:
        """The columns that join two tables exist, can be compared, and are in the log."""
        found = [self._column(left, name, place) for name in columns]
        for column in found:
            if column is not None and column.generated:
                self._error(
                    place,
                    f"{left.name}.{column.name} is generated: the log does not carry it",
                    "Join by an ordinary column.",
                )
        if len(columns) != len(key):
            if key:
                self._error(
                    place,
                    f"{len(columns)} column(s) of {left.name} for a key of {len(key)} in {right.name}",
                    f"Name one for each of: {', '.join(key)}.",
                )
            return
        for column, name in zip(found, key, strict=True):
            target = right.column(name)
            if column is not None and target is not None and not fitting.comparable(column, target):
                self._error(
                    place,
                    f"{left.name}.{column.name} ({column.type}) cannot be compared with "
                    f"{right.name}.{name} ({target.type})",
                    "Join by columns of the same type.",
                )

    def _indexed(self, table: Table, columns: Sequence[str], place: Place) -> None:
        """Every change of the other side looks rows up by these columns."""
        wanted, count = set(columns), len(columns)
        if table.kind in _KINDS or any(set(leading[:count]) == wanted for leading in table.indexed):
            return
        if any(table.column(name) is None for name in columns):
            return
        listed = ", ".join(quoting.identifier(name) for name in columns)
        concurrently = "" if table.kind == "p" else " CONCURRENTLY"
        self._warning(
            place,
            f"no index of {table.name} begins with ({', '.join(columns)}): each lookup reads the whole table",
            f"CREATE INDEX{concurrently} ON {quoting.table(table.name)} ({listed});",
        )

    def _filters(self, table: Table, filters: Iterable[Filter]) -> None:
        for one in filters:
            if one.column is not None:
                self._column(table, one.column, one.place)

    def _misfit(self, table: Table, column: Column, place: Place, problem: str, tags: list[str]) -> None:
        remedy = f"Declare it as {' or '.join(tags[:3])}." if tags else "Use a column of another type."
        self._error(place, f"{table.name}.{column.name} is {column.type} and {problem}", remedy)

    def _error(self, place: Place, problem: str, remedy: str) -> None:
        self.findings.append(Finding("error", LocatedError(Kind.BINDING, place, problem, remedy)))

    def _warning(self, place: Place, problem: str, remedy: str) -> None:
        self.findings.append(Finding("warning", LocatedError(Kind.BINDING, place, problem, remedy)))
