"""Generate the JSON Schema of schema files, with which editors complete and check them. Pure.

It comes from the tables of `language`. What the readers require besides the words (one of two keys, a list or
a single value) is stated in this module, and a test compares both. The JSON Schema accepts every file that
the readers accept. Only the readers see keys that do not pair up, repeated document keys, and SQL in `raw`.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.schema import language

Json = dict[str, Any]

_NAME = {"$ref": "#/$defs/name"}
_QUOTED = r'"([^"]|"")+"'
_PLAIN = r"[A-Za-z_][A-Za-z0-9_]{0,62}"
_SCALAR_TYPES = ["string", "number", "boolean"]
_LISTED = ("in", "not_in")
_VALUELESS = ("is_null", "is_not_null")

_TEXTS: dict[str, str] = {
    "table": "The related table.",
    "schema": "The table's schema; left out, that of the table it belongs to.",
    "primary_key": "The column, or the columns in key order, that tell rows apart.",
    "column": "The column that is read; left out, the document key in lower case.",
    "required": "There is always a value. `headrace check` warns where the database allows NULL.",
    "default": "What stands in place of NULL.",
    "transforms": "What is done to a text before it is written.",
    "options": "More properties of the field's mapping.",
    "variants": "The values in their order, lowest first; the subfield `.sort` sorts by it.",
    "postgres": "The PostgreSQL types that the column may have.",
    "opensearch": "The mapping's type.",
    "lat": "The column of the latitude.",
    "lon": "The column of the longitude.",
    "values": "The type that all values of the map share.",
    "dynamic": "The index decides on types by what it sees.",
    "value": "The same in every document.",
    "fields": "What the document, or this part of it, holds.",
    "filters": "Conditions that all must hold.",
    "foreign_key": "The related table's column that points at this row; a list for a key of several.",
    "references": "This row's column that foreign_key equals; left out, its key.",
    "scalar": "The value of the only field stands in place of an object.",
    "distinct": "Without effect: with a junction table each related row counts once.",
    "through": "The junction table and its two keys.",
    "order_by": "The order of the list; the key decides between equals.",
    "limit": "At most so many, from the first on.",
    "value_type": "The type of the result.",
    "element_type": "The type of the collected keys.",
    "description": "For readers of this file and of generated types; determines no document.",
}

_ONE_OF_TWO: Json = {
    "oneOf": [
        {"required": ["foreign_key"], "properties": {"foreign_key": {"not": {"type": "null"}}}},
        {
            "required": ["through"],
            "properties": {"through": {"not": {"type": "null"}}, "references": {"type": "null"}},
        },
    ]
}


EDITOR_FILE = "headrace.schema.json"
"""The name of the JSON Schema's file, beside the schema files."""

EDITOR_LINE = f"# yaml-language-server: $schema={EDITOR_FILE}"
"""The comment by which editors find it."""


def schema_text() -> str:
    """Return the JSON Schema as text, as `docs/headrace.schema.json` holds it."""
    return json.dumps(schema_of_files(), indent=2, ensure_ascii=False) + "\n"


