"""What is a value of each PostgreSQL type in Arrow, in Spark and in JSON?

`TYPES` is the table; everything that speaks of types is made from it, docs/types.md too. `resolve` finds the
place of a declared type in it, whatever domains, arrays, ranges and composite types it is made of.
Why each is what it is: docs/decisions/0040-values.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

MOST_DIGITS = 38
"""The most digits that a decimal of Arrow and of Spark holds."""
MONEY_DIGITS = 19


class Form(enum.Enum):
    """How a type's text, as PostgreSQL prints it, is read."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    MONEY = "money"
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    TIMESTAMP = "timestamp"
    MAP = "map"
    ARRAY = "array"
    VECTOR = "vector"
    RANGE = "range"
    MULTIRANGE = "multirange"
    COMPOSITE = "composite"


class Json(enum.Enum):
    """What a value is in JSON; the value is the documentation's word for it."""

    BOOLEAN = "boolean"
    NUMBER = "number"
    STRING = "string"
    MOMENT = "string, ISO 8601"
    BASE64 = "string, base64"
    ITSELF = "itself"
    OBJECT = "object"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class TypeRow:
    """One row of the table.

    Attributes:
        names: the types' names in pg_type; the first stands for them all.
        arrow: None where it depends on what the type is declared with.
        example: a value, as PostgreSQL prints it.
        note: what a user has to know.
        extension: the extension that the type has to come from; empty for a built-in one.
    """

    names: tuple[str, ...]
    form: Form
    json: Json
    arrow: pa.DataType | None
    example: str
    note: str = ""
    extension: str = ""


_NUMERIC = (
    "decimal where precision and scale are declared and 38 digits suffice (NaN does not fit there); "
    "else text, with every digit, NaN and the infinities"
)
_NAMED = (
    "regclass regtype regproc regprocedure regoper regoperator regrole regnamespace regconfig regdictionary"
)


def _texts(names: str, example: str, note: str = "") -> TypeRow:
    return TypeRow(tuple(names.split()), Form.TEXT, Json.STRING, pa.string(), example, note)


