"""Resolve the fields of a schema's tree to columns of the catalog.

What does not exist is an error with the field's place; nothing is ignored. Whether a column's type fits what
is done with it, `headrace.catalog.binding` decides, and the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

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
from headrace.catalog.table import Catalog, Column, Table, find_column, find_columns, find_table
from headrace.errors import Kind, LocatedError, Place
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
        table = find_table(self._catalog, spec.table, spec.place)
        key = self._key(table, spec.primary_key, spec.place)
        deletion = None
        if spec.soft_delete is not None:
            place = spec.soft_delete.place
            column = find_column(table, spec.soft_delete.column, place)
            deletion = Deletion(column, self._conditions(table, spec.soft_delete.when))
        return DocumentPlan(
            index=spec.name,
            table=table,
            key=key,
            members=self._members(table, key, spec.fields),
            conditions=self._conditions(table, spec.filters),
            deletion=deletion,
            routing=None if spec.routing is None else find_column(table, spec.routing, spec.place),
        )

    def _members(self, table: Table, key: tuple[Column, ...], fields: Iterable[Field]) -> tuple[Member, ...]:
        return tuple(Member(field.key, self._value(table, key, field)) for field in fields)

    def _value(self, table: Table, key: tuple[Column, ...], field: Field) -> Value:  # noqa: PLR0911, one for each kind
        match field:
            case ColumnField():
                column = find_column(table, field.column, field.place)
                return ColumnValue(column, field.transforms, _json(field.default))
            case MapField():
                return ColumnValue(find_column(table, field.column, field.place))
            case GeoField():
                return self._geo(table, field)
            case ObjectField():
                return ObjectValue(self._members(table, key, field.fields))
            case ConstantField():
                return ConstantValue(_json(field.value))
            case JoinField():
                return self._join(table, key, field)
            case AggregateField():
                return self._aggregate(table, key, field)

    def _geo(self, table: Table, field: GeoField) -> PointValue | LocationValue:
        if field.column is not None:
            return LocationValue(find_column(table, field.column, field.place))
        lat, lon = find_columns(table, filter(None, (field.lat, field.lon)), field.place)
        return PointValue(lat, lon)

    def _join(self, parent: Table, parent_key: tuple[Column, ...], field: JoinField) -> RelatedValue:
        relation = self._relation(parent, parent_key, field)
        table = relation.table
        members = self._members(table, relation.key, field.fields)
        order = [(find_column(table, term.column, field.place), term.descending) for term in field.order_by]
        return RelatedValue(relation, members, tuple(order), field.limit, field.to_many, field.scalar)

    def _relation(
        self, parent: Table, parent_key: tuple[Column, ...], field: JoinField | AggregateField
    ) -> RelationPlan:
        table = find_table(self._catalog, field.table, field.place)
        key = self._key(table, field.primary_key, field.place)
        kind = field.kind if isinstance(field, JoinField) else ""
        junction = None
        links: tuple[tuple[Column, Column], ...] = ()
        if kind == "many_to_many" or field.through is not None:
            junction = self._junction((parent, parent_key), (table, key), field)
        elif isinstance(field, JoinField) and kind == "belongs_to":
            links = _pair(key, find_columns(parent, field.column, field.place), field.place)
        else:
            referred = find_columns(parent, field.references, field.place) or parent_key
            links = _pair(find_columns(table, field.foreign_key, field.place), referred, field.place)
        return RelationPlan(table, key, links, junction, self._conditions(table, field.filters))

    def _aggregate(
        self, parent: Table, parent_key: tuple[Column, ...], field: AggregateField
    ) -> AggregateValue:
        relation = self._relation(parent, parent_key, field)
        table, key, column = relation.table, relation.key, None
        if field.column is not None:
            column = find_column(table, field.column, field.place)
        elif field.op == "ids" and len(key) == 1:
            column = key[0]
        elif field.op != "count":
            raise _schema_error(field.place, f"{field.op} needs a column of {table.name}", "Add column.")
        return AggregateValue(field.op, relation, column)

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
        ends = [find_columns(table, [name], field.place) if name else key for table, key, name in sides]
        # A junction has one column for each side.
        if any(len(end) != 1 for end in ends):
            raise _schema_error(
                field.place, f"{field.key} goes through {through.table} between keys of several columns"
            )
        junction_table = find_table(self._catalog, through.table, field.place)
        left, right = find_columns(junction_table, (through.left_key, through.right_key), field.place)
        conditions = self._conditions(junction_table, through.filters)
        return Junction(junction_table, left, ends[0][0], right, ends[1][0], conditions)

    def _conditions(self, table: Table, filters: Iterable[Filter]) -> tuple[RowCondition, ...]:
        conditions = []
        for filter_ in filters:
            if filter_.op == "raw" and (problem := raw_problem(filter_.raw or "", unsafe=filter_.unsafe)):
                raise _schema_error(filter_.place, problem, RAW_REMEDY)
            column = None if filter_.column is None else find_column(table, filter_.column, filter_.place)
            if (filter_.op == "raw") != (column is None):
                raise _schema_error(filter_.place, f"a filter of the kind {filter_.op} cannot be read")
            conditions.append(RowCondition(filter_, column))
        return tuple(conditions)

    def _key(self, table: Table, declared: tuple[str, ...], place: Place) -> tuple[Column, ...]:
        names = declared or table.primary_key
        key = find_columns(table, names, place)
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
