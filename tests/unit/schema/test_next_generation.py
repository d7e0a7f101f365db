"""Another value of any key of the language makes another hash, and so the next generation.

One row for each key that each construct allows; the language's own tables say which there are, so a key that
is added without a row fails here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from headrace.schema.language import (
    AGGREGATES,
    FILTER,
    JOINS,
    ORDER,
    REFUSED,
    SCALARS,
    SIBLINGS,
    SOFT_DELETE,
    THROUGH,
    TOP,
)
from headrace.schema.tree import IndexSpec

Load = Callable[[str], IndexSpec]
Node = dict[str, Any]

LEFT_OUT = {
    ("top", "version"): "there is only one",
    ("top", "doc_id"): "always refused",
    ("count", "column"): "always refused",
    ("avg", "value_type"): "read, and without effect",
    ("count", "value_type"): "read, and without effect",
    ("soft_delete", "field"): "another word for column",
    **{(op, "distinct"): "read, and without effect" for op in AGGREGATES},
    **{(construct, "description"): "determines no document" for construct in ("top", *SIBLINGS)},
}
INNER = [{"keyword": "a"}]
KEYS = {
    "belongs_to": {"column": ("x_id", "y_id")},
    "has_one": {"foreign_key": ("x_id", "y_id"), "references": ("code", "number")},
    "has_many": {"foreign_key": ("x_id", "y_id"), "references": ("code", "number")},
}
BETWEEN = {"table": "between", "left_key": "l", "right_key": "r"}
WHERE = [{"column": "c", "op": "eq", "value": 1}]
RELATED: dict[str, tuple[Any, Any]] = {
    "table": ("rows", "others"),
    "schema": ("one", "two"),
    "primary_key": ("id", "uid"),
    "filters": (WHERE, [{"column": "c", "op": "eq", "value": 2}]),
    "options": ({"a": 1}, {"a": 2}),
}
SCALAR: dict[str, tuple[Any, Any]] = {
    "column": ("b", "c"),
    "required": (False, True),
    "options": ({"ignore_above": 1}, {"ignore_above": 2}),
    "transforms": (["trim"], ["lowercase"]),
    "default": ("x", "y"),
}
DEFAULTS = {"boolean": (True, False), "double": (1.5, 2.5), "float": (1.5, 2.5), "decimal": (1.5, 2.5)}
NUMBERS = {"long", "integer", "short", "byte", "unsigned_long"}


def scalar(tag: str) -> dict[str, tuple[Any, Any]]:
    """The values of a scalar's keys that its type bears."""
    found = dict(SCALAR)
    if tag in NUMBERS:
        found["default"] = (1, 2)
    elif tag in DEFAULTS:
        found["default"] = DEFAULTS[tag]
    return found


class Rows(dict[tuple[str, str], tuple[Node, Node]]):
    """By construct and key, two fields that differ in it alone."""

    def of(self, construct: str, base: Node, values: dict[str, tuple[Any, Any]]) -> None:
        for key, pair in values.items():
            one, two = ({**base, key: value} for value in pair)
            self[construct, key] = one, two


def rows() -> Rows:
    found = Rows()
    of = found.of
    for tag in SCALARS:
        of(tag, {tag: "f"}, scalar(tag))
    of("enum", {"enum": "f"}, {**scalar("keyword"), "variants": (["a", "b"], ["b", "a"])})
    custom = {"custom": "f", "postgres": ["text"], "opensearch": "keyword"}
    of("custom", custom, {**SCALAR, "postgres": (["text"], ["uuid"]), "opensearch": ("keyword", "text")})
    of("geo", {"geo": "f"}, {"column": ("p", "q")})
    of("geo", {"geo": "f", "column": "p"}, {key: SCALAR[key] for key in ("required", "options")})
    of("geo", {"geo": "f", "lon": "x"}, {"lat": ("y", "z")})
    of("geo", {"geo": "f", "lat": "y"}, {"lon": ("x", "z")})
    plain = {key: SCALAR[key] for key in ("required", "column", "options")}
    of("map", {"map": "f", "values": "keyword"}, {**plain, "values": ("keyword", "long")})
    found["map", "dynamic"] = {"map": "f", "values": "keyword"}, {"map": "f", "dynamic": True}
    of("object", {"object": "f"}, {"fields": (INNER, [{"keyword": "b"}])})
    of("object", {"object": "f", "fields": INNER}, {"options": SCALAR["options"]})
    of("constant", {"constant": "f"}, {"value": (1, 2)})
    for tag in JOINS:
        join(of, tag)
    for tag in AGGREGATES:
        aggregate(of, tag)
    return found


def join(of: Callable[..., None], tag: str) -> None:
    base: Node = {tag: "f", "table": "rows", "primary_key": "id", "fields": INNER}
    base |= {"through": BETWEEN} if tag == "many_to_many" else {k: v[0] for k, v in KEYS[tag].items()}
    many = {"order_by": ([{"column": "a"}], [{"column": "b"}])}
    of(tag, base, {"scalar": (False, True)})
    of(tag, base, {**RELATED, **KEYS.get(tag, {}), "fields": (INNER, [{"keyword": "b"}])})
    if tag == "many_to_many":
        of(tag, base, {"through": (BETWEEN, {**BETWEEN, "table": "another"})})
    if tag != "belongs_to":
        of(tag, base, many)
    if tag in ("has_many", "many_to_many"):
        of(tag, base, {"limit": (1, 2)})
    if tag in ("belongs_to", "has_one"):
        of(tag, base, {"required": (False, True)})