TYPES: tuple[TypeRow, ...] = (
    TypeRow(("bool",), Form.BOOLEAN, Json.BOOLEAN, pa.bool_(), "t"),
    TypeRow(("int2",), Form.INTEGER, Json.NUMBER, pa.int16(), "-7"),
    TypeRow(("int4",), Form.INTEGER, Json.NUMBER, pa.int32(), "7"),
    TypeRow(("int8",), Form.INTEGER, Json.NUMBER, pa.int64(), "9223372036854775807"),
    TypeRow(("oid",), Form.INTEGER, Json.NUMBER, pa.int64(), "4294967295"),
    TypeRow(("float4",), Form.FLOAT, Json.NUMBER, pa.float32(), "0.1"),
    TypeRow(("float8",), Form.FLOAT, Json.NUMBER, pa.float64(), "NaN", "NaN and the infinities are kept"),
    TypeRow(("numeric",), Form.DECIMAL, Json.NUMBER, None, "1.50", _NUMERIC),
    TypeRow(("money",), Form.MONEY, Json.NUMBER, None, "-$1,234.50", "decimals as `lc_monetary` has them"),
    _texts("text varchar", 'a "b"'),
    _texts("bpchar", "DE  ", "`char(n)`, with its padding"),
    _texts("name char", "n", '`"char"` has quotes in SQL'),
    TypeRow(("citext",), Form.TEXT, Json.STRING, pa.string(), "Ann", "as it was written", "citext"),
    _texts("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    TypeRow(("bytea",), Form.BYTES, Json.BASE64, pa.binary(), r"\x00ff"),
    TypeRow(("date",), Form.DATE, Json.MOMENT, pa.date32(), "2024-02-29", "see below for infinity"),
    TypeRow(
        ("timestamp",),
        Form.TIMESTAMP,
        Json.MOMENT,
        pa.timestamp("us"),
        "2024-02-29 12:30:00.5",
        "what a clock shows, without a zone",
    ),
    TypeRow(
        ("timestamptz",),
        Form.TIMESTAMP,
        Json.MOMENT,
        pa.timestamp("us", "UTC"),
        "2024-02-29 12:30:00+00",
        "an instant; JSON shows it in UTC",
    ),
    _texts("time", "24:00:00", "Spark has no such hour"),
    _texts("timetz", "12:30:00+05:30"),
    _texts("interval", "P1Y2M3DT4H5M6.5S", "ISO 8601; months, days and seconds stay apart"),
    TypeRow(("json", "jsonb"), Form.TEXT, Json.ITSELF, pa.string(), '{"a": 1.50}', "every digit is kept"),
    _texts("xml", "<a>1</a>"),
    _texts("jsonpath", '$."a"[*]'),
    _texts("inet cidr", "10.0.0.0/8"),
    _texts("macaddr macaddr8", "08:00:2b:01:02:03"),
    _texts("bit varbit", "101"),
    _texts("point line lseg box path polygon circle", "(1.5,-2)"),
    _texts("tsvector tsquery", "'cat':2 'fat':1"),
    _texts("xid xid8 cid tid pg_lsn pg_snapshot txid_snapshot", "16/B374D848"),
    _texts(_NAMED, "public.orders", "the name; with its schema, if that is not `pg_catalog`"),
    TypeRow(("int2vector",), Form.VECTOR, Json.ARRAY, pa.list_(pa.field("element", pa.int16())), "1 2"),
    TypeRow(("oidvector",), Form.VECTOR, Json.ARRAY, pa.list_(pa.field("element", pa.int64())), "1 2"),
    TypeRow(
        ("hstore",), Form.MAP, Json.OBJECT, pa.map_(pa.string(), pa.string()), '"a"=>"1"', extension="hstore"
    ),
)
"""The types that have a name of their own; what is made from them is in `resolve`."""

_BUILT_IN = {name: row for row in TYPES if not row.extension for name in row.names}
_EXTENSIONS = {(row.extension, name): row for row in TYPES if row.extension for name in row.names}
_UNKNOWN = _texts("any", "")

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
    form: Form
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
        return ValueType(self.name, Form.TEXT, Json.STRING, pa.string())

    @property
    def json_in_composite(self) -> Json:
        """What it is in JSON as a field of a composite type: there, PostgreSQL has fewer forms."""
        return Json.STRING if self.form in (Form.MONEY, Form.BYTES) or self.name == "oid" else self.json


def resolve(attribute: Attribute, types: Mapping[int, DatabaseType], money_scale: int = 2) -> ValueType:
    """What the values of `attribute` are.

    Args:
        attribute: a column, or a field.
        types: its type and every type that this one is made of, by oid.
        money_scale: decimals of an amount of money in this database.
    """
    found = types[attribute.type]
    kind = ValueType(found.name, Form.TEXT, Json.STRING, pa.string())
    match found.kind:
        case "domain":
            dimensions = attribute.dimensions or found.dimensions
            base = Attribute(attribute.name, found.of, found.modifier, dimensions)
            kind = resolve(base, types, money_scale)
        case "array":
            element = resolve(Attribute("element", found.of, attribute.modifier), types, money_scale)
            kind = _array(element, types[found.of].delimiter, max(1, attribute.dimensions))
        case "range":
            kind = _range(found.name, resolve(Attribute("bound", found.of), types, money_scale))
        case "multirange":
            part = resolve(Attribute("range", found.of), types, money_scale)
            arrow = pa.list_(pa.field("element", part.arrow))
            kind = ValueType(found.name, Form.MULTIRANGE, Json.STRING, arrow, (part,))
        case "composite" if found.fields:
            kind = _composite(found, tuple(resolve(field, types, money_scale) for field in found.fields))
        case "base":
            kind = _base(found, attribute.modifier, money_scale)
    return kind


def _base(found: DatabaseType, modifier: int, money_scale: int) -> ValueType:
    row = _UNKNOWN
    if found.extension:
        row = _EXTENSIONS.get((found.extension, found.name), row)
    elif found.schema == "pg_catalog":
        row = _BUILT_IN.get(found.name, row)
    if row.form is Form.DECIMAL:
        return _numeric(modifier)
    if row.form is Form.MONEY:
        return ValueType(found.name, row.form, row.json, pa.decimal128(MONEY_DIGITS, money_scale))
    if row.form is Form.VECTOR:
        element = _BUILT_IN[found.name.removesuffix("vector")]
        part = ValueType(element.names[0], element.form, element.json, element.arrow)
        return ValueType(found.name, row.form, row.json, row.arrow, (part,))
    return ValueType(found.name, row.form, row.json, row.arrow)


def _numeric(modifier: int) -> ValueType:
    """`numeric(p,s)`; since PostgreSQL 15 s may be negative or greater than p."""
    if modifier < 0:
        return ValueType("numeric", Form.TEXT, Json.NUMBER, pa.string())
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400
    name = f"numeric({precision},{scale})"
    digits = max(precision, scale) if scale >= 0 else precision - scale
    if digits > MOST_DIGITS:
        return ValueType(name, Form.TEXT, Json.NUMBER, pa.string())
    return ValueType(name, Form.DECIMAL, Json.NUMBER, pa.decimal128(digits, max(scale, 0)))


def _array(element: ValueType, delimiter: str, dimensions: int) -> ValueType:
    arrow = element.arrow
    for _ in range(dimensions):
        arrow = pa.list_(pa.field("element", arrow))
    name = element.name + "[]" * dimensions
    return ValueType(
        name, Form.ARRAY, Json.ARRAY, arrow, (element,), delimiter=delimiter, dimensions=dimensions
    )


def _range(name: str, bound: ValueType) -> ValueType:
    arrow = pa.struct(
        [
            ("lower", bound.arrow),
            ("upper", bound.arrow),
            ("lower_inc", pa.bool_()),
            ("upper_inc", pa.bool_()),
            ("isempty", pa.bool_()),
        ]
    )
    return ValueType(name, Form.RANGE, Json.STRING, arrow, (bound,))


def _composite(found: DatabaseType, parts: tuple[ValueType, ...]) -> ValueType:
    names = tuple(field.name for field in found.fields)
    arrow = pa.struct([(name, part.arrow) for name, part in zip(names, parts, strict=True)])
    return ValueType(found.name, Form.COMPOSITE, Json.OBJECT, arrow, parts, names)


_SPARK = {
    pa.bool_(): "boolean",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}


def spark_type(arrow: pa.DataType) -> str:
    """The type of Spark, in its DDL, that holds the same values as `arrow`, one of this table's types."""
    if arrow in _SPARK:
        return _SPARK[arrow]
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_map(arrow):
        return f"map<{spark_type(arrow.key_type)},{spark_type(arrow.item_type)}>"
    if pa.types.is_list(arrow):
        return f"array<{spark_type(arrow.value_type)}>"
    fields = ",".join(f"{_quoted(field.name)}:{spark_type(field.type)}" for field in arrow)
    return f"struct<{fields}>"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
