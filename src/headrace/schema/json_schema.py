"""Generate the JSON Schema of schema files, with which editors complete and check them. Pure.

It comes from the tables of `language`. What the readers require besides the words (one of two keys, a list or
a single value) is stated in this module, and a test compares both. The JSON Schema accepts every file that
the readers accept. Only the readers see keys that do not pair up, repeated document keys, and SQL in `raw`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.schema import language

Json = dict[str, Any]


def _ref(name: str) -> Json:
    return {"$ref": f"#/$defs/{name}"}


def _object(required: Sequence[str], properties: Json) -> Json:
    closed = {"additionalProperties": False, "properties": properties}
    return {"type": "object", "required": list(required), **closed}


def _described(value: Json, text: str) -> Json:
    return {**value, "description": text}


def _or_null(value: Json) -> Json:
    """Allow null for a key, which is the same as leaving it out."""
    if isinstance(value.get("type"), str):
        return {**value, "type": [value["type"], "null"]}
    if "enum" in value:
        return {**value, "enum": [*value["enum"], None]}
    return {"anyOf": [value, {"type": "null"}]}


_NAME, _NAMES, _KEY, _SCALAR = _ref("name"), _ref("names"), _ref("key"), _ref("scalar")
_FIELDS, _FILTERS = _ref("fields"), _ref("filters")
_BOOLEAN: Json = {"type": "boolean"}
_TEXTS: Json = {"type": "array", "items": {"type": "string", "minLength": 1}}
_SCALAR_TAG: Json = {"enum": list(language.SCALARS)}
_QUOTED = r'"([^"]|"")+"'
_PLAIN = r"[A-Za-z_][A-Za-z0-9_]{0,62}"
_LISTED = ("in", "not_in")
_VALUELESS = ("is_null", "is_not_null")

_WORDS: dict[str, tuple[Json, str]] = {
    "table": (_NAME, "The related table."),
    "schema": (_NAME, "The table's schema; left out, that of the table it belongs to."),
    "primary_key": (_NAMES, "The column, or the columns in key order, that tell rows apart."),
    "column": (_NAME, "The column that is read; left out, the document key in lower case."),
    "required": (_BOOLEAN, "There is always a value. `headrace check` warns where the database allows NULL."),
    "default": (_SCALAR, "What stands in place of NULL."),
    "transforms": (
        {"type": "array", "items": {"enum": ["lowercase", "trim"]}},
        "What is done to a text before it is written.",
    ),
    "options": ({"type": "object"}, "More properties of the field's mapping."),
    "variants": (
        {**_TEXTS, "uniqueItems": True},
        "The values in their order, lowest first; the subfield `.sort` sorts by it.",
    ),
    "postgres": (_TEXTS, "The PostgreSQL types that the column may have."),
    "opensearch": ({"type": "string", "pattern": r"\S"}, "The mapping's type."),
    "lat": (_NAME, "The column of the latitude."),
    "lon": (_NAME, "The column of the longitude."),
    "values": ({"enum": sorted(language.MAP_VALUES)}, "The type that all values of the map share."),
    "dynamic": (_BOOLEAN, "The index decides on types by what it sees."),
    "value": (_SCALAR, "The same in every document."),
    "fields": (_FIELDS, "What the document, or this part of it, holds."),
    "filters": (_FILTERS, "Conditions that all must hold."),
    "foreign_key": (
        _NAMES,
        "The related table's column that points at this row; a list for a key of several.",
    ),
    "references": (_NAMES, "This row's column that foreign_key equals; left out, its key."),
    "scalar": (_BOOLEAN, "The value of the only field stands in place of an object."),
    "distinct": (_BOOLEAN, "Without effect: with a junction table each related row counts once."),
    "through": (_ref("through"), "The junction table and its two keys."),
    "order_by": (_ref("order_by"), "The order of the list; the key decides between equals."),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 2**63 - 1}, "At most so many, from the first on."),
    "value_type": (_SCALAR_TAG, "The type of the result."),
    "element_type": (_SCALAR_TAG, "The type of the collected keys."),
    "description": (
        {"type": "string", "pattern": r"\S"},
        "For readers of this file and of generated types; determines no document.",
    ),
}
"""The words beside a type key: the JSON Schema of the value, and what it means."""

_UNREAD = {"count": ("column", "value_type"), "avg": ("value_type",)}
"""Keys that older files may have, and that are not read."""

_OWN_VALUES = (*language.SCALARS, "custom", "geo", "map")

_NOT_NULL: Json = {"not": {"type": "null"}}
_ONE_OF_TWO: Json = {
    "oneOf": [
        {"required": ["foreign_key"], "properties": {"foreign_key": _NOT_NULL}},
        {"required": ["through"], "properties": {"through": _NOT_NULL, "references": {"type": "null"}}},
    ]
}
"""A relation has either of these keys."""

_MORE: dict[str, Json] = {
    **dict.fromkeys(language.AGGREGATES, _ONE_OF_TWO),
    **{join: {
        "if": {"required": ["scalar"], "properties": {"scalar": {"const": True}}},
        "then": {"properties": {"fields": {
            "minItems": 1, "maxItems": 1,
            "items": {"anyOf": [_ref(f"field_{tag}") for tag in _OWN_VALUES]},
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

EDITOR_FILE = "headrace.schema.json"
"""The name of the JSON Schema's file, beside the schema files."""

