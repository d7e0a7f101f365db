"""Resolve declared types (domains, arrays, ranges, …) to the types of their values, and keep them as JSON.

`resolve` uses what pg_type and pg_attribute hold of a type, and the table in `headrace.model.types`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.model.types import TYPES, ArrowForm, Json, spark_type
from headrace.model.units import quantity

MOST_DIGITS = 38
"""The most digits of a decimal in Arrow and Spark."""
MONEY_DIGITS = 19

_BUILT_IN = {name: row for row in TYPES if not row.extension for name in row.names}
_VECTORS = {"int2vector": "int2", "oidvector": "oid", "vector": "float4", "halfvec": "float4"}
"""The type of a vector's elements."""
_EXTENSIONS = {(row.extension, name): row for row in TYPES if row.extension for name in row.names}

TypeKind = Literal["base", "domain", "enum", "array", "range", "multirange", "composite"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column of a table or a field of a composite type: its type, modifier and declared dimensions."""

    name: str
    type: int
    modifier: int = -1
    dimensions: int = 0


@dataclass(frozen=True, slots=True)
class DatabaseType:
    """A row of pg_type, as far as the type's values depend on it.

    Attributes:
        oid, schema, name, kind: the type.
        of: the type below it: a domain's base, an array's element, a range's subtype, a multirange's range.
        modifier: the modifier of a domain's base.
        dimensions: the number of dimensions that a domain over an array declares.
        delimiter: the delimiter between values of this type in an array.
        extension: the extension that it belongs to; empty where none.
        fields: a composite type's fields.
    """

    oid: int
    schema: str
    name: str
    kind: TypeKind
    of: int = 0
    modifier: int = -1
    dimensions: int = 0
    delimiter: str = ","
    extension: str = ""
    fields: tuple[Attribute, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a column's values: how their text is parsed, and what they become.

    Attributes:
        name: PostgreSQL's name of the type, for messages.
        form: how the text is parsed.
        json: the form in JSON.
        arrow: the Arrow type.
        parts: an array's element, a range's subtype, a multirange's range, a composite type's fields.
        names: a composite type's field names.
        delimiter: the delimiter between elements of an array or a vector; with commas a vector has brackets.
        dimensions: an array's number of dimensions.
    """

    name: str
    form: ArrowForm
    json: Json
    arrow: pa.DataType
    parts: tuple[ValueType, ...] = ()
    names: tuple[str, ...] = ()
    delimiter: str = ","
    dimensions: int = 1

    @property
    def spark(self) -> str:
        """The Spark type (DDL)."""
        return spark_type(self.arrow)

    @property
    def as_text(self) -> ValueType:
        """The type of the same column read as PostgreSQL's text, which holds every value."""
        return _text(self.name)

    @property
    def json_in_composite(self) -> Json:
        """The JSON form as a field of a composite type, where PostgreSQL has fewer forms."""
        is_oid = self.form is ArrowForm.INTEGER and self.name == "oid"
        is_embedding = self.form is ArrowForm.VECTOR and self.delimiter == ","
        is_text = self.form in (ArrowForm.MONEY, ArrowForm.BYTES) or is_oid or is_embedding
        return Json.STRING if is_text else self.json

    def unfit(self, count: int, total: int, column: str) -> HeadraceError:
        """Return the error that so many of a column's values do not fit into the Arrow type."""
        unfit = f"{count:,} of {quantity(total, 'value')} of {column} ({self.name})"
        remedy = "docs/reference/types.md lists which; read the column as text."
        return HeadraceError(Kind.VALUE, f"{unfit} do not fit into Spark's {self.spark}", remedy)


def _text(name: str, json: Json = Json.STRING) -> ValueType:
    return ValueType(name, ArrowForm.TEXT, json, pa.string())


def resolve(attribute: Attribute, types: Mapping[int, DatabaseType], money_scale: int = 2) -> ValueType:
    """Resolve the type of the values of `attribute`.

    Args:
        attribute: a column, or a field of a composite type.
        types: its type and every type that this type is composed of, by oid.
        money_scale: the decimals of `money` in this database.
    """
    declared = types[attribute.type]
    kind = _text(declared.name)
    match declared.kind:
        case "domain":
            dimensions = attribute.dimensions or declared.dimensions
            # A domain's own modifier: the column's is -1.
            base = Attribute(attribute.name, declared.of, declared.modifier, dimensions)
            kind = resolve(base, types, money_scale)
        case "array":
            element = resolve(Attribute("element", declared.of, attribute.modifier), types, money_scale)
            kind = _array(element, types[declared.of].delimiter, max(1, attribute.dimensions))
        case "range" | "multirange":
            form = ArrowForm(declared.kind)
            part = resolve(Attribute("part", declared.of), types, money_scale)
            kind = ValueType(declared.name, form, Json.STRING, arrow_of_nested(form, (part,)), (part,))
        case "composite" if declared.fields:
            parts = tuple(resolve(field, types, money_scale) for field in declared.fields)
            names = tuple(field.name for field in declared.fields)
            arrow = arrow_of_nested(ArrowForm.COMPOSITE, parts, names)
            kind = ValueType(declared.name, ArrowForm.COMPOSITE, Json.OBJECT, arrow, parts, names)
        case "base":
            kind = _base(declared, attribute.modifier, money_scale)
    return kind


def _base(declared: DatabaseType, modifier: int, money_scale: int) -> ValueType:
    # By the extension, not by the name alone: anybody may call a type `vector`.
    row = _EXTENSIONS.get((declared.extension, declared.name))
    if row is None and declared.schema == "pg_catalog":
        row = _BUILT_IN.get(declared.name)
    if row is None:
        return _text(declared.name)
    if row.form is ArrowForm.DECIMAL:
        return numeric_type(modifier)
    if row.form is ArrowForm.MONEY:
        return ValueType(declared.name, row.form, row.json, pa.decimal128(MONEY_DIGITS, money_scale))
    if row.form is ArrowForm.VECTOR:
        element = _BUILT_IN[_VECTORS[declared.name]]
        part = ValueType(element.names[0], element.form, element.json, element.arrow)
        # pgvector prints `[1,2]`, the catalog's own vectors `1 2`.
        delimiter = "," if row.extension else " "
        return ValueType(declared.name, row.form, row.json, row.arrow, (part,), delimiter=delimiter)
    return ValueType(declared.name, row.form, row.json, row.arrow)


def numeric_type(modifier: int) -> ValueType:
    """Resolve `numeric(p,s)`; since PostgreSQL 15 s may be negative or greater than p."""
    if modifier < 0:
        return _text("numeric", Json.NUMBER)
    precision = (modifier - 4) >> 16 & 0xFFFF
    # Eleven bits with a sign, since PostgreSQL 15.
    scale = ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400
    name = f"numeric({precision},{scale})"
    digits = max(precision, scale) if scale >= 0 else precision - scale
    # Arrow and Spark would round; text keeps every digit.
    if digits > MOST_DIGITS:
        return _text(name, Json.NUMBER)
    return ValueType(name, ArrowForm.DECIMAL, Json.NUMBER, pa.decimal128(digits, max(scale, 0)))


def _array(element: ValueType, delimiter: str, dimensions: int) -> ValueType:
    name = element.name + "[]" * dimensions
    arrow = arrow_of_nested(ArrowForm.ARRAY, (element,), dimensions=dimensions)
    return ValueType(name, ArrowForm.ARRAY, Json.ARRAY, arrow, (element,), (), delimiter, dimensions)


def arrow_of_nested(
    form: ArrowForm, parts: tuple[ValueType, ...], names: tuple[str, ...] = (), dimensions: int = 1
) -> pa.DataType:
    """Return the Arrow type of an array, a range, a multirange or a composite type.

    Raises:
        ValueError: `form` is none of these, or the number of parts is wrong.
    """
    match form, parts:
        case ArrowForm.ARRAY, [element]:
            arrow = element.arrow
            for _ in range(dimensions):
                arrow = pa.list_(pa.field("element", arrow))
            return arrow
        case ArrowForm.RANGE, [bound]:
            flags = [(name, pa.bool_()) for name in ("lower_inc", "upper_inc", "isempty")]
            return pa.struct([("lower", bound.arrow), ("upper", bound.arrow), *flags])
        case ArrowForm.MULTIRANGE, [part]:
            return pa.list_(pa.field("element", part.arrow))
        case ArrowForm.COMPOSITE, _:
            return pa.struct([(name, part.arrow) for name, part in zip(names, parts, strict=True)])
    raise ValueError(f"{form.value} is not made of {len(parts)} parts")


_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SIMPLE = {spark_type(row.arrow): row.arrow for row in TYPES if row.arrow is not None}


def type_to_json(kind: ValueType) -> dict[str, Any]:
    """Return `kind` in JSON's types; `type_from_json` reads it."""
    written: dict[str, Any] = {"name": kind.name, "form": kind.form.value, "json": kind.json.name}
    if not kind.parts or kind.form is ArrowForm.VECTOR:
        # What has parts is derived from them; the two could disagree else.
        written["spark"] = kind.spark
    if kind.parts:
        written["parts"] = [type_to_json(part) for part in kind.parts]
    if kind.names:
        written["names"] = list(kind.names)
    if kind.form in (ArrowForm.ARRAY, ArrowForm.VECTOR):
        written |= {"delimiter": kind.delimiter, "dimensions": kind.dimensions}
    return written


def type_from_json(written: dict[str, Any]) -> ValueType:
    """Read the type that `type_to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: `type_to_json` did not write it.
    """
    form = ArrowForm(written["form"])
    parts = tuple(type_from_json(part) for part in written.get("parts", ()))
    names = tuple(written.get("names", ()))
    dimensions = int(written.get("dimensions", 1))
    delimiter = str(written.get("delimiter", " " if form is ArrowForm.VECTOR else ","))
    if "spark" in written:
        arrow = _arrow_of_spark(written["spark"])
    else:
        arrow = arrow_of_nested(form, parts, names, dimensions)
    name, json = str(written["name"]), Json[written["json"]]
    return ValueType(name, form, json, arrow, parts, names, delimiter, dimensions)


def _arrow_of_spark(spark: str) -> pa.DataType:
    match = _DECIMAL.fullmatch(spark)
    if match is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    if spark not in _SIMPLE:
        raise ValueError(f"no type of ours is {spark!r} in Spark")
    return _SIMPLE[spark]
