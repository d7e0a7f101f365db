"""List what a query of an index can filter on: the paths of its mapping, subfields included. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.tools.document_types.json_type import ANY, BOOLEAN, INTEGER, NUMBER, POINT, STRING, JsonType

_VALUES: dict[str, JsonType] = {
    **dict.fromkeys(("text", "keyword", "date", "date_nanos", "ip", "version", "wildcard"), STRING),
    **dict.fromkeys(("constant_keyword", "match_only_text", "search_as_you_type", "flat_object"), STRING),
    **dict.fromkeys(("byte", "short", "integer", "long", "unsigned_long"), INTEGER),
    **dict.fromkeys(("float", "double", "half_float", "scaled_float"), NUMBER),
    "boolean": BOOLEAN,
    "geo_point": POINT,
}
"""The types of values that a query compares with a field; of other types of fields any value is."""


@dataclass(frozen=True, slots=True)
class QueryField:
    """A field as queries name it.

    Attributes:
        path: its dotted path, with the subfield.
        kind: its type in the mapping.
        type: the type of the value that a query compares with.
        nested: the path of the innermost nested list that it is in; empty where it is in none.
    """

    path: str
    kind: str
    type: JsonType
    nested: str = ""

    @property
    def description(self) -> str:
        """The kind, and where it is nested."""
        return f"{self.kind}, nested in {self.nested}" if self.nested else self.kind


@dataclass(frozen=True, slots=True)
class IndexFilter:
    """What queries of an index can filter on, under a name."""

    name: str
    fields: tuple[QueryField, ...]
    description: str


def query_fields(properties: Mapping[str, Any], above: str = "", nested: str = "") -> Iterator[QueryField]:
    """Yield the fields of a mapping that are indexed; of a `json` or `map`, the mapping knows no keys."""
    for key, declared in properties.items():
        path, kind = above + key, declared.get("type", "object")
        if not declared.get("enabled", True):
            continue
        if kind in ("object", "nested"):
            within = path if kind == "nested" else nested
            yield from query_fields(declared.get("properties", {}), f"{path}.", within)
            continue
        if declared.get("index", True) and kind != "binary":
            yield QueryField(path, kind, _VALUES.get(kind, ANY), nested)
        yield from query_fields(declared.get("fields", {}), f"{path}.", nested)
