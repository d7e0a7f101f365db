"""Normalise a specification: keep what determines its documents, in a form that formatting cannot change.

The normal form leaves out places, descriptions and the index's name, everything that equals its default (so
that a later addition to the language changes no hash), and orders without meaning.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, Kind, Place
from headrace.model.names import TableName
from headrace.model.packed_text import packed, unpacked
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
    SoftDelete,
    Through,
)

DOCUMENT_FORMAT = 1
"""Increase it whenever the same specification and data would give other documents than before."""

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
_CLASSES: dict[str, type] = {label: node for node, label in _LABELS.items()}
_LEFT_OUT = {"place", "table_place", "hash", "name", "description"}
_UNORDERED = {"fields", "filters", "when"}


def normalised(spec: IndexSpec, extra: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return `spec` as JSON values in canonical form; `extra` is what else determines the documents.

    Args:
        spec: the specification as it was declared.
        extra: further JSON values, for example the sink's mapping settings.
    """
    result: dict[str, object] = {"format": DOCUMENT_FORMAT, "index": _value(spec)}
    if extra:
        result["extra"] = dict(extra)
    return result


def spec_hash(spec: IndexSpec, extra: Mapping[str, object] | None = None) -> str:
    """Return ten hexadecimal digits of a hash over the normal form."""
    return hashlib.sha256(_canonical(normalised(spec, extra)).encode()).hexdigest()[:_HASH_DIGITS]


def denormalised(found: Mapping[str, object], name: str) -> IndexSpec:
    """Return the specification from what `normalised` returned: without places, under the name `name`.

    Raises:
        HeadraceError: SCHEMA, where another version of Headrace wrote `found`.
    """
    if found.get("format") != DOCUMENT_FORMAT:
        raise _unknown(f"its document format is {found.get('format')!r}, this version's is {DOCUMENT_FORMAT}")
    try:
        spec = _restore(found["index"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unknown(f"it cannot be read: {error!r}") from error
    if not isinstance(spec, IndexSpec):
        raise _unknown("it is no index")
    return dataclasses.replace(spec, name=name, hash=spec_hash(spec))


def pack(found: Mapping[str, object]) -> str:
    """Return what `normalised` returned as short text; `unpack` reads it."""
    return packed(_canonical(found))


def unpack(text: str) -> dict[str, Any]:
    """Return what was packed.

    Raises:
        HeadraceError: SCHEMA, where `pack` did not write the text.
    """
    try:
        found: dict[str, Any] = json.loads(unpacked(text))
    except ValueError as error:
        raise _unknown(f"it cannot be read: {error!r}") from error
    return found


_STORED = Place(Path("the stored schema"), 0)
"""Stands for the places in the file, which may say something else by now."""


def _unknown(why: str) -> HeadraceError:
    return HeadraceError(Kind.SCHEMA, f"the stored schema is not of this version: {why}")


def _restore(value: object) -> Any:
    """Return the dataclass, tuple or value that `_value` converted."""
    if isinstance(value, list):
        return tuple(_restore(item) for item in value)
    if not isinstance(value, dict):
        return value
    node = _CLASSES[value["is"]]
    known = {field.name for field in dataclasses.fields(node)}
    values = {key: _attribute(key, item) for key, item in value.items() if key != "is"}
    if "place" in known:
        values["place"] = _STORED
    if "name" in known:
        values["name"] = ""
    return node(**values)


def _attribute(name: str, value: object) -> Any:
    if name == "table" and isinstance(value, list):
        schema, table = value
        return TableName(schema, table)
    if name == "options" and isinstance(value, dict):
        return tuple(value.items())
    return _restore(value)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _value(value: object) -> object:
    if isinstance(value, TableName):
        return [value.schema, value.name]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"is": _LABELS[type(value)], **_attributes(value)}
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    return value


def _attributes(value: object) -> dict[str, object]:
    result: dict[str, object] = {}
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        attribute = getattr(value, field.name)
        if field.name in _LEFT_OUT or _same(attribute, field.default):
            continue
        if field.name == "options":
            result[field.name] = dict(attribute)
        elif field.name in _UNORDERED:
            result[field.name] = sorted((_value(item) for item in attribute), key=_canonical)
        else:
            result[field.name] = _value(attribute)
    return result


def _same(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default
