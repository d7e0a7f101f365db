"""The whole language is read; names are folded as PostgreSQL folds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.model.names import TableName
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    ConstantField,
    GeoField,
    IndexSpec,
    JoinField,
    MapField,
    ObjectField,
    OrderBy,
    Through,
)

Load = Callable[[str], IndexSpec]
HEAD = "version: 1\ntable: users\nprimary_key: id\n"


def field(load: Load, text: str) -> Any:
    [one] = load(f"{HEAD}fields:\n{text}").fields
    return one


def public(name: str) -> TableName:
    return TableName("public", name)


def test_the_top_of_a_file(load: Load) -> None:
    spec = load("version: 1\ntable: ' Users '\nschema: CRM\nprimary_key: [B, a]\nfields: []")
    assert (spec.name, spec.table, spec.primary_key) == ("users", TableName("crm", "users"), ("b", "a"))
    assert len(spec.hash) == 10


def test_a_primary_key_may_be_left_to_the_catalog(load: Load) -> None:
    assert load("version: 1\ntable: t\nfields: []").primary_key == ()


@pytest.mark.parametrize(
    ("tag", "opensearch"),
    [
        ("text", "text"), ("identifier", "text"), ("keyword", "keyword"), ("enum", "keyword"),
        ("uuid", "keyword"), ("boolean", "boolean"), ("short", "short"), ("integer", "integer"),
        ("long", "long"), ("float", "float"), ("double", "double"), ("decimal", "double"),
        ("date", "date"), ("timestamp", "date"), ("binary", "binary"), ("json", "object"),
    ],
)  # fmt: skip
def test_every_scalar(load: Load, tag: str, opensearch: str) -> None:
    one = field(load, f"  - {tag}: createdAt\n    required: true")
    assert isinstance(one, ColumnField)
    assert (one.key, one.tag, one.column, one.opensearch) == ("createdAt", tag, "createdat", opensearch)
    assert one.required


def test_a_scalar_with_everything(load: Load) -> None:
    one = field(
        load,
        "  - enum: status\n    column: state\n    transforms: [trim, lowercase]\n    default: new\n"
        "    variants: [low, high]\n    options: {above: 9, fields: {raw: {type: keyword}}, x: [1, null]}",
    )
    assert (one.column, one.transforms, one.default) == ("state", ("trim", "lowercase"), "new")
    assert one.variants == ("low", "high")
    assert dict(one.options) == {"above": 9, "fields": {"raw": {"type": "keyword"}}, "x": [1, None]}


def test_custom(load: Load) -> None:
    one = field(
        load, "  - custom: price\n    postgres: [numeric]\n    opensearch: scaled_float\n    required: false"
    )
    assert (one.tag, one.postgres, one.opensearch) == ("custom", ("numeric",), "scaled_float")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("    lat: a\n    lon: b", ("a", "b", None)),
        ("    column: c", (None, None, "c")),
        ("    required: false", (None, None, "location")),
    ],
)
def test_geo(load: Load, text: str, expected: tuple[str | None, ...]) -> None:
    one = field(load, f"  - geo: location\n{text}")
    assert isinstance(one, GeoField)
    assert (one.lat, one.lon, one.column) == expected


def test_map(load: Load) -> None:
    one = field(load, "  - map: title\n    values: text\n    required: true")
    assert isinstance(one, MapField)
    assert (one.column, one.values, one.dynamic, one.required) == ("title", "text", False, True)
    assert field(load, "  - map: title\n    dynamic: true").dynamic


def test_object_and_constant(load: Load) -> None:
    one = field(
        load, "  - object: o\n    fields:\n      - constant: seven\n        value: 7\n      - constant: no"
    )
    assert isinstance(one, ObjectField)
    assert [(inner.key, inner.value) for inner in one.fields if isinstance(inner, ConstantField)] == [
        ("seven", 7),
        ("no", None),
    ]


def test_belongs_to_reads_the_column_of_its_name(load: Load) -> None:
    one = field(load, "  - belongs_to: created_by\n    table: users\n    primary_key: id\n    fields: []")
    assert isinstance(one, JoinField)
    assert (one.column, one.to_many, one.table) == (("created_by",), False, public("users"))


def test_has_many_with_everything(load: Load) -> None:
    one = field(
        load,
        "  - has_many: orders\n    table: orders\n    schema: sales\n    primary_key: id\n"
        "    foreign_key: user_id\n    limit: 5\n    options: {dynamic: true}\n"
        "    order_by: [{column: at, direction: desc}, {column: id}]\n"
        "    filters: [{column: status, op: neq, value: cancelled}]\n"
        "    fields:\n      - has_many: items\n        table: items\n        primary_key: id\n"
        "        foreign_key: order_id\n        fields: []",
    )
    assert one.table == TableName("sales", "orders")
    assert (one.foreign_key, one.limit, one.to_many) == (("user_id",), 5, True)
    assert one.order_by == (OrderBy("at", descending=True), OrderBy("id", descending=False))
    assert dict(one.options) == {"dynamic": True}
    assert one.fields[0].table == TableName("sales", "items"), "a join lies beside the table it joins"


def test_composite_keys_pair_up(load: Load) -> None:
    spec = load(
        "version: 1\ntable: t\nprimary_key: [a, b]\nfields:\n"
        "  - has_one: x\n    table: x\n    primary_key: id\n    foreign_key: [t_a, t_b]\n    fields: []\n"
        "  - belongs_to: y\n    table: y\n    primary_key: [p, q]\n    column: [y_p, y_q]\n    fields: []\n"
    )
    one, two = spec.fields
    assert isinstance(one, JoinField)
    assert isinstance(two, JoinField)
    assert (one.foreign_key, two.column) == (("t_a", "t_b"), ("y_p", "y_q"))


def test_many_to_many(load: Load) -> None:
    one = field(
        load,
        "  - many_to_many: tags\n    table: tags\n    primary_key: id\n    fields: []\n"
        "    through: {table: user_tags, schema: links, left_key: user_id, right_key: tag_id}",
    )
    assert one.through == Through(TableName("links", "user_tags"), "user_id", "tag_id")


@pytest.mark.parametrize(
    ("text", "op", "column", "value_type"),
    [
        ("count: n\n    foreign_key: f", "count", None, None),
        ("count: n\n    foreign_key: f\n    column: x\n    value_type: long", "count", None, None),
        ("avg: n\n    foreign_key: f\n    column: x\n    value_type: double", "avg", "x", None),
        ("sum: n\n    foreign_key: f\n    column: x\n    value_type: decimal", "sum", "x", "decimal"),
        ("min: n\n    foreign_key: f\n    column: x\n    value_type: date", "min", "x", "date"),
        ("max: n\n    foreign_key: f\n    column: x\n    value_type: timestamp", "max", "x", "timestamp"),
        ("ids: n\n    foreign_key: f\n    element_type: long", "ids", None, "long"),
        (
            "ids: n\n    through: {table: j, left_key: a, right_key: b}\n    element_type: uuid",
            "ids",
            None,
            "uuid",
        ),
    ],
)
def test_aggregates(load: Load, text: str, op: str, column: str | None, value_type: str | None) -> None:
    one = field(load, f"  - {text}\n    table: orders")
    assert isinstance(one, AggregateField)
    assert (one.op, one.column, one.value_type) == (op, column, value_type)


SPELLINGS = ("1e5", "+5", "0x1F", "0o17", "True", "-0", "1e999")


@pytest.mark.parametrize(
    ("text", "op", "values"),
    [
        ("{column: a, op: is_null}", "is_null", ()),
        ("{column: a, op: eq, value: on}", "eq", ("on",)),
        ("{column: a, op: eq, value: true}", "eq", (True,)),
        ("{column: a, op: gt, value: 10}", "gt", (10,)),
        ("{column: a, op: gt, value: 1.5}", "gt", (1.5,)),
        ("{column: a, op: lt, value: 2024-01-01}", "lt", ("2024-01-01",)),
        ("{column: a, op: eq, value: 007}", "eq", ("007",)),
        ("{column: a, op: eq, value: '7'}", "eq", ("7",)),
        ("{column: a, op: eq, value: 12345678901234567890.5}", "eq", ("12345678901234567890.5",)),
        ("{column: a, op: eq, value: 1.10}", "eq", ("1.10",)),
        ("{column: a, op: in, value: [1e5, +5, 0x1F, 0o17, True, -0, 1e999]}", "in", SPELLINGS),
        ("{column: a, op: in, value: [-5, -1.5, 0, !!float 5]}", "in", (-5, -1.5, 0, "5")),
        ("{column: a, op: eq, value: .inf}", "eq", ("Infinity",)),
        ("{column: a, op: in, value: [1, b]}", "in", (1, "b")),
        ("{column: a, op: not_in, value: []}", "not_in", ()),
        ("{column: a, op: between, value: [1, 2]}", "between", (1, 2)),
    ],
)
def test_filters(load: Load, text: str, op: str, values: tuple[object, ...]) -> None:
    """A number that JSON would not write so stays text, and so do YAML 1.1's booleans and dates."""
    [one] = load(f"{HEAD}fields: []\nfilters:\n  - {text}").filters
    assert (one.op, one.values) == (op, values)
    assert [type(value) for value in one.values] == [type(value) for value in values]