EDITOR_LINE = f"# yaml-language-server: $schema={EDITOR_FILE}"
"""The comment by which editors find it."""


def schema_text() -> str:
    """Return the JSON Schema as text, as `docs/headrace.schema.json` holds it."""
    return json.dumps(schema_of_files(), indent=2, ensure_ascii=False) + "\n"


def schema_of_files() -> Json:
    """Return the JSON Schema (draft 2020-12) of `*.schema.yml`."""
    routing = "The column that says on which shard a document lies."
    properties = {
        "version": {"const": 1, "description": "Always 1."},
        "table": _described(_NAME, "The root: each of its rows is a document."),
        "schema": _described(_or_null(_NAME), "The table's schema; left out, public."),
        "primary_key": _described(_or_null(_NAMES), "Left out, the table's own."),
        "routing": _described(_or_null(_NAME), routing),
        "filters": _described(_or_null(_FILTERS), "Other rows are no documents."),
        "soft_delete": _or_null(_ref("soft_delete")),
        "fields": _FIELDS,
        "description": _described(_or_null(_WORDS["description"][0]), _WORDS["description"][1]),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headrace schema file",
        "description": "One search index: which rows become documents, and what these hold.",
        **_object(("version", "table", "fields"), properties),
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
        "scalar": {"type": ["string", "number", "boolean"]},
        "fields": _described({"type": "array", "items": _ref("field")}, _WORDS["fields"][1]),
        "field": {"anyOf": [_ref(f"field_{tag}") for tag in language.TAGS]},
        "filters": {"type": "array", "items": _ref("filter")},
        "filter": _filter(),
        "order_by": {"type": "array", "items": _order()},
        "through": _through(),
        "soft_delete": _soft_delete(),
        **{f"field_{tag}": _field(tag) for tag in language.TAGS},
    }


def _field(tag: str) -> Json:
    required = language.REQUIRED.get(tag, ())
    properties: Json = {tag: _described(_KEY, _tag_text(tag))}
    for word in language.SIBLINGS[tag]:
        if word not in language.REFUSED.get(tag, ()):
            value, text = _value(tag, word)
            properties[word] = _described(value if word in required else _or_null(value), text)
    return {**_object((tag, *required), properties), **_MORE.get(tag, {})}


def _value(tag: str, word: str) -> tuple[Json, str]:
    """Return the JSON Schema of the value of `word` beside the type key `tag`, and what it means."""
    value, text = _WORDS[word]
    if word in _UNREAD.get(tag, ()):
        return {}, "Without effect; older files may have it."
    if word == "column" and word in language.REQUIRED.get(tag, ()):
        return value, "The column that is read."
    return _NAMES if word == "column" and tag == "belongs_to" else value, text


def _tag_text(tag: str) -> str:
    if tag in language.SCALARS:
        reads = ", ".join(sorted(language.READS[tag]))
        enums = " and enums" if tag in language.TEXTUAL else ""
        return f"Reads {reads}{enums}; becomes {language.SCALARS[tag]}."
    return _TAGS[tag]


def _filter() -> Json:
    column = _described(_NAME, "The column that is tested.")
    single = [op for op in language.FILTER_OPS if op not in (*_LISTED, *_VALUELESS, "between")]
    scalars: Json = {"type": "array", "items": _SCALAR}
    unsafe = "Takes subqueries and functions whose changes lead to no document."
    raw: Json = {
        "raw": {"type": "string", "pattern": r"\S", "description": "SQL over the row's own columns."},
        "unsafe": {"type": ["boolean", "null"], "description": unsafe},
    }
    return {
        "anyOf": [
            _test(column, single, _SCALAR),
            _test(column, list(_LISTED), scalars),
            _test(column, ["between"], {**scalars, "minItems": 2, "maxItems": 2}),
            _test(column, list(_VALUELESS), None),
            _object(["raw"], raw),
        ]
    }


def _test(column: Json, ops: list[str], value: Json | None) -> Json:
    properties: Json = {"column": column, "op": {"enum": ops}}
    if value is not None:
        properties["value"] = value
    return _object(list(properties), properties)


def _order() -> Json:
    return _object(["column"], {"column": _NAME, "direction": {"enum": ["asc", "desc", None]}})


def _through() -> Json:
    properties = {
        "table": _described(_NAME, "The junction table."),
        "schema": _described(_or_null(_NAME), "Its schema; left out, the parent's."),
        "left_key": _described(_NAME, "Its column that points at this row."),
        "right_key": _described(_NAME, "Its column that points at the related row."),
        "left_references": _described(_or_null(_NAME), "This row's column; left out, its key."),
        "right_references": _described(_or_null(_NAME), "The related row's column; left out, its key."),
        "filters": _described(_or_null(_FILTERS), "On the junction's own rows."),
    }
    return _object(("table", "left_key", "right_key"), properties)


def _soft_delete() -> Json:
    return {
        "type": "object",
        "description": "Rows that count as deleted are no documents.",
        "additionalProperties": False,
        "properties": {
            "column": _described(_or_null(_NAME), "True, or anything that is not null."),
            "field": _described(_or_null(_KEY), "The field that reads the column."),
            "when": _described(_or_null(_FILTERS), "And these hold."),
        },
        "oneOf": [
            {"required": [word], "properties": {word: {"type": "string"}}} for word in ("column", "field")
        ],
    }
