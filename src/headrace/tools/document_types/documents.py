"""Derive the type of an index's documents from its schema, and from the database where one is given. Pure.

Assembly writes every key of a document, so no key is ever missing; what may be absent is null. Without the
database a value has the type that its type key names, and `required` alone says that it is never null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.catalog.comparison import is_foreign
from headrace.catalog.table import Catalog, Column
from headrace.catalog.type_check import canonical
from headrace.catalog.types import RowType
from headrace.model.names import TableName
from headrace.model.types import TYPES, ArrowForm, Json, TypeRow
from headrace.model.value_type import ValueType
from headrace.schema.language import SCALARS
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    ConstantField,
    Field,
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    ObjectField,
    Scalar,
)
from headrace.tools.document_types.json_type import (
    ANY,
    BOOLEAN,
    INTEGER,
    NULL,
    NUMBER,
    POINT,
    STRING,
    JsonChoice,
    JsonConstant,
    JsonList,
    JsonMap,
    JsonObject,
    JsonProperty,
    JsonType,
    TypeNames,
    union,
)

_BY_FORM: dict[Json, JsonType] = {
    Json.BOOLEAN: BOOLEAN,
    Json.NUMBER: NUMBER,
    Json.STRING: STRING,
    Json.MOMENT: STRING,
    Json.BASE64: STRING,
    Json.ITSELF: ANY,
    Json.OBJECT: JsonMap(union(STRING, NULL)),
    Json.ARRAY: JsonList(INTEGER),  # by name alone: int2vector, oidvector
}
"""The types of values that consist of no others; an object is an hstore, an array a vector."""


def _json_of_row(row: TypeRow) -> JsonType:
    if row.extension == "vector":
        return JsonList(NUMBER)
    return INTEGER if row.form is ArrowForm.INTEGER else _BY_FORM[row.json]


_BY_NAME: dict[str, JsonType] = {name: _json_of_row(row) for row in TYPES for name in row.names}
_BY_TAG: dict[str, JsonType] = {
    **dict.fromkeys(SCALARS, STRING),
    **dict.fromkeys(("short", "integer", "long"), INTEGER),
    **dict.fromkeys(("float", "double", "decimal"), NUMBER),
    "boolean": BOOLEAN,
    "json": ANY,
}
_BY_PYTHON: dict[type, JsonType] = {bool: BOOLEAN, int: INTEGER, float: NUMBER, str: STRING}
_MAY_BE_INFINITE = frozenset("numeric float4 float8 date timestamp timestamptz point".split())
"""The types of columns with values that are null in documents, like NaN and infinity."""


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """What the database knows of the tables that documents read."""

    catalog: Catalog
    rows: Mapping[TableName, RowType]


def document_type(spec: IndexSpec, database: ColumnTypes | None, names: TypeNames, name: str) -> JsonObject:
    """Return the type of the documents of an index.

    Args:
        spec: its schema, completed from the catalog where there is one.
        database: what the database knows; None: the schema alone decides.
        names: gives names to the types of related rows.
        name: the name of the type.
    """
    properties = _Reader(database, names, spec).properties(spec.fields, spec.table, (spec.name,))
    row = f"A document of {spec.name}: a row of {spec.table}"
    changed = f", before {spec.transform} changes it" if spec.transform is not None else ""
    description = "\n\n".join(filter(None, (spec.description, f"{row}{changed}.")))
    return JsonObject(name, properties, description)


class _Reader:
    """Walks the fields of one index."""

    def __init__(self, database: ColumnTypes | None, names: TypeNames, spec: IndexSpec) -> None:
        self._database = database
        self._names = names
        self._root = spec.table
        self._key = spec.primary_key

    def properties(
        self, fields: Iterable[Field], table: TableName, above: tuple[str, ...]
    ) -> tuple[JsonProperty, ...]:
        """Return the properties of a row of `table`; `above` is the way to it, from the index on."""
        return tuple(
            JsonProperty(field.key, self._type(field, table, (*above, field.key)), field.description)
            for field in fields
        )

    def _type(self, field: Field, table: TableName, path: tuple[str, ...]) -> JsonType:  # noqa: PLR0911, one for each kind
        match field:
            case ColumnField():
                return self._scalar(field, table, path)
            case MapField():
                value = ANY if field.values is None else _BY_TAG[field.values]
                return self._or_null(JsonMap(value), table, (field.column,), required=field.required)
            case GeoField():
                return self._geo(field, table)
            case ObjectField():
                return JsonObject(self._names.name(*path), self.properties(field.fields, table, path))
            case ConstantField(value=value):
                if isinstance(value, float):
                    return NUMBER
                return NULL if value is None else JsonConstant(value)
            case JoinField():
                return self._join(field, table, path)
            case AggregateField():
                return self._aggregate(field)

    def _scalar(self, field: ColumnField, table: TableName, path: tuple[str, ...]) -> JsonType:
        is_known = self._database is not None
        type_ = self._column_type(table, field.column, path) if is_known else _declared(field)
        # A transform makes texts of the elements.
        if field.transforms and isinstance(type_, JsonList):
            type_ = JsonList(union(STRING, NULL))
        if field.variants:
            default = (field.default,) if isinstance(field.default, str) else ()
            values = tuple(dict.fromkeys((*field.variants, *default)))
            type_ = _with_choice(type_, JsonChoice(self._names.name(*path), values))
        if field.default is None:
            return self._or_null(type_, table, (field.column,), required=field.required)
        return type_ if _holds(type_, field.default) else union(type_, _BY_PYTHON[type(field.default)])

    def _geo(self, field: GeoField, table: TableName) -> JsonType:
        type_: JsonType = POINT
        if field.column is not None:
            column = self._column(table, field.column)
            if column is None or column.base_type in ("json", "jsonb"):
                type_ = ANY
            elif column.base_type != "point" and not is_foreign(column):
                type_ = STRING
        return self._or_null(type_, table, field.columns, required=field.required)

    def _join(self, field: JoinField, table: TableName, path: tuple[str, ...]) -> JsonType:
        row: JsonType
        if field.scalar:
            [only] = field.fields
            row = self._type(only, field.table, (*path, only.key))
        else:
            row = JsonObject(self._names.name(*path), self.properties(field.fields, field.table, path))
        if field.to_many:
            return JsonList(row)
        return row if self._is_there(field, table) else union(row, NULL)

    def _is_there(self, field: JoinField, table: TableName) -> bool:
        """Return whether there is always a related row: by a foreign key, else where the schema says so."""
        if self._database is None or field.kind == "has_one":
            return field.required
        linked = set(zip(field.primary_key, field.column, strict=True))
        is_kept = any(
            key.holds
            and key.target == field.table
            and set(zip(key.target_columns, key.columns, strict=True)) == linked
            for key in self._database.catalog[table].foreign_keys
        )
        return is_kept and self._not_null(table, field.column) and (field.required or not field.filters)

    def _aggregate(self, field: AggregateField) -> JsonType:
        if field.op == "count":
            return INTEGER
        if field.op == "avg":
            return union(NUMBER, NULL)
        name = field.column or next(iter(field.primary_key), None)  # of `ids` the key
        if self._database is None or name is None:
            type_ = _BY_TAG[field.value_type or "text"]
        else:
            type_ = self._column_type(field.table, name, ())
        if field.op != "ids":
            return union(type_, NULL)
        is_there = self._database is None or self._not_null(field.table, field.primary_key)
        return JsonList(type_ if is_there else union(type_, NULL))

    # what the database knows

    def _column(self, table: TableName, name: str) -> Column | None:
        return None if self._database is None else self._database.catalog[table].column(name)

    def _column_type(self, table: TableName, name: str, path: tuple[str, ...]) -> JsonType:
        """Return the type of a column's values; `path` names what a composite type becomes."""
        database, column = self._database, self._column(table, name)
        if database is None or column is None:
            return ANY
        type_ = database.rows[table].columns[name]
        is_known = type_.name in _BY_NAME or type_.form is not ArrowForm.TEXT or not is_foreign(column)
        return self._json(type_, path) if is_known else ANY  # an extension's type may have its own JSON

    def _json(self, type_: ValueType, path: tuple[str, ...], form: Json | None = None) -> JsonType:
        """Return the type of values in JSON; `form`: where it is another than that of a column."""
        if type_.form is ArrowForm.COMPOSITE:
            parts = zip(type_.names, type_.parts, strict=True)
            properties = tuple(
                JsonProperty(name, union(self._json(part, (*path, name), part.json_in_composite), NULL))
                for name, part in parts
            )
            return JsonObject(self._names.name(*path), properties)
        if type_.form is ArrowForm.ARRAY:
            result = union(self._json(type_.parts[0], path), NULL)
            for _ in range(type_.dimensions):
                result = JsonList(result)
            return result
        if type_.form is ArrowForm.VECTOR and form is not Json.STRING:
            return JsonList(self._json(type_.parts[0], path))
        if form is not Json.STRING and _is_whole(type_):
            return INTEGER
        return _BY_FORM[form or type_.json]

    def _not_null(self, table: TableName, names: Iterable[str]) -> bool:
        columns = [self._column(table, name) for name in names]
        key = self._key if table == self._root else ()
        return all(column is not None and (column.not_null or column.name in key) for column in columns)

    def _or_null(
        self, type_: JsonType, table: TableName, columns: tuple[str, ...], *, required: bool
    ) -> JsonType:
        """Return the type with null, unless these columns of a row always have a value that JSON has."""
        if self._database is None:
            return type_ if required else union(type_, NULL)
        found = [self._column(table, name) for name in columns]
        is_sure = required or not any(
            column is None or column.base_type in _MAY_BE_INFINITE for column in found
        )
        return type_ if is_sure and self._not_null(table, columns) else union(type_, NULL)


