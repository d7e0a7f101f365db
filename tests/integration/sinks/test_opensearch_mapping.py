"""The mappings, on the real server: what PostgreSQL prints is accepted and found."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Place
from headrace.model.changes import DocumentOperation
from headrace.model.names import TableName
from headrace.schema.tree import ColumnField, Field, IndexSpec, JoinField, MapField
from headrace.sinks.opensearch import Client, Endpoint, Generations, IndexOptions, OpenSearchWriter, mapping
from headrace.sinks.opensearch.documents import refresh

HERE = Place(Path("users.schema.yml"), 1, 1)
T = TableName("public", "t")
Fill = Callable[..., "Filled"]


class Filled:
    """An index with documents, to be searched."""

    def __init__(self, client: Client, index: str, rejected: list[str]) -> None:
        self._client = client
        self._index = index
        self.rejected = rejected

    def search(self, **body: Any) -> list[str]:
        found = self._client.call("POST", f"/{self._index}/_search", body).json()
        return [hit["_id"] for hit in found["hits"]["hits"]]

    def match(self, field: str, text: str) -> list[str]:
        return self.search(query={"match": {field: {"query": text, "operator": "and"}}})


@pytest.fixture
def fill(opensearch: Any) -> Iterator[Fill]:
    client = Client(Endpoint((opensearch.url,)))
    generations = Generations(client, f"m{uuid.uuid4().hex[:8]}_")

    def make(fields: tuple[Field, ...], **documents: Any) -> Filled:
        spec = IndexSpec("users", T, ("id",), fields, HERE)
        generation = generations.create("users", "ab", mapping(spec, IndexOptions()))
        writer = OpenSearchWriter(client, {"users": generation.target})
        result = writer.write(
            DocumentOperation("users", one, 1, json.dumps(content).encode())
            for one, content in documents.items()
        )
        refresh(client, generation.index)
        return Filled(client, generation.index, [f"{one.id}: {one.reason}" for one in result.rejected])

    yield make
    for generation in generations.existing("users"):
        generations.drop(generation)
    client.close()


def column(key: str, tag: str, opensearch: str, **more: Any) -> ColumnField:
    return ColumnField(key, tag, key, required=False, opensearch=opensearch, place=HERE, **more)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05.123456+00:00",
        "2026-01-02T03:04:05.1+00:00",
        "2026-01-02T03:04:05+00:00",
        "2026-01-02T03:04:05.123456",
        "2026-01-02T03:04:05",
        "2026-01-02",
        "03:04:05",
        "03:04:05.5",
        "03:04:05.123456",
        "0001-01-01",
        "9999-12-31T23:59:59.999999+00:00",
        "12026-01-02",
        "12026-01-02T03:04:05.12+00:00",
        "294276-12-31T23:59:59",
        "03:04:05+00",
        "03:04:05.12+05:30",
        None,
    ],
)
def test_every_date_that_postgresql_prints_is_accepted(fill: Fill, text: str | None) -> None:
    filled = fill((column("at", "timestamp", "date"),), x={"at": text})
    assert filled.rejected == []
    if text is not None:
        assert filled.search(query={"exists": {"field": "at"}}) == ["x"]


def test_a_timestamp_is_the_instant_that_it_says(fill: Fill) -> None:
    filled = fill((column("at", "timestamp", "date"),), x={"at": "2026-01-02T03:04:05.123456+00:00"})
    inside = {"gte": "2026-01-02T03:04:05.123Z", "lt": "2026-01-02T03:04:05.124Z"}
    assert filled.search(query={"range": {"at": inside}}) == ["x"]


def test_a_code_is_found_however_it_is_typed(fill: Fill) -> None:
    filled = fill((column("sku", "identifier", "text"),), x={"sku": "C-01234"}, y={"sku": "D-9"})
    for typed in ("C-01234", "c-01234", "C01234", "c01234", "01234"):
        assert filled.match("sku", typed) == ["x"], typed
    assert filled.match("sku", "c1234") == []


def test_prose_is_found_without_case_and_accents(fill: Fill) -> None:
    filled = fill((column("bio", "text", "text"),), x={"bio": "Café au lait"})
    assert filled.match("bio", "cafe LAIT") == ["x"]
    assert filled.search(query={"term": {"bio.keyword": "Café au lait"}}) == ["x"]
    assert filled.search(query={"term": {"bio.keyword_lowercase": "cafe au LAIT"}}) == ["x"]


def test_an_enum_sorts_by_rank(fill: Fill) -> None:
    states = (*(f"state {n}" for n in range(10)), "a => b", "done", "not done", "日本\\n", "😀")
    field = column("s", "enum", "keyword", variants=states)
    filled = fill((field,), **{str(at): {"s": one} for at, one in enumerate(states)})
    ranked = [str(at) for at in range(len(states))]
    assert filled.search(sort=["s.sort"], size=50) == ranked
    assert filled.search(query={"term": {"s": "done"}}) == ["11"]


def test_json_takes_any_object_and_no_other_field_does(fill: Fill) -> None:
    fields = (column("j", "json", "object"), column("n", "long", "long"))
    filled = fill(fields, x={"j": {"a": {"b": [1]}, "d": "2026-01-01"}}, y={"j": {"d": "soon"}}, z={"m": 1})
    assert [one[:2] for one in filled.rejected] == ["z:"]
    assert filled.search(query={"term": {"j.a.b": 1}}) == ["x"]


def test_a_typed_map_inside_a_list_has_its_leaf_type(fill: Fill) -> None:
    attributes = MapField("attrs", "attrs", "keyword", dynamic=False, required=False, place=HERE)
    items = JoinField("items", "has_many", T, ("id",), (attributes,), HERE, foreign_key=("x",))
    filled = fill((items,), x={"items": [{"attrs": {"colour": "Dark Red", "none": None}}]}, y={"items": []})
    assert filled.rejected == []
    term = {"term": {"items.attrs.colour": "Dark Red"}}
    assert filled.search(query={"nested": {"path": "items", "query": term}}) == ["x"]


def test_an_untyped_map_takes_whatever_its_values_are(fill: Fill) -> None:
    attributes = MapField("attrs", "attrs", None, dynamic=False, required=False, place=HERE)
    filled = fill((attributes,), x={"attrs": {"a": 1}}, y={"attrs": {"a": {"b": "c"}}}, z={"attrs": None})
    assert filled.rejected == []
    assert filled.search(query={"term": {"attrs.a.b": "c"}}) == ["y"]


def test_a_keyword_of_any_length_is_accepted(fill: Fill) -> None:
    filled = fill((column("k", "keyword", "keyword"),), x={"k": "😀" * 20_000})
    assert filled.rejected == []