def aggregate(of: Callable[..., None], tag: str) -> None:
    base = {tag: "f", "table": "rows", "foreign_key": "x_id"}
    own: dict[str, tuple[Any, Any]] = {}
    if tag not in ("count", "ids"):
        base |= {"column": "n"}
        own |= {"column": ("n", "m")}
    if tag in ("sum", "min", "max"):
        base |= {"value_type": "long"}
    if tag == "ids":
        base |= {"element_type": "long"}
        own |= {"element_type": ("long", "keyword")}
    elif tag not in ("avg", "count"):
        own |= {"value_type": ("long", "integer")}
    of(tag, base, {**RELATED, **own, **KEYS["has_many"]})
    without = {key: value for key, value in base.items() if key != "foreign_key"}
    of(tag, without, {"through": (BETWEEN, {**BETWEEN, "left_key": "k"})})


def whole() -> dict[tuple[str, str], tuple[Node, Node]]:
    """As `rows`, of whole files: what stands around fields."""
    base = {"version": 1, "table": "users", "primary_key": "id", "fields": INNER}
    tops: dict[str, tuple[Any, Any]] = {
        "table": ("users", "people"),
        "schema": ("one", "two"),
        "primary_key": ("id", "uid"),
        "routing": ("tenant", "team"),
        "filters": RELATED["filters"],
        "soft_delete": ({"column": "gone"}, {"column": "left"}),
        "fields": (INNER, [{"keyword": "b"}]),
    }
    found = {("top", key): ({**base, key: one}, {**base, key: two}) for key, (one, two) in tops.items()}

    def inside(construct: str, key: str, one: Node, two: Node, place: Callable[[Node], Node]) -> None:
        found[construct, key] = {**base, **place(one)}, {**base, **place(two)}

    def filtered(node: Node) -> Node:
        return {"filters": [node]}

    eq: Node = {"column": "c", "op": "eq", "value": 1}
    inside("filter", "column", eq, {**eq, "column": "d"}, filtered)
    inside("filter", "op", eq, {**eq, "op": "neq"}, filtered)
    inside("filter", "value", eq, {**eq, "value": 2}, filtered)
    inside("filter", "raw", {"raw": "a > 1"}, {"raw": "a > 2"}, filtered)
    inside("filter", "unsafe", {"raw": "a > 1"}, {"raw": "a > 1", "unsafe": True}, filtered)
    gone: Node = {"column": "gone"}
    inside("soft_delete", "column", gone, {"column": "left"}, lambda node: {"soft_delete": node})
    one, two = ({**gone, "when": [node]} for node in (eq, {**eq, "value": 2}))
    inside("soft_delete", "when", one, two, lambda node: {"soft_delete": node})
    many = {"has_many": "f", "table": "rows", "primary_key": "id", "foreign_key": "x_id", "fields": INNER}

    def ordered(node: Node) -> Node:
        return {"fields": [{**many, "order_by": [node]}]}

    inside("order", "column", {"column": "a"}, {"column": "b"}, ordered)
    inside("order", "direction", {"column": "a"}, {"column": "a", "direction": "desc"}, ordered)
    both = {"many_to_many": "f", "table": "rows", "primary_key": "id", "fields": INNER}
    changed: dict[str, Any] = {word: f"{word}_2" for word in THROUGH} | {"filters": [eq]}
    for key, other in changed.items():
        inside(
            "through",
            key,
            BETWEEN,
            {**BETWEEN, key: other},
            lambda node: {"fields": [{**both, "through": node}]},
        )
    return found


FIELDS, WHOLE = rows(), whole()


def test_every_key_of_the_language_has_a_row() -> None:
    outer = {"top": TOP, "filter": FILTER, "order": ORDER, "through": THROUGH, "soft_delete": SOFT_DELETE}
    wanted = {
        (construct, key)
        for construct, keys in {**SIBLINGS, **outer}.items()
        for key in keys
        if key not in REFUSED.get(construct, ()) or (construct, key) == ("ids", "element_type")
    }
    assert set(FIELDS) | set(WHOLE) | set(LEFT_OUT) == wanted


@pytest.mark.parametrize("construct", sorted({construct for construct, _ in FIELDS}))
def test_a_key_of_a_field_makes_the_next_generation(load: Load, construct: str) -> None:
    outer = {"version": 1, "table": "users", "primary_key": "id"}
    for (owner, key), pair in FIELDS.items():
        if owner == construct:
            one, two = (load(yaml.safe_dump({**outer, "fields": [node]})) for node in pair)
            assert one.hash != two.hash, (construct, key)


@pytest.mark.parametrize(("construct", "key"), sorted(WHOLE))
def test_a_key_around_fields_makes_the_next_generation(load: Load, construct: str, key: str) -> None:
    one, two = (load(yaml.safe_dump(node)) for node in WHOLE[construct, key])
    assert one.hash != two.hash
