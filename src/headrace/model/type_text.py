"""Serialize value types as JSON, for other processes."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from headrace.model.types import TYPES, ArrowForm, Json, spark_type
from headrace.model.value_type import ValueType, arrow_of_nested

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SIMPLE = {spark_type(row.arrow): row.arrow for row in TYPES if row.arrow is not None}


def to_json(kind: ValueType) -> dict[str, Any]:
    """Return `kind` in JSON's types; `from_json` reads it."""
    written: dict[str, Any] = {"name": kind.name, "form": kind.form.value, "json": kind.json.name}
    if not kind.parts or kind.form is ArrowForm.VECTOR:
        written["spark"] = kind.spark
    if kind.parts:
        written["parts"] = [to_json(part) for part in kind.parts]
    if kind.names:
        written["names"] = list(kind.names)
    if kind.form is ArrowForm.ARRAY:
        written |= {"delimiter": kind.delimiter, "dimensions": kind.dimensions}
    return written


def from_json(written: dict[str, Any]) -> ValueType:
    """Read the type that `to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: `to_json` did not write it.
    """
    form = ArrowForm(written["form"])
    parts = tuple(from_json(part) for part in written.get("parts", ()))
    names = tuple(written.get("names", ()))
    dimensions = int(written.get("dimensions", 1))
    arrow = (
        _arrow(written["spark"]) if "spark" in written else arrow_of_nested(form, parts, names, dimensions)
    )
    return ValueType(
        str(written["name"]),
        form,
        Json[written["json"]],
        arrow,
        parts,
        names,
        str(written.get("delimiter", ",")),
        dimensions,
    )


def _arrow(spark: str) -> pa.DataType:
    match = _DECIMAL.fullmatch(spark)
    if match is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    if spark not in _SIMPLE:
        raise ValueError(f"no type of ours is {spark!r} in Spark")
    return _SIMPLE[spark]
