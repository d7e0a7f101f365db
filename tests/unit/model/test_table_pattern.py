from __future__ import annotations

import pytest

from headrace.model.names import TableName
from headrace.model.table_pattern import format_table, match_tables, parse_names, parse_tables


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("users", [TableName("public", "users")]),
        (" shop.orders , users", [TableName("shop", "orders"), TableName("public", "users")]),
        ('"My Shop"."a.b,c""d"', [TableName("My Shop", 'a.b,c"d')]),
        ('"*"', [TableName("public", "*")]),
        ("Users", [TableName("public", "Users")]),
    ],
)
def test_names_as_they_were_written(text: str, tables: list[TableName]) -> None:
    assert [pattern.exact for pattern in parse_tables(text)] == tables


def test_a_star_stands_for_any_text() -> None:
    patterns = parse_tables("shop.order*, *.users")
    assert [pattern.exact for pattern in patterns] == [None, None]
    tables = [
        TableName(*name.split(".")) for name in "shop.orders shop.ORDERS a.users b.users2 x.order".split()
    ]
    assert match_tables(patterns, tables) == (TableName("shop", "orders"), TableName("a", "users"))


@pytest.mark.parametrize("text", ["", "a.", ".a", "a b", "a,", "a.b.c", '"a', "a,,b"])
def test_what_is_no_list_of_tables_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write schema\.table|more than a schema"):
        parse_tables(text)


def test_columns_with_dots_in_them() -> None:
    assert parse_names('id, "a.b" ,x') == ("id", "a.b", "x")


@pytest.mark.parametrize("name", ["users", "My users", 'a"b', "a.b", "a,b", "*", "Ünï", "a*"])
def test_a_written_table_is_read_as_itself(name: str) -> None:
    [pattern] = parse_tables(format_table(TableName(name, name)))
    assert pattern.exact == TableName(name, name)
