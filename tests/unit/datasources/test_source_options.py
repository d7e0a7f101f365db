"""Are the options of `postgres_cdc` refused where they contradict each other, before anything is opened?"""

from __future__ import annotations

import re

import pytest

from headrace.datasources.options import read_options
from headrace.datasources.source_options import CdcOptions
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName

GIVEN = {"url": "postgresql://ann:s3cret@db/shop", "slot": "s", "tables": "users"}
USERS, ORDERS = TableName("public", "users"), TableName("shop", "orders")


def read(**options: str) -> CdcOptions:
    return read_options(CdcOptions, {**GIVEN, **options}, "postgres_cdc")


def test_what_is_not_said_is_the_careful_way() -> None:
    found = read()
    assert found.fail_on_data_loss
    assert not found.temporary_slot
    assert (found.new_tables, found.on_schema_change, found.conditions) == ("refuse", "fail", {})


def test_conditions_belong_to_their_tables() -> None:
    assert read(where="age > 17").conditions == {USERS: "age > 17"}
    assert read(where='{"users": "a", "shop.orders": "b"}', tables="users, shop.*").conditions == {
        USERS: "a",
        ORDERS: "b",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temporarySlot": "true", "createSlot": "false"}, "temporarySlot=true makes a slot"),
        ({"slot": "My-Slot"}, "Use 1 to 63 lower-case letters, digits"),
        ({"publication": "p" * 64}, "a name has 1 to 63 bytes"),
        ({"newTables": "follow"}, "newTables is for many tables"),
        ({"newTables": "drop", "tables": "a, b"}, "the option newTables"),
        ({"onSchemaChange": "rescue", "envelope": "changes"}, "onSchemaChange is for envelope=rows"),
        ({"where": "a", "tables": "users, orders"}, 'write JSON: {"public.users"'),
        ({"where": '{"shop.orders": "a"}'}, "where names shop.orders, which is not followed"),
        ({"columns": "a", "tables": "users, orders"}, "columns: of several tables write JSON"),
        (
            {"columns": '{"orders": ["a"]}', "envelope": "changes"},
            "columns names orders, which is not followed",
        ),
        ({"excludeColumns": "a", "envelope": "changes"}, "excludeColumns is for envelope=rows"),
        ({"where": " "}, "there is no condition"),
        ({"where": '{"users": 7}'}, "the option where"),
        ({"where": "{users}"}, "it is no JSON"),
        ({"failOnDataLos": "true"}, "Did you mean 'failOnDataLoss'?"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(HeadraceError, match=re.escape(said)) as caught:
        read(**options)
    assert caught.value.kind is Kind.USAGE
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("url", "mysql://ann:s3cret@x"),
        ("url", "jdbc:mysql://x"),
        ("url", "postgresql://ann:s3cret@h:x/shop"),
        ("passwordCommand", "'s3cret"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_its_option(option: str, value: str) -> None:
    with pytest.raises(HeadraceError, match=f"the option {option}: ") as caught:
        read(**{option: value})
    assert "s3cret" not in str(caught.value)


def test_rows_of_another_place_are_not_read_again() -> None:
    with pytest.raises(HeadraceError, match="leave bootstrap out"):
        read(onUnloggedChange="snapshot", bootstrap="rows.jsonl")
    assert read(onUnloggedChange="snapshot", bootstrap="none").on_unlogged_change == "snapshot"
