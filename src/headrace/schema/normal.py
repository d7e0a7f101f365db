"""What about a specification determines its documents, in a form that formatting cannot change?

The normal form leaves out places and the index's name, everything that equals its default (so that a later
addition to the language changes no hash), and orders that mean nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    ConstantField,
    Filter,
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    ObjectField,
    OrderBy,
    Place,
    SoftDelete,
    Through,
)

DOCUMENT_FORMAT = 1
"""Raised whenever the same specification and data would give other documents than before."""

_HASH_DIGITS = 10

_LABELS: dict[type, str] = {
    AggregateField: "aggregate",
    ColumnField: "column",
    ConstantField: "constant",
    Filter: "filter",
    GeoField: "geo",
    IndexSpec: "index",
    JoinField: "join",
    MapField: "map",
    ObjectField: "object",
    OrderBy: "order",
    SoftDelete: "soft_delete",
    Through: "through",
}
_CLASSES: dict[str, type] = {label: one for one, label in _LABELS.items()}
_LEFT_OUT = {"place", "table_place", "hash", "name"}
_UNORDERED = {"fields", "filters", "when"}


def normalised(spec: IndexSpec, extra: Mapping[str, object] | None = None) -> dict[str, object]:
    """`spec` as JSON values in canonical form; `extra` is what else determines the documents.

    Args:
        spec: the specification as it was declared.
        extra: further JSON values, for example the sink's mapping settings.
    """
    result: dict[str, object] = {"format": DOCUMENT_FORMAT, "index": _value(spec)}
    if extra:
        result["extra"] = dict(extra)
    return result


def spec_hash(spec: IndexSpec, extra: Mapping[str, object] | None = None) -> str:
    """Ten hexadecimal digits over the normal form."""
    return hashlib.sha256(_canonical(normalised(spec, extra)).encode()).hexdigest()[:_HASH_DIGITS]


def denormalised(found: Mapping[str, object], name: str) -> IndexSpec:
    """The specification that `normalised` was given: the same documents, under the `name`, without places.

    Raises:
        HeadraceError: SCHEMA, where another version of Headrace wrote it.
    """
    if found.get("format") != DOCUMENT_FORMAT:
        raise _unknown(f"its document format is {found.get('format')!r}, this version's is {DOCUMENT_FORMAT}")
    try:
        spec = _restored(found["index"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unknown(f"it cannot be read: {error!r}") from error
    if not isinstance(spec, IndexSpec):
        raise _unknown("it is no index")
    return dataclasses.replace(spec, name=name, hash=spec_hash(spec))


def _unknown(why: str) -> HeadraceError:
    return HeadraceError(Kind.SCHEMA, f"a schema that was kept is not of this version: {why}")


def _restored(value: object) -> Any:
    """What `_value` was given, of a dataclass."""
    if isinstance(value, list):
        return tuple(_restored(one) for one in value)
    if not isinstance(value, dict):
        return value
    made = _CLASSES[value["is"]]
    known = {field.name for field in dataclasses.fields(made)}
    given = {key: _attribute(key, one) for key, one in value.items() if key != "is"}
    if "place" in known:
        given["place"] = Place(Path("kept"), 0, 0)
    if "name" in known:
        given["name"] = ""
    return made(**given)


def _attribute(name: str, value: object) -> Any:
    if name == "table" and isinstance(value, list):
        schema, table = value
        return TableName(schema, table)
    if name == "options" and isinstance(value, dict):
        return tuple(value.items())
    return _restored(value)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _value(value: object) -> object:
    if isinstance(value, TableName):
        return [value.schema, value.name]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"is": _LABELS[type(value)], **_attributes(value)}
    if isinstance(value, tuple):
        return [_value(one) for one in value]
    return value


def _attributes(value: object) -> dict[str, object]:
    result: dict[str, object] = {}
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        mine = getattr(value, field.name)
        if field.name in _LEFT_OUT or _same(mine, field.default):
            continue
        if field.name == "options":
            result[field.name] = dict(mine)
        elif field.name in _UNORDERED:
            result[field.name] = sorted((_value(one) for one in mine), key=_canonical)
        else:
            result[field.name] = _value(mine)
    return result


def _same(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default
