"""Compare values as PostgreSQL does, and convert them to what a document holds."""

from __future__ import annotations

import base64
import datetime as dt
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from headrace.schema.tree import Scalar

TEXTUAL = frozenset({"text", "varchar", "bpchar", "citext", "name"})


@dataclass(frozen=True, slots=True)
class Type:
    """What a column's values are: the name in pg_type, and an enum's labels in order."""

    name: str
    labels: tuple[str, ...] = ()

    def rank(self, value: Any) -> Any:
        """What stands for `value` in comparisons and orders; None for NULL.

        Text is ordered by code point, as a database with the locale C or C.UTF-8 does.
        """
        if value is None:
            return None
        if self.labels:
            return self.labels.index(value)
        if self.name == "citext":
            return value.lower()
        if self.name == "bpchar":
            return value.rstrip(" ")
        return value

    def read(self, literal: Scalar) -> Any:  # noqa: PLR0911, one for each kind
        """A literal of a filter as a value of this type.

        Raises:
            ValueError: this oracle does not know the type.
        """
        text = str(literal).lower() if isinstance(literal, bool) else str(literal)
        if self.labels or self.name in TEXTUAL:
            return text
        match self.name:
            case "int2" | "int4" | "int8":
                return int(text)
            case "numeric":
                return Decimal(text)
            case "float4" | "float8":
                return float(text)
            case "bool":
                return {"true": True, "t": True, "false": False, "f": False}[text]
            case "uuid":
                return uuid.UUID(text)
            case "date":
                return dt.date.fromisoformat(text)
            case "timestamp":
                return dt.datetime.fromisoformat(text)
            case "timestamptz":
                value = dt.datetime.fromisoformat(text)
                return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            case _:
                raise ValueError(f"a literal of the type {self.name}")

    def text(self, value: Any) -> str:
        """`value` as PostgreSQL casts it to text, for document ids."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if self.name == "bpchar":
            return str(value).rstrip(" ")
        if isinstance(value, Decimal):
            return format(value, "f")
        return str(value)


def json_value(value: Any) -> Any:  # noqa: PLR0911, one for each kind
    """`value` as parsed JSON would hold it, where floats are parsed as Decimal."""
    match value:
        case None | bool() | str() | int():
            return value
        case dict():
            return {key: json_value(one) for key, one in value.items()}
        case list():
            return [json_value(one) for one in value]
        case float():
            return Decimal(repr(value)) if math.isfinite(value) else None
        case Decimal():
            return value if value.is_finite() else None
        case dt.datetime():
            return _moment(value)
        case dt.date():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode("ascii")
        case _:
            raise TypeError(f"a value of the type {type(value)}")


def _moment(value: dt.datetime) -> str:
    utc = value if value.tzinfo is None else value.astimezone(dt.UTC)
    text = utc.strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{value.microsecond:06}".rstrip("0")
    return text + (f".{fraction}" if fraction else "") + ("" if value.tzinfo is None else "+00:00")
