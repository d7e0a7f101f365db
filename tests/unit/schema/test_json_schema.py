"""Editors and Headrace agree on what a schema file may hold."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ErrorGroup
from headrace.schema import language
from headrace.schema.json_schema import EDITOR_FILE, schema_of_files, schema_text
from headrace.schema.tree import IndexSpec
from headrace.schema.yaml_nodes import SchemaSource, compose, json_value

Load = Callable[[str], IndexSpec]
ROOT = Path(__file__).parents[3]
SCHEMA = schema_of_files()
HEAD = {"version": 1, "table": "users", "primary_key": "id"}

RELATED = {"table": "t", "primary_key": "id", "fields": []}
JUNCTION = {"table": "j", "left_key": "l", "right_key": "r"}
PLUCKED = {"scalar": True, "fields": [{"keyword": "a"}]}

LEAST: dict[str, dict[str, Any]] = {
    "custom": {"postgres": ["text"], "opensearch": "keyword"},
    "map": {"values": "text"},
    "object": {"fields": []},
    "belongs_to": RELATED,
    "has_one": {**RELATED, "foreign_key": "f"},
    "has_many": {**RELATED, "foreign_key": "f"},
    "many_to_many": {**RELATED, "through": {"table": "j", "left_key": "l", "right_key": "r"}},
    "count": {"table": "t", "foreign_key": "f"},
    "avg": {"table": "t", "foreign_key": "f", "column": "c"},
    **{
        op: {"table": "t", "foreign_key": "f", "column": "c", "value_type": "long"}
        for op in ("sum", "min", "max")
    },
    "ids": {"table": "t", "foreign_key": "f", "element_type": "long"},
}
"""What a field of each type cannot be without."""

VALUES: dict[str, list[Any]] = {
    "table": ["t", '"T t"', "1x", 7],
    "schema": ["s", None, ["s"]],
    "primary_key": ["id", ["a"], [], ["a", "a"], {}],
    "column": ["c", ["c"], None, "a-b", 5],
    "foreign_key": ["f", ["f"], None, ["f", "f"], True],
    "references": ["r", ["r"], None, ["r", "r"], True],
    "scalar": [True, False, "yes", None],
    "distinct": [True, False, "yes", None],
    "through": [
        {"table": "j", "left_key": "l", "right_key": "r", "schema": "s"},
        {"table": "j", "left_key": "l", "right_key": "r", "left_references": "a", "right_references": "b"},
        {"table": "j", "left_key": "l", "right_key": "r", "left_references": 1},
        {"table": "j", "left_key": "l", "right_key": "r", "filters": [{"column": "a", "op": "is_null"}]},
        {"table": "j", "left_key": "l", "right_key": "r", "filters": [{"column": "a"}]},
        {"table": "j", "left_key": "l"},
        {"table": "j", "left_key": "l", "right_key": "r", "more": 1},
        None,
        "j",
    ],
    "filters": [
        [],
        None,
        {},
        [{"raw": "a > 1", "unsafe": True}],
        [{"raw": " "}],
        [{"raw": "a > 1", "op": "eq"}],
        [{"column": "a", "op": "eq", "value": 1, "unsafe": True}],
        [{"column": "a", "op": "like", "value": "x%"}, {"column": "b", "op": "is_null"}],
        [{"column": "a", "op": "is_null", "value": 1}],
        [{"column": "a", "op": "in", "value": []}],
        [{"column": "a", "op": "in", "value": 1}],
        [{"column": "a", "op": "not_in", "value": [1, None]}],
        [{"column": "a", "op": "between", "value": [1, 2]}],
        [{"column": "a", "op": "between", "value": [1]}],
        [{"column": "a", "op": "near", "value": 1}],
        [{"op": "eq", "value": 1}],
    ],
    "order_by": [
        [{"column": "a"}],
        [{"column": "a", "direction": "desc"}],
        [{"column": "a", "direction": "up"}],
        [{}],
        None,
    ],
    "limit": [1, 0, "1", True, None, 2**63],
    "fields": [[], [{"keyword": "a"}], [{"keywrod": "a"}], {}, None],
    "options": [{"a": [1, None]}, [], None],
    "required": [True, "yes", None],
    "dynamic": [True, False, 1, None],
    "transforms": [["trim"], ["upper"], "trim", [], None],
    "default": [1, "x", False, [1], None],
    "value": ["x", 1.5, {}, None],
    "variants": [["a", "b"], ["a", "a"], [1], [""], None],
    "postgres": [["int4"], [1], None],
    "opensearch": ["keyword", " ", 1, None],
    "lat": ["a", None, 1],
    "lon": ["a", None],
    "values": ["text", "boolean", "nonsense", None],
    "value_type": ["long", "money", None],
    "element_type": ["uuid", "money", None],
    "description": ["What it means.", " ", 7, None],
    "nonsense": [1, None],
}


def accepted(load: Load, content: object) -> bool:
    """By the reader; JSON is YAML."""
    try:
        load(json.dumps(content))
    except ErrorGroup:
        return False
    return True


def as_json(text: str) -> object:
    """What an editor sees of a file."""
    source = SchemaSource(Path("any.yml"), tuple(text.splitlines()))
    return json_value(compose(source, text))


@functools.cache
def checks() -> Any:
    """What checks by a JSON Schema, imported by whom it concerns: that takes two seconds."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    return Draft202012Validator


