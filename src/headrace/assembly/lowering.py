"""Resolve the fields of a schema's tree to columns of the catalog.

Whatever the tree asks for and assembly does not support is an error with the field's place; nothing is
ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from headrace.assembly.json_text import AVERAGED, TEXTUAL
from headrace.assembly.plan import (
    AggregateValue,
    ColumnValue,
    ConstantValue,
    Deletion,
    DocumentPlan,
    Junction,
    LocationValue,
    Member,
    ObjectValue,
    PointValue,
    RelatedValue,
    RelationPlan,
    RowCondition,
    Value,
)
from headrace.catalog.table import Catalog, Column, Table
from headrace.catalog.type_check import holds_texts
from headrace.errors import Kind, LocatedError, Place
from headrace.model.names import TableName
from headrace.model.units import quantity
from headrace.schema.raw import RAW_REMEDY, raw_problem
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    ConstantField,
    Field,
    Filter,
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    ObjectField,
)


def plan_document(spec: IndexSpec, catalog: Catalog) -> DocumentPlan:
    """Plan the documents of an index.

    Raises:
        HeadraceError: SCHEMA, with the place in the schema file, for an unknown table or column, a key
            that is not unique, and everything that cannot be rendered.
    """
    return _Lowering(catalog).document(spec)


class _Lowering:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def document(self, spec: IndexSpec) -> DocumentPlan:
        table = self._table(spec.table, spec.place)
        key = self._key(table, spec.primary_key, spec.place)
        deletion = None
        if spec.soft_delete is not None:
            place = spec.soft_delete.place
            column = self._column(table, spec.soft_delete.column, place)
            deletion = Deletion(column, self._conditions(table, spec.soft_delete.when))
        return DocumentPlan(
            index=spec.name,
            table=table,
            key=key,
            members=self._members(table, key, spec.fields, spec.place),
            conditions=self._conditions(table, spec.filters),
            deletion=deletion,
            routing=None if spec.routing is None else self._column(table, spec.routing, spec.place),
        )

    def _members(
        self, table: Table, key: tuple[Column, ...], fields: Iterable[Field], place: Place
    ) -> tuple[Member, ...]:
        members = tuple(Member(field.key, self._value(table, key, field)) for field in fields)
        if len({member.key for member in members}) < len(members):
            raise _schema_error(place, "two fields have the same document key", "Rename one of them.")
        return members

    def _value(self, table: Table, key: tuple[Column, ...], field: Field) -> Value:  # noqa: PLR0911, one for each kind
        match field:
            case ColumnField():
                return self._scalar(table, field)
            case MapField():
                return ColumnValue(self._column(table, field.column, field.place))
            case GeoField():
                return self._geo(table, field)
            case ObjectField():
                return ObjectValue(self._members(table, key, field.fields, field.place))
            case ConstantField():
                return ConstantValue(_json(field.value))
            case JoinField():
                return self._join(table, key, field)
            case AggregateField():
                return self._aggregate(table, key, field)

    def _scalar(self, table: Table, field: ColumnField) -> ColumnValue:
        column = self._column(table, field.column, field.place)
        if field.transforms and not (holds_texts(column) or column.base_type in TEXTUAL):
            raise _schema_error(
                field.place,
                f"column {column.name} of {table.name} is {column.type}, which cannot be transformed",
                "Transforms work on text.",
            )
        return ColumnValue(column, field.transforms, _json(field.default))

    def _geo(self, table: Table, field: GeoField) -> PointValue | LocationValue:
        if field.column is not None:
            return LocationValue(self._column(table, field.column, field.place))
        if field.lat is None or field.lon is None:
            raise _schema_error(field.place, f"{field.key} has no place", "Give lat and lon, or column.")
        lat, lon = (self._column(table, name, field.place) for name in (field.lat, field.lon))
        for column in (lat, lon):
            if column.category != "N":
                raise _schema_error(
                    field.place, f"column {column.name} of {table.name} is {column.type}, no number"
                )
        return PointValue(lat, lon)

    def _join(self, parent: Table, parent_key: tuple[Column, ...], field: JoinField) -> RelatedValue:
        relation = self._relation(parent, parent_key, field)
        table = relation.table
        return RelatedValue(
            relation=relation,
            members=self._members(table, relation.key, field.fields, field.place),
            order=tuple(
                (self._column(table, term.column, field.place), term.descending) for term in field.order_by
            ),
            limit=field.limit,
            many=field.to_many,
            scalar=field.scalar,
        )

    def _relation(
        self, parent: Table, parent_key: tuple[Column, ...], field: JoinField | AggregateField
    ) -> RelationPlan:
        table = self._table(field.table, field.place)
        key = self._key(table, field.primary_key, field.place)
        kind = field.kind if isinstance(field, JoinField) else ""
        junction = None
        links: tuple[tuple[Column, Column], ...] = ()
        if kind == "many_to_many" or field.through is not None:
            junction = self._junction((parent, parent_key), (table, key), field)
        elif isinstance(field, JoinField) and kind == "belongs_to":
            links = _pair(key, self._columns(parent, field.column, field.place), field.place)
        else:
            referred = self._columns(parent, field.references, field.place) or parent_key
            links = _pair(self._columns(table, field.foreign_key, field.place), referred, field.place)
        return RelationPlan(table, key, links, junction, self._conditions(table, field.filters))

    def _aggregate(
        self, parent: Table, parent_key: tuple[Column, ...], field: AggregateField
    ) -> AggregateValue:
        relation = self._relation(parent, parent_key, field)
        column = self._aggregated_column(relation.table, relation.key, field)
        return AggregateValue(field.op, relation, column)

    def _aggregated_column(
        self, table: Table, key: tuple[Column, ...], field: AggregateField
    ) -> Column | None:
        if field.column is not None:
            column = self._column(table, field.column, field.place)
        elif field.op == "count":
            return None
        elif field.op == "ids" and len(key) == 1:
            return key[0]
        else:
            raise _schema_error(field.place, f"{field.op} needs a column of {table.name}", "Add column.")
        if field.op in ("sum", "avg") and column.base_type not in AVERAGED:
            raise _schema_error(
                field.place,
                f"column {column.name} of {table.name} is {column.type}, which has no {field.op}",
                "Choose a column that holds numbers.",
            )
        if field.op in ("min", "max") and column.base_type in ("json", "xml", "point"):
            raise _schema_error(
                field.place, f"column {column.name} of {table.name} is {column.type}: it has no order"
            )
        return column

    def _junction(
        self,
        parent: tuple[Table, tuple[Column, ...]],
        related: tuple[Table, tuple[Column, ...]],
        field: JoinField | AggregateField,
    ) -> Junction:
        through = field.through
        if through is None:
            raise _schema_error(field.place, f"{field.key} names no junction table", "Add through.")
        sides = (*parent, through.left_references), (*related, through.right_references)
        ends = [self._columns(table, [name], field.place) if name else key for table, key, name in sides]
        # A junction has one column for each side.
        if any(len(end) != 1 for end in ends):
            raise _schema_error(
                field.place, f"{field.key} goes through {through.table} between keys of several columns"
            )
        junction_table = self._table(through.table, field.place)
        left, right = self._columns(junction_table, (through.left_key, through.right_key), field.place)
        conditions = self._conditions(junction_table, through.filters)
        return Junction(junction_table, left, ends[0][0], right, ends[1][0], conditions)

    def _conditions(self, table: Table, filters: Iterable[Filter]) -> tuple[RowCondition, ...]:
        conditions = []
        for filter_ in filters:
            if filter_.op == "raw" and (problem := raw_problem(filter_.raw or "", unsafe=filter_.unsafe)):
                raise _schema_error(filter_.place, problem, RAW_REMEDY)
            column = None if filter_.column is None else self._column(table, filter_.column, filter_.place)
            if (filter_.op == "raw") != (column is None):
                raise _schema_error(filter_.place, f"a filter of the kind {filter_.op} cannot be read")
            conditions.append(RowCondition(filter_, column))
        return tuple(conditions)

    def _table(self, name: TableName, place: Place) -> Table:
        if name not in self._catalog:
            raise _schema_error(place, f"there is no table {name}", "Correct its name or its schema.")
        return self._catalog[name]

    def _column(self, table: Table, name: str, place: Place) -> Column:
        column = table.column(name)
        if column is None:
            raise _schema_error(
                place, f"table {table.name} has no column {name}", "Correct the column's name."
            )
        return column

    def _columns(self, table: Table, names: Iterable[str], place: Place) -> tuple[Column, ...]:
        return tuple(self._column(table, name, place) for name in names)

    def _key(self, table: Table, declared: tuple[str, ...], place: Place) -> tuple[Column, ...]:
        names = declared or table.primary_key
        key = self._columns(table, names, place)
        # Two rows under one id would overwrite each other for ever.
        if not any(set(unique.columns) <= set(names) for unique in table.unique_keys):
            raise _schema_error(
                place,
                f"({', '.join(names)}) is no key of {table.name}: no unique index covers it",
                "Name the primary key, or add a unique index.",
            )
        return key


def _pair(
    related: tuple[Column, ...], parent: tuple[Column, ...], place: Place
) -> tuple[tuple[Column, Column], ...]:
    if not related or len(related) != len(parent):
        raise _schema_error(
            place,
            f"{quantity(len(related), 'column')} of the related table for {len(parent)} of its parent",
            "Name as many columns as the key has.",
        )
    return tuple(zip(related, parent, strict=True))


def _json(value: object) -> str:
    # NaN is no JSON, and the cluster would refuse every document.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _schema_error(place: Place, cause: str, remedy: str = "") -> LocatedError:
    return LocatedError(Kind.SCHEMA, place, cause, remedy)
