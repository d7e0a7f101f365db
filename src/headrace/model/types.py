"""Map PostgreSQL's types to Arrow, Spark and JSON.

`TYPES` is the table from which all other mappings and docs/reference/types.md are derived. The reasons are in
decision 0040.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pyarrow as pa


class ArrowForm(enum.Enum):
    """The forms in which PostgreSQL prints values; each is parsed in its own way."""

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
    """The JSON forms of values; each enum value is the documentation's word for the form."""

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
    """One row of the table of types.

    Attributes:
        names: the types' names in pg_type; the first represents them all.
        form: how the text is parsed.
        json: the form in JSON.
        arrow: the Arrow type; None where it depends on the declaration.
        example: a value, as PostgreSQL prints it.
        note: a note for users.
        extension: the extension that the type belongs to; empty for a built-in type.
    """

    names: tuple[str, ...]
    form: ArrowForm
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
    return TypeRow(tuple(names.split()), ArrowForm.TEXT, Json.STRING, pa.string(), example, note)


def _vectors(names: str, element: pa.DataType, example: str, note: str = "", extension: str = "") -> TypeRow:
    arrow = pa.list_(pa.field("element", element))
    return TypeRow(tuple(names.split()), ArrowForm.VECTOR, Json.ARRAY, arrow, example, note, extension)


TYPES: tuple[TypeRow, ...] = (
    TypeRow(("bool",), ArrowForm.BOOLEAN, Json.BOOLEAN, pa.bool_(), "t"),
    TypeRow(("int2",), ArrowForm.INTEGER, Json.NUMBER, pa.int16(), "-7"),
    TypeRow(("int4",), ArrowForm.INTEGER, Json.NUMBER, pa.int32(), "7"),
    TypeRow(("int8",), ArrowForm.INTEGER, Json.NUMBER, pa.int64(), "9223372036854775807"),
    TypeRow(("oid",), ArrowForm.INTEGER, Json.NUMBER, pa.int64(), "4294967295"),
    TypeRow(("float4",), ArrowForm.FLOAT, Json.NUMBER, pa.float32(), "0.1"),
    TypeRow(
        ("float8",), ArrowForm.FLOAT, Json.NUMBER, pa.float64(), "NaN", "NaN and the infinities are kept"
    ),
    TypeRow(("numeric",), ArrowForm.DECIMAL, Json.NUMBER, None, "1.50", _NUMERIC),
    TypeRow(
        ("money",), ArrowForm.MONEY, Json.NUMBER, None, "-$1,234.50", "decimals as `lc_monetary` has them"
    ),
    _texts("text varchar", 'a "b"'),
    _texts("bpchar", "DE  ", "`char(n)`, with its padding"),
    _texts("name char", "n", '`"char"` has quotes in SQL'),
    TypeRow(("citext",), ArrowForm.TEXT, Json.STRING, pa.string(), "Ann", "as it was written", "citext"),
    _texts("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    TypeRow(("bytea",), ArrowForm.BYTES, Json.BASE64, pa.binary(), r"\x00ff"),
    TypeRow(("date",), ArrowForm.DATE, Json.MOMENT, pa.date32(), "2024-02-29", "see below for infinity"),
    TypeRow(
        ("timestamp",),
        ArrowForm.TIMESTAMP,
        Json.MOMENT,
        pa.timestamp("us"),
        "2024-02-29 12:30:00.5",
        "what a clock shows, without a zone",
    ),
    TypeRow(
        ("timestamptz",),
        ArrowForm.TIMESTAMP,
        Json.MOMENT,
        pa.timestamp("us", "UTC"),
        "2024-02-29 12:30:00+00",
        "an instant; JSON shows it in UTC",
    ),
    _texts("time", "24:00:00", "Spark has no such hour"),
    _texts("timetz", "12:30:00+05:30"),
    _texts("interval", "P1Y2M3DT4H5M6.5S", "ISO 8601; months, days and seconds stay apart"),
    TypeRow(
        ("json", "jsonb"), ArrowForm.TEXT, Json.ITSELF, pa.string(), '{"a": 1.50}', "every digit is kept"
    ),
    _texts("xml", "<a>1</a>"),
    _texts("jsonpath", '$."a"[*]'),
    _texts("inet cidr", "10.0.0.0/8"),
    _texts("macaddr macaddr8", "08:00:2b:01:02:03"),
    _texts("bit varbit", "101"),
    _texts("point line lseg box path polygon circle", "(1.5,-2)"),
    _texts("tsvector tsquery", "'cat':2 'fat':1"),
    _texts("xid xid8 cid tid pg_lsn pg_snapshot txid_snapshot", "16/B374D848"),
    _texts(_NAMED, "public.orders", "the name; with its schema, if that is not `pg_catalog`"),
    _vectors("int2vector", pa.int16(), "1 2"),
    _vectors("oidvector", pa.int64(), "1 2"),
    _vectors("vector halfvec", pa.float32(), "[1,0.5]", "a `sparsevec` is text", "vector"),
    TypeRow(
        ("hstore",),
        ArrowForm.MAP,
        Json.OBJECT,
        pa.map_(pa.string(), pa.string()),
        '"a"=>"1"',
        extension="hstore",
    ),
)
"""The named types; `headrace.model.value_type` resolves the types that are composed of them."""

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
    """Return the Spark type (DDL) that holds the same values as `arrow`, one of this table's types."""
    if arrow in _SPARK:
        return _SPARK[arrow]
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_map(arrow):
        return f"map<{spark_type(arrow.key_type)},{spark_type(arrow.item_type)}>"
    if pa.types.is_list(arrow):
        return f"array<{spark_type(arrow.value_type)}>"
    fields = ",".join(f"{quoted(field.name)}:{spark_type(field.type)}" for field in arrow)
    return f"struct<{fields}>"


def quoted(name: str) -> str:
    """Return a name as Spark SQL writes it."""
    return "`" + name.replace("`", "``") + "`"
