"""A type key of one value also reads an array of such values, element by element."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.assembly.assembler import Assembler
from headrace.catalog import bind, read_catalog
from headrace.catalog.suggestion import suggest_schema
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.model.names import CtidRange, TableName
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import Client, Endpoint, IndexOptions, mapping
from support.oracle.documents import evaluate
from support.oracle.tables import read_tables

TABLES = (
    "CREATE EXTENSION citext",
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN words AS text[]",
    """CREATE TABLE post (id int PRIMARY KEY, tags text[], codes citext[], moods mood[], scores int[],
                          prices numeric(10,2)[], days date[], ids uuid[], flags bool[], parts jsonb[],
                          grid int[][], words words)""",
    """INSERT INTO post VALUES
       (1, '{" A ",b,NULL}', '{X}', '{ok,sad}', '{3,1}', '{1.50,NULL}', '{2024-02-29}',
        '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', '{t,f}', ARRAY['{"a":1}'::jsonb], '{{1,2},{3,4}}', '{Q,r}'),
       (2, '{}', NULL, '{}', NULL, '{}', NULL, NULL, NULL, NULL, NULL, NULL)""",
)
SCHEMA = """
version: 1
table: post
fields:
  - keyword: tags
    transforms: [trim, lowercase]
  - identifier: codes
  - enum: moods
    variants: [sad, ok]
  - integer: scores
  - decimal: prices
  - date: days
  - uuid: ids
  - boolean: flags
  - json: parts
  - integer: grid
  - text: words
"""


@pytest.fixture(scope="module")
def url(make_database: Callable[..., str]) -> str:
    return make_database(TABLES)


@pytest.fixture
def spec(tmp_path: Path) -> IndexSpec:
    file = tmp_path / "post.schema.yml"
    file.write_text(SCHEMA)
    return load_schema(file, "post")


def assembled(url: str, spec: IndexSpec) -> dict[str, Any]:
    with ReadSession(url) as session:
        catalog = read_catalog(session, spec.tables())
        assert bind(spec, catalog) == []
        operations = Assembler(session, spec, catalog).assemble_range(CtidRange(0, None), 1)
        return {operation.id: json.loads(operation.body or b"") for operation in operations}


def test_each_element_becomes_a_value_of_the_field(url: str, spec: IndexSpec) -> None:
    found = assembled(url, spec)
    assert found["1"]["tags"] == ["a", "b", None]
    assert found["1"]["grid"] == [[1, 2], [3, 4]]
    own_types = [(document.pop("codes"), document.pop("moods")) for document in found.values()]
    assert own_types == [(["X"], ["ok", "sad"]), (None, [])]  # the oracle's driver gives them as text
    plain = dataclasses.replace(
        spec, fields=tuple(field for field in spec.fields if field.key not in {"codes", "moods"})
    )
    expected = evaluate(plain, read_tables(url, spec.tables()))
    assert found == json.loads(json.dumps(expected, default=float))


def test_the_index_finds_a_document_by_each_element(
    url: str, spec: IndexSpec, opensearch: EmbeddedOpenSearch
) -> None:
    with contextlib.closing(Client(Endpoint((opensearch.url,)))) as client:
        client.call("PUT", "/array_fields", mapping(spec, IndexOptions(number_of_replicas=0)))
        client.call("PUT", "/array_fields/_doc/1?refresh=true", assembled(url, spec)["1"])
        for field, value in [("tags", "b"), ("moods", "sad"), ("scores", 1), ("grid", 4), ("flags", False)]:
            found = client.read("/array_fields/_search", {"query": {"term": {field: value}}}).json()
            assert found["hits"]["total"]["value"] == 1, field
        client.call("DELETE", "/array_fields")


def test_a_type_key_of_other_values_is_refused(url: str, tmp_path: Path) -> None:
    file = tmp_path / "post.schema.yml"
    file.write_text("version: 1\ntable: post\nfields:\n  - integer: tags\n")
    with ReadSession(url) as session:
        spec = load_schema(file, "post")
        [error] = bind(spec, read_catalog(session, spec.tables()))
    assert "post.tags is text[] and is declared as integer" in error.cause
    assert "keyword" in error.remedy


def test_a_field_that_is_not_indexed_takes_any_json(opensearch: EmbeddedOpenSearch, tmp_path: Path) -> None:
    """As `init` suggests it; an open object refuses what has another kind than the first document."""
    file = tmp_path / "post.schema.yml"
    file.write_text("version: 1\ntable: post\nfields:\n  - json: parts\n    options: {enabled: false}\n")
    values = [{"a": 1}, {"a": {"b": 2}}, [1, {"a": "x"}], 7, "text", True, None, {"a": "long" * 10_000}]
    with contextlib.closing(Client(Endpoint((opensearch.url,)))) as client:
        body = mapping(load_schema(file, "post"), IndexOptions(number_of_replicas=0))
        client.call("PUT", "/any_json", body)
        for number, value in enumerate(values):
            client.call("PUT", f"/any_json/_doc/{number}", {"parts": value})
            assert client.read(f"/any_json/_doc/{number}").json()["_source"] == {"parts": value}
        client.call("DELETE", "/any_json")


def test_a_flat_object_takes_any_object_and_is_searched(
    opensearch: EmbeddedOpenSearch, tmp_path: Path
) -> None:
    file = tmp_path / "post.schema.yml"
    custom = "custom: parts\n    postgres: [jsonb]\n    opensearch: flat_object\n"
    file.write_text(f"version: 1\ntable: post\nfields:\n  - {custom}")
    values = [{"a": 1}, {"a": {"b": 2}}, {"a": [1, {"c": "x"}]}, {"a": None}, None, {}]
    with contextlib.closing(Client(Endpoint((opensearch.url,)))) as client:
        client.call("PUT", "/any_object", mapping(load_schema(file, "post"), IndexOptions()))
        for number, value in enumerate(values):
            client.call("PUT", f"/any_object/_doc/{number}?refresh=true", {"parts": value})
        found = client.read("/any_object/_search", {"query": {"term": {"parts.a.b": "2"}}}).json()
        assert [hit["_id"] for hit in found["hits"]["hits"]] == ["1"]
        client.call("DELETE", "/any_object")


def test_a_suggested_schema_reads_arrays_and_takes_any_json(url: str) -> None:
    """It said that no field type reads them; an open object stops at the first value of another kind."""
    table = TableName("public", "post")
    with ReadSession(url) as session:
        text = suggest_schema(read_catalog(session, [table]), table)
    assert "- keyword: tags" in text
    assert "- json: parts\n    options: {enabled: false}" in text
    assert "no field type reads it" not in text
