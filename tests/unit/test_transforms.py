"""What a converted transform does to parsed documents."""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
import pytest

from headrace.transforms import concat, drop, each_document, extract, flatten, rename, replace, rows


def test_rows_are_found_through_lists_and_objects() -> None:
    document = {"a": [{"b": {"n": 1}}, {"b": None}, {"b": [{"n": 2}, {"n": 3}]}, 7]}
    assert [row["n"] for row in rows(document, "a", "b")] == [1, 2, 3]
    assert list(rows(document)) == [document]
    assert list(rows(document, "z", "b")) == []


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([("->", "x"), ("->", "1"), ("->", "z")], 4),
        ([("#>", "{x,0,z}")], "5"),
        ([("->", "x"), ("->", "9")], None),
        ([("->", "x"), ("->", "key")], None),
        ([("->", "0")], None),
        ([("->>", "x")], '[{"z": "5"}, {"z": 4}]'),
        ([("#>>", "{x,0,z}")], "5"),
        ([("->>", "flag")], "true"),
        ([("->>", "none")], None),
    ],
)
def test_a_path_leads_where_postgres_goes(steps: list[tuple[str, str]], found: Any) -> None:
    row = {"doc": {"x": [{"z": "5"}, {"z": 4}], "flag": True, "none": None}}
    extract(row, "doc", steps, "new")
    assert row["new"] == found


def test_values_are_joined_without_what_is_empty() -> None:
    row = {"id": 0, "name": "Blue", "active": True, "gone": None}
    concat(row, ["id", "name", "active", "gone", "foo"], "line", "_")
    assert row["line"] == "Blue_True_foo"


def test_parts_of_texts_are_replaced_one_after_the_other() -> None:
    row: dict[str, Any] = {"code": "a-b", "codes": ["c-d", None, 3], "n": 5}
    for key in ("code", "codes", "n", "absent"):
        replace(row, key, {"-": "=", "=": "+"})
    assert row == {"code": "a+b", "codes": ["c+d", None, 3], "n": 5}


def test_rows_behind_a_junction_come_up_one_level() -> None:
    row: dict[str, Any] = {"_t": [{"row": {"a": 1}}, {"row": None}, {"row": [{"a": 2}, {"a": 3}]}], "x": 1}
    flatten(row, "_t", "row", "found")
    assert row == {"x": 1, "found": [{"a": 1}, {"a": 2}, {"a": 3}]}
    rename(row, "x", "first-name")
    drop(row, "found")
    assert row == {"first-name": 1}


def test_a_document_without_a_result_is_left_out() -> None:
    transform = each_document(lambda document, id_: {**document, "id": id_} if document else None)
    batch = pa.RecordBatch.from_pydict({"id": ["1", "2"], "document": ['{"é": 1.50}', "{}"]})
    answer = transform(batch).to_pydict()
    assert answer["id"] == ["1", "2"]
    assert [text and json.loads(text) for text in answer["document"]] == [{"é": 1.5, "id": "1"}, None]


def test_a_value_that_no_cluster_takes_costs_one_document() -> None:
    transform = each_document(lambda document, id_: document)
    depth = sys.getrecursionlimit() + 1000  # a library may have raised it
    nested = '{"v":' + "[" * depth + "]" * depth + "}"
    texts = ['{"v":"\\ud83d é"}', '{"v":' + "9" * 5000 + "}", nested, '{"v":"é"}']
    batch = pa.RecordBatch.from_pydict({"id": ["1", "2", "3", "4"], "document": texts})
    half, many_digits, deep, last = transform(batch).to_pydict()["document"]
    assert (half, many_digits, last) == ('{"v":"\\ud83d \\u00e9"}', '{"v":Infinity}', '{"v":"é"}')
    assert deep.endswith(":Infinity}")
