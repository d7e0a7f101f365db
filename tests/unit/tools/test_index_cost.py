"""What an index pays is computed from the mapping that it really gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import IndexOptions
from headrace.tools.index_cost import FieldCost, IndexCost, cost_of
from headrace.tools.preview import DocumentSample

SCHEMA = """\
version: 1
table: orders
primary_key: id
fields:
  - long: id
  - keyword: name
  - text: note
  - {json: extra, options: {enabled: false}}
  - {json: open}
  - {binary: picture}
  - {keyword: bare, options: {fields: {}}}
  - {integer: hidden, options: {index: false, doc_values: false}}
  - has_many: lines
    table: lines
    primary_key: id
    foreign_key: order_id
    fields:
      - integer: count
      - {has_many: parts, table: parts, primary_key: id, foreign_key: line_id, fields: [{keyword: code}]}
"""


@pytest.fixture
def spec(tmp_path: Path) -> IndexSpec:
    file = tmp_path / "orders.schema.yml"
    file.write_text(SCHEMA)
    return load_schema(file, "orders")


def measured(spec: IndexSpec, *documents: object, options: IndexOptions | None = None) -> IndexCost:
    bodies = [
        json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() for document in documents
    ]
    return cost_of(spec, options or IndexOptions(), DocumentSample(tuple(bodies)))


def of(cost: IndexCost, path: str) -> FieldCost:
    [found] = [field for field in cost.fields if field.path == path]
    return found


def test_a_value_is_kept_once_and_indexed_once_for_each_way(spec: IndexSpec) -> None:
    cost = measured(spec, {"name": "abc", "bare": "abc"})
    assert of(cost, "name").indexed_as == ("keyword", ".text", ".keyword_lowercase")
    assert of(cost, "name").processed == len('"name":"abc"') + 3 * len("abc")
    assert of(cost, "bare").processed == len('"bare":"abc"') + len("abc")
    assert cost.processed == cost.bytes + 4 * len("abc")
    assert cost.fields[0].path == "name"
    bare = measured(spec, {"name": "abc"}, options=IndexOptions(auto_subfields=False))
    assert of(bare, "name").indexed_as == ("keyword",)


def test_a_value_too_long_for_a_subfield_is_not_indexed_there(spec: IndexSpec) -> None:
    cost = measured(spec, {"note": "x" * 300})
    assert of(cost, "note").processed == len('"note":""') + 2 * 300
    cost = measured(spec, {"note": "é" * 200})
    assert of(cost, "note").processed == len('"note":""') + 4 * 400, "ignore_above counts characters"


def test_what_is_not_indexed_costs_its_bytes_alone(spec: IndexSpec) -> None:
    cost = measured(spec, {"extra": {"a": [1]}, "picture": "AAAA", "hidden": 7, "name": None, "note": None})
    for path in ("extra", "picture", "hidden"):
        assert of(cost, path).indexed_as == ()
    assert all(field.processed == field.bytes for field in cost.fields)


def test_an_open_object_is_indexed_as_a_whole(spec: IndexSpec) -> None:
    field = of(measured(spec, {"open": {"anything": [1, {"x": "y"}]}}), "open")
    assert (field.indexed_as, field.processed) == (("object",), 2 * field.bytes)


def test_each_object_of_a_nested_list_is_a_lucene_document(spec: IndexSpec) -> None:
    line = {"count": 1, "parts": [{"code": "a"}, {"code": "b"}]}
    documents: list[object] = [{"lines": [line, line, {"count": 2, "parts": []}]}, {"lines": []}]
    cost = measured(spec, *documents)
    lines, parts = of(cost, "lines"), of(cost, "lines.parts")
    assert (lines.nested, lines.most_nested) == (1.5, 3)
    assert (parts.nested, parts.most_nested) == (2.0, 4)
    assert (cost.lucene_documents, cost.most_lucene_documents) == (4.5, 8)
    assert lines.share == (sum(len(json.dumps(one, separators=(",", ":"))) - 2 for one in documents)) / (
        2 * cost.bytes
    )
    assert lines.processed == lines.bytes + (3 * 1 + 4 * 3) / 2
    plain = measured(
        spec, *documents, options=IndexOptions(mappings={"properties": {"lines": {"type": "object"}}})
    )
    assert plain.lucene_documents == 3.0
    kept = IndexOptions(mappings={"properties": {"lines": {"enabled": False}}})
    cost = measured(spec, *documents, options=kept)
    assert (cost.lucene_documents, cost.processed) == (1.0, cost.bytes)
    assert (of(cost, "lines").type, of(cost, "lines").nested) == ("disabled", 0.0)


def test_without_documents_everything_is_zero(spec: IndexSpec) -> None:
    cost = measured(spec)
    assert (cost.documents, cost.bytes, cost.lucene_documents, cost.processed) == (0, 0.0, 0.0, 0.0)


def test_a_document_that_is_nested_too_deeply_counts_as_unreadable(spec: IndexSpec) -> None:
    bodies = (b'{"tags":%s}' % (b"[" * 100_000 + b"]" * 100_000), b'{"tags":[]}')
    found = cost_of(spec, IndexOptions(), DocumentSample(bodies, unreadable=1, cut_short=False))
    assert (found.documents, found.unreadable) == (1, 2)
