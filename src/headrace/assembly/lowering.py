"""Which columns does each field of the user's tree stand for?

Whatever the tree asks for and this room cannot do is an error with the field's place; nothing is ignored.
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
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
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
    Place,
)


def plan_document(spec: IndexSpec, catalog: Catalog) -> DocumentPlan:
    """The plan of the index's documents.

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
        members = tuple(Member(one.key, self._value(table, key, one)) for one in fields)
        if len({member.key for member in members}) < len(members):
            raise _wrong(place, "two fields have the same document key", "Rename one of them.")
        return members

    def _value(self, table: Table, key: tuple[Column, ...], one: Field) -> Value:  # noqa: PLR0911, one for each kind
        match one:
            case ColumnField():
                return self._scalar(table, one)
            case MapField():
                return ColumnValue(self._column(table, one.column, one.place))
            case GeoField():
                return self._geo(table, one)
            case ObjectField():
                return ObjectValue(self._members(table, key, one.fields, one.place))
            case ConstantField():
                return ConstantValue(_json(one.value))
            case JoinField():
                return self._join(table, key, one)
            case AggregateField():
                return self._aggregate(key, one)

    def _scalar(self, table: Table, one: ColumnField) -> ColumnValue:
        column = self._column(table, one.column, one.place)
        if one.transforms and not (holds_texts(column) or column.base_type in TEXTUAL):
            raise _wrong(
                one.place,
                f"column {column.name} of {table.name} is {column.type}, which cannot be transformed",
                "Transforms work on text.",
            )
        return ColumnValue(column, one.transforms, _json(one.default))

    def _geo(self, table: Table, one: GeoField) -> PointValue | LocationValue:
        if one.column is not None:
            return LocationValue(self._column(table, one.column, one.place))
        if one.lat is None or one.lon is None:
            raise _wrong(one.place, f"{one.key} has no place", "Give lat and lon, or column.")
        lat, lon = (self._column(table, name, one.place) for name in (one.lat, one.lon))
        for column in (lat, lon):
            if column.category != "N":
                raise _wrong(one.place, f"column {column.name} of {table.name} is {column.type}, no number")
        return PointValue(lat, lon)

    def _join(self, parent: Table, parent_key: tuple[Column, ...], one: JoinField) -> RelatedValue:
        table = self._table(one.table, one.place)
        key = self._key(table, one.primary_key, one.place)
        junction = None
        links: tuple[tuple[Column, Column], ...] = ()
        if one.kind == "many_to_many":
            junction = self._junction(parent_key, key, one)
        elif one.kind == "belongs_to":
            holders = self._columns(parent, one.column, one.place)
            links = _paired(key, holders, one.place)
        else:
            links = _paired(self._columns(table, one.foreign_key, one.place), parent_key, one.place)
        relation = RelationPlan(table, key, links, junction, self._conditions(table, one.filters))
        return RelatedValue(
            relation=relation,
            members=self._members(table, key, one.fields, one.place),
            order=tuple(
                (self._column(table, term.column, one.place), term.descending) for term in one.order_by
            ),
            limit=one.limit,
            many=one.to_many,
        )

    def _aggregate(self, parent_key: tuple[Column, ...], one: AggregateField) -> AggregateValue:
        table = self._table(one.table, one.place)
        key = self._key(table, one.primary_key, one.place)
        junction = None
        links: tuple[tuple[Column, Column], ...] = ()
        if one.through is not None:
            junction = self._junction(parent_key, key, one)
        else:
            links = _paired(self._columns(table, one.foreign_key, one.place), parent_key, one.place)
        relation = RelationPlan(table, key, links, junction, self._conditions(table, one.filters))
        return AggregateValue(one.op, relation, self._reduced(table, key, one))

    def _reduced(self, table: Table, key: tuple[Column, ...], one: AggregateField) -> Column | None:
        if one.column is not None:
            column = self._column(table, one.column, one.place)
        elif one.op == "count":
            return None
        elif one.op == "ids" and len(key) == 1:
            return key[0]
        else:
            raise _wrong(one.place, f"{one.op} needs a column of {table.name}", "Add column.")
        if one.op in ("sum", "avg") and column.base_type not in AVERAGED:
            raise _wrong(
                one.place,
                f"column {column.name} of {table.name} is {column.type}, which has no {one.op}",
                "Choose a column that holds numbers.",
            )
        if one.op in ("min", "max") and column.base_type in ("json", "xml", "point"):
            raise _wrong(one.place, f"column {column.name} of {table.name} is {column.type}: it has no order")
        return column

    def _junction(
        self,
        parent_key: tuple[Column, ...],
        key: tuple[Column, ...],
        one: JoinField | AggregateField,
    ) -> Junction:
        if one.through is None:
            raise _wrong(one.place, f"{one.key} names no junction table", "Add through.")
        if len(parent_key) != 1 or len(key) != 1:
            raise _wrong(
                one.place, f"{one.key} goes through {one.through.table} between keys of several columns"
            )
        between = self._table(one.through.table, one.place)
        left, right = self._columns(between, (one.through.left_key, one.through.right_key), one.place)
        return Junction(between, left, parent_key[0], right, key[0])

    def _conditions(self, table: Table, filters: Iterable[Filter]) -> tuple[RowCondition, ...]:
        conditions = []
        for one in filters:
            if one.op == "raw" and (problem := raw_problem(one.raw or "", unsafe=one.unsafe)):
                raise _wrong(one.place, problem, RAW_REMEDY)
            column = None if one.column is None else self._column(table, one.column, one.place)
            if (one.op == "raw") != (column is None):
                raise _wrong(one.place, f"a filter of the kind {one.op} cannot be read")
            conditions.append(RowCondition(one, column))
        return tuple(conditions)

    def _table(self, name: TableName, place: Place) -> Table:
        if name not in self._catalog:
            raise _wrong(place, f"there is no table {name}", "Correct its name or its schema.")
        return self._catalog[name]

    def _column(self, table: Table, name: str, place: Place) -> Column:
        column = table.column(name)
        if column is None:
            raise _wrong(place, f"table {table.name} has no column {name}", "Correct the column's name.")
        return column

    def _columns(self, table: Table, names: Iterable[str], place: Place) -> tuple[Column, ...]:
        return tuple(self._column(table, name, place) for name in names)

    def _key(self, table: Table, declared: tuple[str, ...], place: Place) -> tuple[Column, ...]:
        names = declared or table.primary_key
        key = self._columns(table, names, place)
        if not any(set(unique.columns) <= set(names) for unique in table.unique_keys):
            raise _wrong(
                place,
                f"({', '.join(names)}) is no key of {table.name}: no unique index covers it",
                "Name the primary key, or add a unique index.",
            )
        return key


def _paired(
    related: tuple[Column, ...], parent: tuple[Column, ...], place: Place
) -> tuple[tuple[Column, Column], ...]:
    if not related or len(related) != len(parent):
        raise _wrong(
            place,
            f"{len(related)} columns of the related table meet {len(parent)} of its parent",
            "Name as many columns as the key has.",
        )
    return tuple(zip(related, parent, strict=True))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _wrong(place: Place, cause: str, remedy: str = "") -> HeadraceError:
    return HeadraceError(Kind.SCHEMA, f"{place}: {cause}", remedy)
