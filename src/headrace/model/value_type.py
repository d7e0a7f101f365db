"""What are the values of a declared type: of a domain, an array, a range, a composite type?

`resolve` finds the place of a type in the table of types, from what pg_type and pg_attribute say of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from headrace.model.types import TYPES, ArrowForm, Json, spark_type

MOST_DIGITS = 38
"""The most digits that a decimal of Arrow and of Spark holds."""
MONEY_DIGITS = 19

_BUILT_IN = {name: row for row in TYPES if not row.extension for name in row.names}
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
    """A type as pg_type has it, as far as its values depend on it.

    Attributes:
        of: what it is made of: a domain's base, an array's element, a range's subtype, a multirange's range.
        modifier: with which modifier a domain has its base.
        dimensions: how many a domain over an array declares.
        delimiter: what stands between this type's values in an array.
        extension: which extension it belongs to; empty where none.
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
    """What a column's values are: how their text is read, and what they become.

    Attributes:
        name: PostgreSQL's name for it, for messages.
        parts: an array's element, a range's subtype, a multirange's range, a composite type's fields.
        names: the fields' names, where there are fields.
        delimiter: what stands between two elements of an array.
        dimensions: of an array.
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
        """The type in Spark's DDL."""
        return spark_type(self.arrow)

    @property
    def as_text(self) -> ValueType:
        """The same column for whoever wants PostgreSQL's text instead: every value fits."""
        return ValueType(self.name, ArrowForm.TEXT, Json.STRING, pa.string())

    @property
    def json_in_composite(self) -> Json:
        """What it is in JSON as a field of a composite type: there, PostgreSQL has fewer forms."""
        is_oid = self.form is ArrowForm.INTEGER and self.name == "oid"
        return Json.STRING if self.form in (ArrowForm.MONEY, ArrowForm.BYTES) or is_oid else self.json


def resolve(attribute: Attribute, types: Mapping[int, DatabaseType], money_scale: int = 2) -> ValueType:
    """What the values of `attribute` are.

    Args:
        attribute: a column, or a field.
        types: its type and every type that this one is made of, by oid.
        money_scale: decimals of an amount of money in this database.
    """
    found = types[attribute.type]
    kind = ValueType(found.name, ArrowForm.TEXT, Json.STRING, pa.string())
    match found.kind:
        case "domain":
            dimensions = attribute.dimensions or found.dimensions
            base = Attribute(attribute.name, found.of, found.modifier, dimensions)
            kind = resolve(base, types, money_scale)
        case "array":
            element = resolve(Attribute("element", found.of, attribute.modifier), types, money_scale)
            kind = _array(element, types[found.of].delimiter, max(1, attribute.dimensions))
        case "range":
            kind = _nested(
                found.name, ArrowForm.RANGE, (resolve(Attribute("bound", found.of), types, money_scale),)
            )
        case "multirange":
            kind = _nested(
                found.name, ArrowForm.MULTIRANGE, (resolve(Attribute("range", found.of), types, money_scale),)
            )
        case "composite" if found.fields:
            kind = _composite(found, tuple(resolve(field, types, money_scale) for field in found.fields))
        case "base":
            kind = _base(found, attribute.modifier, money_scale)
    return kind


def _base(found: DatabaseType, modifier: int, money_scale: int) -> ValueType:
    row = _EXTENSIONS.get((found.extension, found.name))
    if row is None and found.schema == "pg_catalog":
        row = _BUILT_IN.get(found.name)
    if row is None:
        return ValueType(found.name, ArrowForm.TEXT, Json.STRING, pa.string())
    if row.form is ArrowForm.DECIMAL:
        return _numeric(modifier)
    if row.form is ArrowForm.MONEY:
        return ValueType(found.name, row.form, row.json, pa.decimal128(MONEY_DIGITS, money_scale))
    if row.form is ArrowForm.VECTOR:
        element = _BUILT_IN[found.name.removesuffix("vector")]
        part = ValueType(element.names[0], element.form, element.json, element.arrow)
        return ValueType(found.name, row.form, row.json, row.arrow, (part,))
    return ValueType(found.name, row.form, row.json, row.arrow)


def _numeric(modifier: int) -> ValueType:
    """`numeric(p,s)`; since PostgreSQL 15 s may be negative or greater than p."""
    if modifier < 0:
        return ValueType("numeric", ArrowForm.TEXT, Json.NUMBER, pa.string())
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400
    name = f"numeric({precision},{scale})"
    digits = max(precision, scale) if scale >= 0 else precision - scale
    if digits > MOST_DIGITS:
        return ValueType(name, ArrowForm.TEXT, Json.NUMBER, pa.string())
    return ValueType(name, ArrowForm.DECIMAL, Json.NUMBER, pa.decimal128(digits, max(scale, 0)))


def _array(element: ValueType, delimiter: str, dimensions: int) -> ValueType:
    name = element.name + "[]" * dimensions
    arrow = arrow_of_nested(ArrowForm.ARRAY, (element,), dimensions=dimensions)
    return ValueType(
        name, ArrowForm.ARRAY, Json.ARRAY, arrow, (element,), delimiter=delimiter, dimensions=dimensions
    )


def _composite(found: DatabaseType, parts: tuple[ValueType, ...]) -> ValueType:
    names = tuple(field.name for field in found.fields)
    arrow = arrow_of_nested(ArrowForm.COMPOSITE, parts, names)
    return ValueType(found.name, ArrowForm.COMPOSITE, Json.OBJECT, arrow, parts, names)


def _nested(name: str, form: ArrowForm, parts: tuple[ValueType, ...]) -> ValueType:
    return ValueType(name, form, Json.STRING, arrow_of_nested(form, parts), parts)


def arrow_of_nested(
    form: ArrowForm, parts: tuple[ValueType, ...], names: tuple[str, ...] = (), dimensions: int = 1
) -> pa.DataType:
    """What an array, a range, a multirange or a composite type is in Arrow.

    Raises:
        ValueError: `form` is none of these, or has other parts.
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