def test_a_raw_filter(load: Load) -> None:
    [one] = load(f"{HEAD}fields: []\nfilters: [{{raw: 'a > 1'}}]").filters
    assert (one.op, one.raw, one.column) == ("raw", "a > 1", None)


def test_a_column_may_route_documents(load: Load) -> None:
    assert load(f"{HEAD}routing: Tenant\nfields: []").routing == "tenant"
    assert load(f"{HEAD}fields: []").routing is None


@pytest.mark.parametrize("marker", ["column: gone", "field: goneAt"])
def test_soft_delete_by_column_or_field(load: Load, marker: str) -> None:
    spec = load(
        f"{HEAD}soft_delete:\n  {marker}\n  when: [{{column: a, op: is_null}}]\n"
        "fields:\n  - object: o\n    fields: [{timestamp: goneAt, column: gone}]"
    )
    assert spec.soft_delete is not None
    assert spec.soft_delete.column == "gone"
    assert len(spec.soft_delete.when) == 1


def test_of_two_fields_of_a_name_the_one_that_is_not_in_a_deeper_object_marks_deleted_rows(
    load: Load,
) -> None:
    spec = load(
        f"{HEAD}soft_delete:\n  field: gone\n  when: [{{column: a, op: is_null}}]\nfields:\n"
        "  - object: meta\n    fields:\n"
        "      - object: legacy\n        fields: [{boolean: gone, column: legacy_gone}]\n"
        "      - {boolean: gone, column: deleted}"
    )
    assert spec.soft_delete is not None
    assert spec.soft_delete.column == "deleted"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Email", "email"),
        ("on", "on"),
        ("'\"Order ID\"'", "Order ID"),
        ('\'"a""b"\'', 'a"b'),
        ("'\"é\"'", "é"),
    ],
)
def test_names(load: Load, written: str, name: str) -> None:
    assert field(load, f"  - keyword: k\n    column: {written}").column == name


