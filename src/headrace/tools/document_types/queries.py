"""List what a query of an index can filter on: the paths of its mapping, subfields included. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.tools.document_types.json_type import (
    ANY,
    BOOLEAN,
    INTEGER,
    NUMBER,
    POINT,
    STRING,
    JsonProperty,
    JsonType,
)

_VALUES: dict[str, JsonType] = {
    **dict.fromkeys(("text", "keyword", "date", "date_nanos", "ip", "version", "wildcard"), STRING),
    **dict.fromkeys(("constant_keyword", "match_only_text", "search_as_you_type", "flat_object"), STRING),
    **dict.fromkeys(("byte", "short", "integer", "long", "unsigned_long"), INTEGER),
    **dict.fromkeys(("float", "double", "half_float", "scaled_float"), NUMBER),
    "boolean": BOOLEAN,
    "geo_point": POINT,
}
"""The types of values that a query compares with a field; of other types of fields any value is."""


def query_fields(properties: Mapping[str, Any], above: str = "", nested: str = "") -> Iterator[JsonProperty]:
    """Yield the fields of a mapping that are indexed, by their dotted paths as queries name them.

    The type is that of the value that a query compares with; the description is the field's type in the
    mapping, and the innermost nested list that it is in. Of a `json` or `map`, the mapping knows no keys.
    """
    for key, declared in properties.items():
        path, kind = above + key, declared.get("type", "object")
        if not declared.get("enabled", True):
            continue
        if kind in ("object", "nested"):
            within = path if kind == "nested" else nested
            yield from query_fields(declared.get("properties", {}), f"{path}.", within)
            continue
        if declared.get("index", True) and kind != "binary":
            described = f"{kind}, nested in {nested}" if nested else kind
            yield JsonProperty(path, _VALUES.get(kind, ANY), described)
        yield from query_fields(declared.get("fields", {}), f"{path}.", nested)