def _declared(field: ColumnField) -> JsonType:
    """Return the type that a schema file alone names."""
    if field.tag != "custom":
        return _BY_TAG[field.tag]
    types = {_custom(canonical(name)) for name in field.postgres}
    return types.pop() if len(types) == 1 else ANY


def _custom(name: str) -> JsonType:
    if name.startswith("_"):
        return JsonList(union(_custom(name[1:]), NULL))
    return _BY_NAME.get(name, ANY)


def _with_choice(type_: JsonType, choice: JsonChoice) -> JsonType:
    """Put `choice` in place of texts, also of those in a list."""
    if type_ == STRING:
        return choice
    if isinstance(type_, JsonList):
        return JsonList(union(choice, NULL))
    return type_


def _holds(type_: JsonType, default: Scalar) -> bool:
    """Return whether a default has the type of a field's values."""
    if isinstance(type_, JsonChoice):
        return isinstance(default, str)
    return union(type_, _BY_PYTHON[type(default)]) == type_


def _is_whole(type_: ValueType) -> bool:
    """Return whether the values are whole numbers."""
    if type_.form is ArrowForm.DECIMAL:
        return bool(pa.types.is_decimal(type_.arrow)) and type_.arrow.scale == 0
    return type_.form is ArrowForm.INTEGER
