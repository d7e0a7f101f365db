"""Every mistake of a file is told at once, with its place and a remedy."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.errors import ErrorGroup, HeadraceError, Kind, LocatedError
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec

Load = Callable[[str], IndexSpec]
HEAD = "version: 1\ntable: users\nprimary_key: id\n"
JOIN = "table: t\n    primary_key: id\n    fields: []\n    "


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", "1:1", "the file is empty"),
        ("# nothing\n", "1:1", "the file is empty"),
        ("- a", "1:1", "holds a list, not a mapping"),
        ("hello", "1:1", "holds text, not a mapping"),
        ("version: 1\n\ttable: x", "2:1", "a tab cannot indent YAML"),
        ("a: [1", "1:6", "not YAML"),
        (f"{HEAD}fields: []\n---\nversion: 1", "5:1", "a second document begins"),
        (f"{HEAD}fields: []\ntable: other", "5:1", "the key 'table' stands twice"),
        (f"{HEAD}fields: &a [*a]", "4:13", "the anchor 'a' holds itself"),
        (f"{HEAD}fields: " + "[" * 100, "4:72", "nested too deeply"),
        (f'{HEAD}fields: ["\\0"]', "4:10", "NUL"),
        (f'{HEAD}fields: ["\\ud800"]', "4:10", "surrogate"),
        (f"{HEAD}fields: []\nx: \x07", "5:4", "U+0007 may not stand in YAML"),
        (f'{HEAD}fields: ["\\UFFFFFFFF"]', "1:1", "names no character"),
        (f"{HEAD}fields: [{{keyword: _id}}]", "4:10", "clusters keep '_id' for themselves"),
        ("table: t\nfields: []", "1:1", "has no 'version'"),
        ("version: 2\ntable: t\nfields: []", "1:10", "unknown schema version '2'"),
        ("version: '1'\ntable: t\nfields: []", "1:10", "unknown schema version '1'"),
        ("version: 1\nfields: []", "1:1", "has no 'table'"),
        ("version: 1\ntable: t", "1:1", "has no 'fields'"),
        ("version: 1\ntable: t\nfields:", "1:1", "has no 'fields'"),
        ("version: 1\ntable: t\nfields: {}", "3:9", "'fields' must be a list, found a mapping"),
        (f"{HEAD}feilds: []\nfields: []", "4:1", "unknown key 'feilds' in the schema"),
        (f"{HEAD}doc_id: x\nfields: []", "4:9", "'doc_id' is not supported"),
        ("version: 1\ntable: a-b\nfields: []", "2:8", "'a-b' is not a PostgreSQL name"),
        ("version: 1\ntable: 7\nfields: []", "2:8", "expected a name, found a number"),
        (f"version: 1\ntable: {'x' * 64}\nfields: []", "2:8", "longer than 63 bytes"),
        ("version: 1\ntable: t\nprimary_key: [a, a]\nfields: []", "3:14", "a column stands twice"),
        ("version: 1\ntable: t\nprimary_key: []\nfields: []", "3:14", "'primary_key' is an empty list"),
        (f"{HEAD}<<: {{}}\nfields: []", "4:1", "unknown key '<<'"),
        (f"{HEAD}fields: []\n? [a]\n: b", "5:3", "a key of the schema must be text, found a list"),
        (f"{HEAD}fields: !!set []", "4:9", "'fields' must be a list, found the tag"),
        (f"{HEAD}filters: [{{raw: ''}}]\nfields: []", "4:17", "'raw' must be text"),
        (f"{HEAD}filters: [{{op: eq, value: 1}}]\nfields: []", "4:11", "a filter has no 'column'"),
        (f"{HEAD}filters: [{{column: a}}]\nfields: []", "4:11", "a filter has no 'op'"),
        (f"{HEAD}filters: [{{column: a, op: eq}}]\nfields: []", "4:11", "has no 'value'"),
        (f"{HEAD}filters: [{{column: a, op: eq, value: [1]}}]\nfields: []", "4:38", "takes a single value"),
        (f"{HEAD}filters: [{{column: a, op: in, value: 1}}]\nfields: []", "4:38", "'in' takes a list"),
        (f"{HEAD}filters: [{{column: a, op: in, value: [null]}}]\nfields: []", "4:39", "compare with null"),
        (f"{HEAD}filters: [{{column: a, op: is_null, value: 1}}]\nfields: []", "4:43", "takes no value"),
        (f"{HEAD}filters: [{{column: a, op: like, value: 'b\\'}}]\nfields: []", "4:40", "a single backslash"),
        (f"{HEAD}filters: [{{column: a, op: ilike, value: 'b\\\\\\'}}]\nfields: []", "4:41", "backslash"),
        (f"{HEAD}filters: [{{column: a, op: like, value: {{}}}}]\nfields: []", "4:40", "expected a single"),
        (f"{HEAD}soft_delete: {{}}\nfields: []", "4:14", "exactly one of 'column' and 'field'"),
        (f"{HEAD}soft_delete: {{field: x}}\nfields: []", "4:22", "is called 'x'"),
        (f"{HEAD}soft_delete: yes\nfields: []", "4:14", "soft_delete must be a mapping, found text"),
    ],
)
def test_mistakes_of_a_file(load: Load, text: str, place: str, said: str) -> None:
    with pytest.raises(ErrorGroup) as raised:
        load(text)
    [error] = raised.value.errors
    assert f"users.schema.yml:{place}: " in str(error)
    assert said in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("keywrod: a", "unknown type 'keywrod', in `- keywrod: a`. Did you mean 'keyword'?"),
        ("column: a", "a field without a type key (its keys: column)"),
        ("keyword: a\n    text: b", "has keyword and text"),
        ("keyword: a\n    requird: true", "Did you mean 'required'?"),
        ("keyword: a\n    required: yes", "'required' must be true or false, found text"),
        ("keyword: a b", "'a b' cannot be a document key"),
        ("keyword:", "the keyword field has no 'keyword'"),
        ("keyword: a\n    variants: [x]", "unknown key 'variants' in the keyword field"),
        ("keyword: a\n    transforms: [upper]", "unknown transform 'upper'"),
        ("keyword: a\n    transforms: [lowecase]", "Did you mean 'lowercase'?"),
        ("keyword: a\n    default: [1]", "expected a single value, found a list"),
        ("double: a\n    default: .nan", "NaN has no place in a JSON document"),
        ("constant: a\n    value: 9223372036854775808", "is larger than 64 bits"),
        ("constant: a\n    value: -9223372036854775809", "is larger than 64 bits"),
        ("keyword: a\n    options: [1]", "options must be a mapping"),
        ("keyword: a\n    options: {x: .inf}", "Infinity has no place"),
        ("enum: a\n    variants: [x, x]", "a variant stands twice"),
        ("custom: a", "the custom field has no 'opensearch'"),
        ("geo: a\n    lat: b", "takes lat and lon, or one column"),
        ("geo: a\n    lat: b\n    lon: c\n    column: d", "takes lat and lon, or one column"),
        ("map: a", "a map needs 'values'"),
        ("map: a\n    values: boolean", "unknown values 'boolean'"),
        (f"belongs_to: a\n    {JOIN}foreign_key: x", "belongs_to takes no 'foreign_key'"),
        (f"belongs_to: a\n    {JOIN}order_by: [{{column: x}}]", "belongs_to takes no 'order_by'"),
        (f"has_one: a\n    {JOIN}foreign_key: x\n    limit: 1", "has_one takes no 'limit'"),
        (f"has_many: a\n    {JOIN}limit: 1", "the has_many field has no 'foreign_key'"),
        (f"has_many: a\n    {JOIN}foreign_key: x\n    limit: 0", "'limit' must be a whole number from 1"),
        (f"has_many: a\n    {JOIN}foreign_key: x\n    limit: true", "'limit' must be a whole number from 1"),
        (f"has_many: a\n    {JOIN}foreign_key: x\n    required: true", "has_many takes no 'required'"),
        (f"has_many: a\n    {JOIN}foreign_key: [x, y]", "names 2 columns for a key of 1 (id)"),
        (f"many_to_many: a\n    {JOIN}foreign_key: x", "many_to_many takes no 'foreign_key'"),
        (f"many_to_many: a\n    {JOIN}through: {{table: x, left_key: b}}", "through has no 'right_key'"),
        (f"has_one: a\n    {JOIN}foreign_key: x\n    order_by: [{{column: b, direction: up}}]", "'up'"),
        ("count: a\n    table: t", "exactly one of 'foreign_key' and 'through'"),
        ("sum: a\n    table: t\n    foreign_key: x\n    column: y", "has no 'value_type'"),
        ("min: a\n    table: t\n    foreign_key: x\n    value_type: date", "has no 'column'"),
        ("sum: a\n    table: t\n    foreign_key: x\n    column: y\n    value_type: lnog", "mean 'long'?"),
        (
            "count: a\n    table: t\n    foreign_key: x\n    element_type: long",
            "count takes no 'element_type'",
        ),
        ("ids: a\n    table: t\n    foreign_key: x", "has no 'element_type'"),
        (
            "ids: a\n    table: t\n    foreign_key: x\n    element_type: long\n    column: c",
            "ids takes no 'column'",
        ),
        ("count: a\n    table: t\n    foreign_key: x\n    required: true", "unknown key 'required'"),
        (f"has_many: a\n    {JOIN}foreign_key: x\n    references: [y, z]", "1 column for a key of 2 (y, z)"),
        (f"belongs_to: a\n    {JOIN}references: x", "belongs_to takes no 'references'"),
        (
            "count: a\n    table: t\n    references: x\n    through: {table: j, left_key: l, right_key: r}",
            "belongs",
        ),
        (f"has_many: a\n    {JOIN}foreign_key: x\n    scalar: true", "scalar takes exactly one field"),
        ("constant: a\n    value: [1]", "expected a single value, found a list"),
        ("constant: a\n    value: !!int x", "'x' is not a number"),
    ],
)
def test_mistakes_of_a_field(load: Load, text: str, said: str) -> None:
    with pytest.raises(ErrorGroup) as raised:
        load(f"{HEAD}fields:\n  - {text}\n")
    assert said in str(raised.value)
    assert all(isinstance(error, LocatedError) and error.place.line >= 5 for error in raised.value.errors)


def test_all_mistakes_at_once_in_the_order_of_the_file(load: Load) -> None:
    with pytest.raises(ErrorGroup) as raised:
        load("tabel: t\nfields:\n  - keyword: a\n    requird: 1\n  - keyword: a\n  - txt: b\n  - 7\n")
    lines = [error.place.line for error in raised.value.errors if isinstance(error, LocatedError)]
    assert lines == [1, 1, 1, 4, 5, 6, 7]
    assert len(str(raised.value).splitlines()) == 7
    assert raised.value.exit_code == 2
    assert all(error.kind is Kind.SCHEMA for error in raised.value.errors)


def test_errors_pickle(load: Load) -> None:
    with pytest.raises(ErrorGroup) as raised:
        load("a: 1")
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)


def test_an_error_has_its_column_and_its_line(load: Load) -> None:
    with pytest.raises(ErrorGroup) as raised:
        load("version: 1\ntable: a-b\nfields: []")
    [error] = raised.value.errors
    assert isinstance(error, LocatedError)
    assert (error.place.line, error.place.column, error.place.text) == (2, 8, "table: a-b")


def test_mistakes_that_an_alias_repeats_are_told_once(load: Load) -> None:
    fields = "".join(f"      - keyword: a\n        wrong{number}: 1\n" for number in range(60))
    with pytest.raises(ErrorGroup) as raised:
        load(f"{HEAD}fields:\n  - object: a\n    fields: &all\n{fields}  - object: b\n    fields: *all\n")
    told = [error.cause for error in raised.value.errors]
    assert [sum(f"'wrong{number}'" in cause for cause in told) for number in range(60)] == [1] * 60


def test_an_expansion_bomb_ends_quickly(load: Load) -> None:
    """Each level holds the one before it ten times."""
    fields = "&a [{keyword: x}]"
    text = "".join(
        f"  - object: {name}\n    fields: &{name} ["
        + ", ".join(f"{{object: k{i}, fields: *{before}}}" for i in range(10))
        + "]\n"
        for before, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    with pytest.raises(ErrorGroup, match="too long, with what its aliases repeat"):
        load(f"{HEAD}fields:\n  - object: a\n    fields: {fields}\n{text}")


def test_a_file_that_is_not_there_or_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="cannot be read: No such file"):
        load_schema(tmp_path / "absent.yml", "x")
    with pytest.raises(HeadraceError, match="cannot be read"):
        load_schema(tmp_path, "x")
    file = tmp_path / "latin.yml"
    file.write_bytes(b"version: 1\ntable: caf\xe9\n")
    with pytest.raises(HeadraceError, match=r"latin.yml:2:11: byte 0xe9 is not UTF-8"):
        load_schema(file, "x")


_WORDS = st.sampled_from(
    [
        "version: 1\n", "table: t\n", "fields:\n", "  - ", "keyword: a\n", "    ", "has_many: b\n",
        "foreign_key: c\n", "primary_key: ", "[", "]", "{", "}", "&a ", "*a", "!!int ", "'", '"', ": ", ", ",
        "x", "1", "null", "#", "\n", "\t", "---\n", "|\n", ">\n", "? ", "%YAML 1.1\n", "filters: ",
        "op: between", "value: ", "1e999", "\\x00", "soft_delete: ", "through: ", "count: n", "options: ",
        "<<: ", "0x", "-", ".nan", "\ufeff", "\u2028",
    ]
)  # fmt: skip


def outcome(file: Path) -> IndexSpec | HeadraceError:
    """What loading gives; any other exception ends the test."""
    try:
        return load_schema(file, "any")
    except HeadraceError as error:
        return error


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.one_of(st.text(), st.lists(_WORDS).map("".join)).map(lambda text: text.encode("utf-8", "replace"))
)
@example(text=b"\xff")
@example(text=b"a: !<x y>")
@example(
    text=b"version: 1\ntable: t\nfields: []\nfilters: [{column: a, op: eq, value: 1" + b"0" * 5000 + b"}]"
)
def test_any_text_is_a_specification_or_our_error(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "any.yml"
    file.write_bytes(text)
    result = outcome(file)
    if isinstance(result, HeadraceError):
        assert result.kind is Kind.SCHEMA
        assert str(result)
    else:
        assert result.table.name


@pytest.mark.parametrize("pattern", ["b\\\\", "\\%", "\\\\\\%", "b"])
def test_a_backslash_that_escapes_something_or_is_escaped_may_end_a_pattern(load: Load, pattern: str) -> None:
    for op in ("like", "ilike"):
        load(f"{HEAD}filters: [{{column: a, op: {op}, value: '{pattern}'}}]\nfields: []")
    load(f"{HEAD}filters: [{{column: a, op: eq, value: 'b\\'}}]\nfields: []")
