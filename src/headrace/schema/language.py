"""List the words of the schema language, and which of them go together."""

from __future__ import annotations

from typing import get_args, get_type_hints

from headrace.schema.tree import AggregateField, Filter, JoinField

SCALARS: dict[str, str] = {
    "text": "text",
    "identifier": "text",
    "keyword": "keyword",
    "enum": "keyword",
    "uuid": "keyword",
    "boolean": "boolean",
    "short": "short",
    "integer": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "decimal": "double",
    "date": "date",
    "timestamp": "date",
    "binary": "binary",
    "json": "object",
}
"""The type keys of scalars, each with its OpenSearch type."""

READS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("text", "identifier", "keyword", "enum"), frozenset({"text", "varchar", "bpchar", "citext", "name"})
    ),
    "uuid": frozenset({"uuid"}),
    "boolean": frozenset({"bool"}),
    "short": frozenset({"int2"}),
    "integer": frozenset({"int4", "int2"}),
    "long": frozenset({"int8", "int4", "int2"}),
    "float": frozenset({"float4"}),
    "double": frozenset({"float8", "float4"}),
    "decimal": frozenset({"numeric", "money"}),
    "date": frozenset({"date"}),
    "timestamp": frozenset({"timestamp", "timestamptz", "time", "timetz"}),
    "binary": frozenset({"bytea"}),
    "json": frozenset({"json", "jsonb"}),
}
"""The base types (pg_type.typname) that each type key reads; enum types are added to the textual ones."""

TEXTUAL = frozenset({"text", "identifier", "keyword", "enum"})
"""The type keys of text; they also read enum types."""

MAP_VALUES = frozenset(SCALARS) - {"boolean", "binary", "json"}
"""The type keys that the values of a `map` may share."""

JOINS: tuple[str, ...] = get_args(get_type_hints(JoinField)["kind"])
AGGREGATES: tuple[str, ...] = get_args(get_type_hints(AggregateField)["op"])
FILTER_OPS: tuple[str, ...] = tuple(op for op in get_args(get_type_hints(Filter)["op"]) if op != "raw")

TAGS: tuple[str, ...] = (*SCALARS, "custom", "geo", "map", "object", "constant", *JOINS, *AGGREGATES)
"""Every type key."""

TOP = "version table schema primary_key doc_id routing filters soft_delete fields description".split()
FILTER = ("raw", "unsafe", "column", "op", "value")
ORDER = ("column", "direction")
THROUGH = ("table", "schema", "left_key", "right_key", "left_references", "right_references", "filters")
SOFT_DELETE = ("column", "field", "when")

METADATA = frozenset("_id _index _source _routing _version _seq_no _field_names _ignored".split())
"""Keys that every cluster keeps for itself, and refuses at the top of a document."""

_SCALAR = ("required", "column", "options", "transforms", "default")
_RELATED = ("table", "schema", "primary_key", "filters", "options")
_KEYS = ("column", "foreign_key", "references", "through")

_OWN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(SCALARS, _SCALAR),
    "enum": (*_SCALAR, "variants"),
    "custom": (*_SCALAR, "postgres", "opensearch"),
    "geo": ("required", "column", "lat", "lon", "options"),
    "map": ("required", "column", "values", "dynamic", "options"),
    "object": ("fields", "options"),
    "constant": ("value",),
    **dict.fromkeys(JOINS, (*_RELATED, *_KEYS, "order_by", "limit", "required", "scalar", "fields")),
    **dict.fromkeys(AGGREGATES, (*_RELATED, *_KEYS, "value_type", "element_type", "distinct")),
}
SIBLINGS: dict[str, tuple[str, ...]] = {tag: (*words, "description") for tag, words in _OWN.items()}
"""The keys that each type key allows beside itself; those of `REFUSED` are known only to be refused."""

_COLUMN = "Write `column:`, this table's column that points at the related row."
_FOREIGN_KEY = "Write `foreign_key:`, the related table's column that points back at this row."
_THROUGH = "Write `through:`, the junction table and its two keys."
_ONE_ROW = "Remove it: it is one row at most."
_LIST = "Remove it: a list is never null."
_OWN_KEY = "Remove it: ids collects the related table's key."

REFUSED: dict[str, dict[str, str]] = {
    "belongs_to": {
        **dict.fromkeys(("foreign_key", "references", "through"), _COLUMN),
        **dict.fromkeys(("limit", "order_by"), _ONE_ROW),
    },
    "has_one": {"column": _FOREIGN_KEY, "through": _FOREIGN_KEY, "limit": _ONE_ROW},
    "has_many": {"column": _FOREIGN_KEY, "through": _FOREIGN_KEY, "required": _LIST},
    "many_to_many": {**dict.fromkeys(("column", "foreign_key", "references"), _THROUGH), "required": _LIST},
    **{op: {"element_type": "Only ids has one; write `value_type:`."} for op in AGGREGATES},
    "ids": {"column": _OWN_KEY, "value_type": _OWN_KEY},
}
"""Keys of `SIBLINGS` that are refused, each with the remedy that its message gives."""

REQUIRED: dict[str, tuple[str, ...]] = {
    "custom": ("postgres", "opensearch"),
    "object": ("fields",),
    "belongs_to": ("table", "primary_key", "fields"),
    "has_one": ("table", "primary_key", "foreign_key", "fields"),
    "has_many": ("table", "primary_key", "foreign_key", "fields"),
    "many_to_many": ("table", "primary_key", "through", "fields"),
    "count": ("table",),
    "avg": ("table", "column"),
    **dict.fromkeys(("sum", "min", "max"), ("table", "column", "value_type")),
    "ids": ("table", "element_type"),
}
"""The keys that a field must have."""