@functools.cache
def whole() -> Any:
    return checks()(SCHEMA)


def mistakes(content: object) -> list[str]:
    return [error.message for error in whole().iter_errors(content)]


def test_the_file_in_the_documentation_is_the_one_that_is_made() -> None:
    """`headrace schema json > docs/headrace.schema.json` makes it anew."""
    checks().check_schema(SCHEMA)
    assert (ROOT / "docs" / EDITOR_FILE).read_text() == schema_text()


def test_every_word_of_the_language_has_examples_here() -> None:
    assert {word for words in language.SIBLINGS.values() for word in words} <= VALUES.keys()


def test_every_example_of_the_repository_is_accepted() -> None:
    files = sorted((ROOT / "src").glob("**/*.schema.yml"))
    readme = re.findall(
        r"^```yaml\n(version.*?)^```", (ROOT / "docs/start.md").read_text(), re.MULTILINE | re.DOTALL
    )
    texts = [*(file.read_text() for file in files), *readme]
    assert len(texts) > 3
    assert [mistakes(as_json(text)) for text in texts] == [[]] * len(texts)


@pytest.mark.parametrize("tag", language.TAGS)
def test_reader_and_editors_agree_on_every_key_of_every_field(load: Load, tag: str) -> None:
    """Each word with good, empty and wrong values beside the least that the field needs."""
    least = {tag: "k", **LEAST.get(tag, {})}
    field = checks()({"$ref": f"#/$defs/field_{tag}", "$defs": SCHEMA["$defs"]})
    assert field.is_valid(least)
    for word in (*language.SIBLINGS[tag], "limit", "through", "nonsense"):
        values = VALUES[word]
        without = {key: value for key, value in least.items() if key != word}
        for content in ({**least, word: value} for value in values if _compared(tag, word, value)):
            assert field.is_valid(content) == accepted(load, {**HEAD, "fields": [content]}), content
        assert field.is_valid(without) == accepted(load, {**HEAD, "fields": [without]}), without


def _compared(tag: str, word: str, value: object) -> bool:
    """A key that may not stand there and has no value is nothing to the reader, and a mistake to editors."""
    return value is not None or word not in (*language.REFUSED.get(tag, ()), "nonsense")


MORE = [
    {"version": 2, "table": "t", "fields": []},
    {"version": "1", "table": "t", "fields": []},
    {"table": "t", "fields": []},
    {"version": 1, "fields": []},
    {"version": 1, "table": "t"},
    {"version": 1, "table": "t", "fields": None},
    {**HEAD, "fields": [], "feilds": []},
    {**HEAD, "fields": [], "doc_id": "x"},
    {**HEAD, "fields": [], "schema": None},
    {**HEAD, "fields": [], "filters": [{"column": "a", "op": "eq"}]},
    {**HEAD, "fields": [], "soft_delete": {"column": "gone", "when": [{"raw": "a"}]}},
    {**HEAD, "fields": [], "soft_delete": {"column": "gone", "field": "gone"}},
    {**HEAD, "fields": [], "soft_delete": {}},
    {**HEAD, "fields": [], "soft_delete": True},
    {**HEAD, "fields": [{"timestamp": "gone"}], "soft_delete": {"field": "gone"}},
    {**HEAD, "fields": [{"keyword": "a", "text": "b"}]},
    {**HEAD, "fields": [{"column": "a"}]},
    {**HEAD, "fields": [7]},
    {**HEAD, "fields": [{"keyword": "a b"}]},
    {**HEAD, "fields": [{"keyword": None}]},
    {**HEAD, "fields": [{"keyword": "x" * 64}]},
    {**HEAD, "fields": [{"geo": "g", "lat": "a", "lon": "b"}]},
    {**HEAD, "fields": [{"geo": "g", "lat": "a", "lon": "b", "column": "c"}]},
    {**HEAD, "fields": [{"geo": "g", "column": "c"}]},
    {**HEAD, "fields": [{"map": "m", "dynamic": True}]},
    {**HEAD, "fields": [{"map": "m", "dynamic": False}]},
    {**HEAD, "fields": [{"map": "m"}]},
    {**HEAD, "fields": [{"count": "n", "table": "t"}]},
    {
        **HEAD,
        "fields": [
            {
                "count": "n",
                "table": "t",
                "foreign_key": "f",
                "through": {"table": "j", "left_key": "l", "right_key": "r"},
            }
        ],
    },
    {
        **HEAD,
        "fields": [
            {"ids": "n", "table": "t", "element_type": "long", "references": "r", "through": JUNCTION}
        ],
    },
    {**HEAD, "fields": [{"has_many": "x", **RELATED, "foreign_key": "f", **PLUCKED}]},
    {
        **HEAD,
        "fields": [{"has_many": "x", **RELATED, "foreign_key": "f", **PLUCKED, "fields": [{"count": "n"}]}],
    },
    {**HEAD, "fields": [{"object": "o", "fields": [{"has_many": "x", **RELATED}]}]},
    [],
]


@pytest.mark.parametrize("content", MORE, ids=range(len(MORE)))
def test_reader_and_editors_agree_on_whole_files(load: Load, content: object) -> None:
    assert (mistakes(content) == []) == accepted(load, content)
