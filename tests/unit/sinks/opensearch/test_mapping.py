"""A spec becomes the body of an index's creation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.errors import Place
from headrace.model.names import TableName
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    ConstantField,
    Field,
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    ObjectField,
)
from headrace.sinks.opensearch import IndexOptions, mapping
from headrace.sinks.opensearch.mapping import rank_mappings

HERE = Place(Path("users.schema.yml"), 1, 1)
T = TableName("public", "t")


def column(key: str, tag: str, opensearch: str, **more: Any) -> ColumnField:
    return ColumnField(key, tag, key, required=False, opensearch=opensearch, place=HERE, **more)


def properties(*fields: Field, options: IndexOptions | None = None) -> dict[str, Any]:
    body = mapping(IndexSpec("users", T, ("id",), fields, HERE), options or IndexOptions())
    found = body["mappings"]["properties"]
    assert isinstance(found, dict)
    return found


def test_only_what_is_declared_is_accepted() -> None:
    body = mapping(IndexSpec("users", T, ("id",), (), HERE), IndexOptions(number_of_shards=3))
    assert body["mappings"]["dynamic"] == "strict"
    assert body["settings"]["index"]["number_of_shards"] == 3


def test_json_is_open_and_does_not_guess_dates() -> None:
    body = mapping(IndexSpec("users", T, ("id",), (column("j", "json", "object"),), HERE), IndexOptions())
    assert body["mappings"]["properties"]["j"] == {"type": "object", "dynamic": True}
    assert body["mappings"]["date_detection"] is False


def test_text_gets_an_analyzer_and_exact_subfields() -> None:
    found = properties(column("bio", "text", "text"), column("sku", "identifier", "text"))
    assert found["bio"]["analyzer"] == "headrace_text"
    assert found["sku"]["analyzer"] == "headrace_code"
    assert set(found["bio"]["fields"]) == {"keyword", "keyword_lowercase"}


def test_without_auto_subfields_a_field_is_bare() -> None:
    found = properties(column("bio", "text", "text"), options=IndexOptions(auto_subfields=False))
    assert found == {"bio": {"type": "text"}}


def test_options_win() -> None:
    found = properties(column("bio", "text", "text", options=(("analyzer", "german"), ("fields", {}))))
    assert found["bio"] == {"type": "text", "analyzer": "german", "fields": {}}


def test_a_join_is_nested_where_it_is_a_list() -> None:
    inner = (column("n", "long", "long"),)
    many = JoinField("orders", "has_many", T, ("id",), inner, HERE, foreign_key=("user_id",))
    one = JoinField("profile", "has_one", T, ("id",), inner, HERE, foreign_key=("user_id",))
    same = ObjectField("address", inner, HERE)
    found = properties(many, one, same)
    assert [found[key]["type"] for key in ("orders", "profile", "address")] == ["nested", "object", "object"]
    assert found["orders"]["properties"] == {"n": {"type": "long"}}


def test_a_scalar_join_is_mapped_as_its_field() -> None:
    inner = (column("code", "text", "text"),)
    tags = JoinField("tags", "has_many", T, ("id",), inner, HERE, foreign_key=("user_id",), scalar=True)
    assert properties(tags)["tags"] == properties(*inner)["code"]


def test_aggregates_have_the_type_of_their_value() -> None:
    found = properties(
        AggregateField("n", "count", T, HERE),
        AggregateField("mean", "avg", T, HERE),
        AggregateField("sum", "sum", T, HERE, value_type="decimal"),
        AggregateField("last", "max", T, HERE, value_type="timestamp"),
        AggregateField("ids", "ids", T, HERE, value_type="uuid"),
    )
    assert [one["type"] for one in found.values()] == ["long", "double", "double", "date", "keyword"]


def test_a_constant_has_the_type_of_its_value() -> None:
    constants: tuple[int | float | bool | str, ...] = (7, 1.5, True, "x")
    found = properties(*(ConstantField(str(at), value, HERE) for at, value in enumerate(constants)))
    assert [one["type"] for one in found.values()] == ["long", "double", "boolean", "keyword"]


def test_a_map_is_typed_by_its_values_wherever_it_stands() -> None:
    attributes = MapField("attrs", "attrs", "long", dynamic=False, required=False, place=HERE)
    join = JoinField("items", "has_many", T, ("id",), (attributes,), HERE, foreign_key=("x",))
    body = mapping(IndexSpec("users", T, ("id",), (join,), HERE), IndexOptions())
    assert body["mappings"]["dynamic_templates"] == [
        {"items.attrs": {"path_match": "items.attrs.*", "mapping": {"type": "long"}}}
    ]


def test_a_map_without_types_is_flat_and_a_dynamic_one_open() -> None:
    flat = MapField("flat", "a", None, dynamic=False, required=False, place=HERE)
    loose = MapField("loose", "b", None, dynamic=True, required=False, place=HERE)
    found = properties(flat, loose)
    assert found == {"flat": {"type": "flat_object"}, "loose": {"type": "object", "dynamic": True}}


def test_a_point_is_a_geo_point() -> None:
    assert properties(GeoField("at", "lat", "lon", None, required=False, place=HERE)) == {
        "at": {"type": "geo_point"}
    }


def test_the_same_variants_share_one_normalizer() -> None:
    states = ("new", "paid")
    fields = (
        column("a", "enum", "keyword", variants=states),
        column("b", "enum", "keyword", variants=states),
        column("c", "enum", "keyword", variants=("x",)),
    )
    body = mapping(IndexSpec("users", T, ("id",), fields, HERE), IndexOptions())
    found = body["mappings"]["properties"]
    names = [found[key]["fields"]["sort"]["normalizer"] for key in "abc"]
    assert names == ["headrace_rank_1", "headrace_rank_1", "headrace_rank_2"]
    assert set(names) <= set(body["settings"]["index"]["analysis"]["normalizer"])


def test_ranks_are_padded_and_their_text_escaped() -> None:
    rules = rank_mappings([f"v{n}" for n in range(10)] + ["a => b"])
    assert rules[3] == "v3 => 03"
    assert rules[10] == "a\\u0020\\u003d\\u003e\\u0020b => 10"


def test_the_options_of_a_join_are_used() -> None:
    """They were left out in silence."""
    tags = JoinField(
        "tags", "has_many", T, ("id",), (column("name", "keyword", "keyword"),), HERE,
        foreign_key=("t",), options=(("type", "object"),),
    )  # fmt: skip
    assert properties(tags)["tags"]["type"] == "object"
    assert "name" in properties(tags)["tags"]["properties"]
