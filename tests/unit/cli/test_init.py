"""Which table the words of a command name."""

from __future__ import annotations

import pytest

from headrace.cli.init import find_table
from headrace.errors import HeadraceError
from headrace.model.names import TableName

TABLES = [
    TableName("public", "users"),
    TableName("public", "Orders"),
    TableName("sales", "users"),
    TableName("sales", "Line Items"),
    TableName("public", "a.b"),
    TableName("a", "b"),
    TableName("A", "b"),
    TableName("public", "A.b"),
]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_found_as_messages_spell_it(table: TableName) -> None:
    assert find_table(str(table), TABLES) == table


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("Orders", TABLES[1]),
        ("public.Orders", TABLES[1]),
        ('public."Orders"', TABLES[1]),
        ("public.users", TABLES[0]),
        ("sales.Line Items", TABLES[3]),
        ("a.b", TABLES[5]),
        ("public.a.b", TABLES[4]),
    ],
)
def test_a_table_is_found_by_its_names_without_quotes(text: str, table: TableName) -> None:
    assert find_table(text, TABLES) == table


@pytest.mark.parametrize(
    ("text", "told"),
    [("orders", "Did you mean '\"Orders\"'"), ("A.b", "several tables"), ("zzz", "Known here: ")],
)
def test_what_names_no_table_or_several_is_refused(text: str, told: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        find_table(text, TABLES)
    assert told in str(caught.value)