def schema_of_files() -> Json:
    """Return the JSON Schema (draft 2020-12) of `*.schema.yml`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headrace schema file",
        "description": "One search index: which rows become documents, and what these hold.",
        "type": "object",
        "required": ["version", "table", "fields"],
        "additionalProperties": False,
        "properties": {
            "version": {"const": 1, "description": "Always 1."},
            "table": {**_NAME, "description": "The root: each of its rows is a document."},
            "schema": _or_null({**_NAME, "description": "The table's schema; left out, public."}),
            "primary_key": _or_null({"$ref": "#/$defs/names", "description": "Left out, the table's own."}),
            "routing": _or_null(
                {**_NAME, "description": "The column that says on which shard a document lies."}
            ),
            "filters": _or_null({"$ref": "#/$defs/filters", "description": "Other rows are no documents."}),
            "soft_delete": _or_null({"$ref": "#/$defs/soft_delete"}),
            "fields": {"$ref": "#/$defs/fields"},
            "description": _or_null({**_VALUES["description"], "description": _TEXTS["description"]}),
        },
        "$defs": _definitions(),
    }


def _definitions() -> Json:
    return {
        "name": {
            "type": "string",
            "pattern": rf"^\s*({_PLAIN}|{_QUOTED})\s*$",
            "description": "A PostgreSQL name, folded to lower case; in SQL double quotes its case is kept.",
        },
        "names": {"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1, "uniqueItems": True}]},
        "key": {"type": "string", "pattern": rf"^\s*{_PLAIN}\s*$", "description": "The key in the document."},
        "scalar": {"type": _SCALAR_TYPES},
        "fields": {"type": "array", "items": {"$ref": "#/$defs/field"}, "description": _TEXTS["fields"]},
        "field": {"anyOf": [{"$ref": f"#/$defs/field_{tag}"} for tag in language.TAGS]},
        "filters": {"type": "array", "items": {"$ref": "#/$defs/filter"}},
        "filter": _filter(),
        "order_by": {"type": "array", "items": _order()},
        "through": _through(),
        "soft_delete": _soft_delete(),
        **{f"field_{tag}": _field(tag) for tag in language.TAGS},
    }


def _field(tag: str) -> Json:
    refused = language.REFUSED.get(tag, ())
    allowed = [word for word in language.SIBLINGS[tag] if word not in refused]
    required = language.REQUIRED.get(tag, ())
    properties: Json = {tag: {"$ref": "#/$defs/key", "description": _described(tag)}}
    for word in allowed:
        value = {**_value(tag, word), "description": _text(tag, word)}
        properties[word] = value if word in required else _or_null(value)
    found: Json = {
        "type": "object",
        "required": [tag, *required],
        "additionalProperties": False,
        "properties": properties,
    }
    if tag in language.AGGREGATES:
        return {**found, **_ONE_OF_TWO}
    return {**found, **_MORE.get(tag, {})}


def _text(tag: str, word: str) -> str:
    """Return what `word` beside the type key `tag` means."""
    if word in _UNREAD.get(tag, ()):
        return "Without effect; older files may have it."
    if word == "column" and word in language.REQUIRED.get(tag, ()):
        return "The column that is read."
    return _TEXTS[word]


def _value(tag: str, word: str) -> Json:
    """Return the JSON Schema of the value of `word` beside the type key `tag`."""
    if word == "column" and tag == "belongs_to":
        return {"$ref": "#/$defs/names"}
    if word in _UNREAD.get(tag, ()):
        return {}
    if word == "values":
        return {"enum": sorted(language.MAP_VALUES)}
    return _VALUES[word]


_VALUES: dict[str, Json] = {
    "table": _NAME,
    "schema": _NAME,
    "column": _NAME,
    "lat": _NAME,
    "lon": _NAME,
    "primary_key": {"$ref": "#/$defs/names"},
    "foreign_key": {"$ref": "#/$defs/names"},
    "references": {"$ref": "#/$defs/names"},
    "through": {"$ref": "#/$defs/through"},
    "filters": {"$ref": "#/$defs/filters"},
    "order_by": {"$ref": "#/$defs/order_by"},
    "fields": {"$ref": "#/$defs/fields"},
    "options": {"type": "object"},
    "required": {"type": "boolean"},
    "dynamic": {"type": "boolean"},
    "scalar": {"type": "boolean"},
    "distinct": {"type": "boolean"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
    "transforms": {"type": "array", "items": {"enum": ["lowercase", "trim"]}},
    "default": {"$ref": "#/$defs/scalar"},
    "value": {"$ref": "#/$defs/scalar"},
    "variants": {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True},
    "postgres": {"type": "array", "items": {"type": "string", "minLength": 1}},
    "opensearch": {"type": "string", "pattern": r"\S"},
    "value_type": {"enum": list(language.SCALARS)},
    "element_type": {"enum": list(language.SCALARS)},
    "description": {"type": "string", "pattern": r"\S"},
}

_UNREAD = {"count": ("column", "value_type"), "avg": ("value_type",)}
"""Keys that older files may have, and that are not read."""

_OWN_VALUES = (*language.SCALARS, "custom", "geo", "map")

_MORE: dict[str, Json] = {
    **{join: {
        "if": {"required": ["scalar"], "properties": {"scalar": {"const": True}}},
        "then": {"properties": {"fields": {
            "minItems": 1, "maxItems": 1,
            "items": {"anyOf": [{"$ref": f"#/$defs/field_{tag}"} for tag in _OWN_VALUES]},
        }}},
    } for join in language.JOINS},
    "geo": {
        "oneOf": [
            {"required": ["lat", "lon"], "properties": {"column": {"type": "null"}, **{
                word: {"type": "string"} for word in ("lat", "lon")}}},
            {"properties": {"lat": {"type": "null"}, "lon": {"type": "null"}}},
        ]
    },
    "map": {
        "anyOf": [
            {"required": ["values"], "properties": {"values": {"type": "string"}}},
            {"required": ["dynamic"], "properties": {"dynamic": {"const": True}}},
        ]
    },
}  # fmt: skip


def _filter() -> Json:
    column = {**_NAME, "description": "The column that is tested."}
    single = [op for op in language.FILTER_OPS if op not in (*_LISTED, *_VALUELESS, "between")]
    scalars: Json = {"type": "array", "items": {"$ref": "#/$defs/scalar"}}
    raw: Json = {
        "raw": {"type": "string", "pattern": r"\S", "description": "SQL over the row's own columns."},
        "unsafe": {
            "type": ["boolean", "null"],
            "description": "Takes subqueries and functions whose changes lead to no document.",
        },
    }
    return {
        "anyOf": [
            _test(column, single, {"$ref": "#/$defs/scalar"}),
            _test(column, list(_LISTED), scalars),
            _test(column, ["between"], {**scalars, "minItems": 2, "maxItems": 2}),
            _test(column, list(_VALUELESS), None),
            {"type": "object", "required": ["raw"], "additionalProperties": False, "properties": raw},
        ]
    }


def _test(column: Json, ops: list[str], value: Json | None) -> Json:
    properties: Json = {"column": column, "op": {"enum": ops}}
    if value is not None:
        properties["value"] = value
    return {
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }


def _order() -> Json:
    return {
        "type": "object",
        "required": ["column"],
        "additionalProperties": False,
        "properties": {"column": _NAME, "direction": {"enum": ["asc", "desc", None]}},
    }


def _through() -> Json:
    return {
        "type": "object",
        "required": ["table", "left_key", "right_key"],
        "additionalProperties": False,
        "properties": {
            "table": {**_NAME, "description": "The junction table."},
            "schema": _or_null({**_NAME, "description": "Its schema; left out, the parent's."}),
            "left_key": {**_NAME, "description": "Its column that points at this row."},
            "right_key": {**_NAME, "description": "Its column that points at the related row."},
            "left_references": _or_null({**_NAME, "description": "This row's column; left out, its key."}),
            "right_references": _or_null(
                {**_NAME, "description": "The related row's column; left out, its key."}
            ),
            "filters": _or_null({"$ref": "#/$defs/filters", "description": "On the junction's own rows."}),
        },
    }


def _soft_delete() -> Json:
    return {
        "type": "object",
        "description": "Rows that count as deleted are no documents.",
        "additionalProperties": False,
        "properties": {
            "column": _or_null({**_NAME, "description": "True, or anything that is not null."}),
            "field": _or_null({"$ref": "#/$defs/key", "description": "The field that reads the column."}),
            "when": _or_null({"$ref": "#/$defs/filters", "description": "And these hold."}),
        },
        "oneOf": [
            {"required": [word], "properties": {word: {"type": "string"}}} for word in ("column", "field")
        ],
    }


def _or_null(value: Json) -> Json:
    """Allow null for a key, which is the same as leaving it out."""
    described = {"description": value["description"]} if "description" in value else {}
    rest = {key: part for key, part in value.items() if key != "description"}
    if isinstance(rest.get("type"), str):
        return {**rest, **described, "type": [rest["type"], "null"]}
    if "enum" in rest:
        return {**rest, **described, "enum": [*rest["enum"], None]}
    return {"anyOf": [rest, {"type": "null"}], **described}


def _described(tag: str) -> str:
    if tag in language.SCALARS:
        reads = ", ".join(sorted(language.READS[tag]))
        enums = " and enums" if tag in language.TEXTUAL else ""
        return f"Reads {reads}{enums}; becomes {language.SCALARS[tag]}."
    return _TAGS[tag]


_TAGS = {
    "custom": "Names both sides: PostgreSQL's types and the mapping's type.",
    "geo": "A point, from two columns or one.",
    "map": "A json column whose keys are data.",
    "object": "Columns of the same row under one key; never null.",
    "constant": "The same value in every document.",
    "belongs_to": "The one row that this row points at; an object, or null.",
    "has_one": "The one row that points at this row; an object, or null.",
    "has_many": "The rows that point at this row; a list.",
    "many_to_many": "The rows that a junction table links to this row; a list.",
    "count": "How many related rows there are.",
    "sum": "The sum of a column of the related rows; null without any.",
    "avg": "The mean of a column of the related rows; null without any.",
    "min": "The least value of a column of the related rows; null without any.",
    "max": "The greatest value of a column of the related rows; null without any.",
    "ids": "The keys of the related rows, in a list.",
}