def test_anchors_and_comments_and_windows_lines(load: Load) -> None:
    spec = load(
        "\ufeff# who\r\nversion: 1\r\ntable: t\r\nprimary_key: id\r\nfields:\r\n"
        "  - has_many: a\r\n    table: a\r\n    primary_key: id\r\n    foreign_key: t_id\r\n"
        "    fields: &f\r\n      - keyword: x\r\n"
        "  - has_many: b\r\n    table: b\r\n    primary_key: id\r\n    foreign_key: t\r\n    fields: *f\r\n"
    )
    assert [one.fields[0].key for one in spec.fields if isinstance(one, JoinField)] == ["x", "x"]
    assert spec.fields[1].place.line == 12


def test_the_tables_of_a_specification(load: Load) -> None:
    spec = load(
        f"{HEAD}fields:\n  - count: n\n    table: tags\n    through: {{table: j, left_key: a, right_key: b}}"
    )
    assert spec.tables() == {public("users"), public("tags"), public("j")}


def test_rows_are_joined_by_columns_that_are_no_key(load: Load) -> None:
    """`references` for a foreign key, `left_references` and `right_references` for a junction."""
    spec = load(
        """\
version: 1
table: books
primary_key: [shelf, place]
fields:
  - has_many: ratings
    table: ratings
    primary_key: id
    foreign_key: book_isbn
    references: isbn
    fields: [{short: stars}]
  - many_to_many: tags
    table: tags
    primary_key: [lang, word]
    through: {table: book_tags, left_key: isbn, right_key: tag, left_references: isbn, right_references: word}
    scalar: true
    fields: [{keyword: word}]
"""
    )
    ratings, tags = spec.fields
    assert isinstance(ratings, JoinField)
    assert isinstance(tags, JoinField)
    assert (ratings.references, ratings.scalar) == (("isbn",), False)
    assert tags.through == Through(TableName("public", "book_tags"), "isbn", "tag", "isbn", "word")
    assert tags.scalar
