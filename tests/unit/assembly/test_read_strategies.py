"""Which form is chosen, by what the catalog tells of indexes and sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.assembly.lowering import plan_document
from headrace.assembly.plan import DocumentPlan, RelatedValue
from headrace.assembly.read_strategies import (
    FEW_KEYS,
    MANY_KEYS,
    ReadStrategy,
    is_single,
    strategy_for_blocks,
    strategy_for_keys,
    strategy_for_rows,
    uses_sets,
)
from headrace.catalog.table import Catalog, Table
from headrace.schema.tree import AggregateField, IndexSpec, JoinField, Through
from unit.assembly.shop import PLACE, SHOP, catalog, name, table

ORDERS = JoinField("orders", "has_many", name("orders"), ("id",), (), PLACE, foreign_key=("user_id",))
ITEMS = JoinField(
    "items", "has_many", name("items"), ("order_id", "pos"), (), PLACE, foreign_key=("order_id",)
)
LATEST = AggregateField("last", "max", name("orders"), PLACE, "placed_at", "timestamp", ("user_id",))


def shop(**indexed: tuple[tuple[str, ...], ...]) -> Catalog:
    """With these indexes beside those of the keys."""
    tables = dict(SHOP.tables)
    for one, columns in indexed.items():
        tables[name(one)] = replace(tables[name(one)], indexed=(*tables[name(one)].indexed, *columns))
    return Catalog(tables)


def users(*fields: JoinField | AggregateField) -> IndexSpec:
    return IndexSpec("index", name("users"), ("id",), fields, PLACE)


def form(plan: DocumentPlan, keys: int) -> ReadStrategy:
    """Correlated where the chosen form has no sets."""
    chosen = strategy_for_keys(plan, keys)
    return chosen if uses_sets(plan, chosen) else ReadStrategy.CORRELATED


def test_a_few_keys_are_looked_up_with_or_without_an_index() -> None:
    for known in (shop(), shop(orders=(("user_id",),))):
        assert form(plan_document(users(ORDERS), known), FEW_KEYS) is ReadStrategy.CORRELATED


def test_more_keys_take_an_index_until_they_are_many() -> None:
    plan = plan_document(users(ORDERS), shop(orders=(("user_id", "placed_at"),)))
    assert form(plan, MANY_KEYS - 1) is ReadStrategy.CORRELATED
    assert form(plan, MANY_KEYS) is ReadStrategy.AGGREGATED


def test_more_keys_are_a_set_where_no_index_begins_with_the_columns() -> None:
    plan = plan_document(users(ORDERS), shop(orders=(("placed_at", "user_id"),)))
    assert form(plan, FEW_KEYS + 1) is ReadStrategy.MIXED


def test_a_list_multiplies_the_lookups_below_it() -> None:
    below = replace(ORDERS, fields=(ITEMS,))
    assert form(plan_document(users(below), shop(orders=(("user_id",),))), 1) is ReadStrategy.CORRELATED
    known = shop(orders=(("user_id",),), items=())
    bare = Catalog({**known.tables, name("items"): replace(known[name("items")], indexed=())})
    assert form(plan_document(users(below), bare), 1) is ReadStrategy.MIXED


def test_the_least_and_greatest_value_may_be_in_an_index() -> None:
    assert (
        form(plan_document(users(LATEST), shop(orders=(("user_id",),))), MANY_KEYS) is ReadStrategy.AGGREGATED
    )
    known = shop(orders=(("user_id", "placed_at"),))
    assert form(plan_document(users(LATEST), known), MANY_KEYS) is ReadStrategy.CORRELATED


@pytest.mark.parametrize(
    ("own", "key", "served"),
    [
        ("int4", "int8", True),
        ("int8", "int4", True),
        ("text", "varchar", True),
        ("numeric", "int8", True),
        ("int8", "numeric", False),
        ("citext", "citext", True),
    ],
)
def test_an_index_serves_what_is_compared_without_a_cast(own: str, key: str, served: bool) -> None:
    """And what is unique among its values is unique among those that are equal to one of the other type."""
    known = catalog(table("users", f"id:{key}", "id"), table("orders", f"user_id:{own}", "user_id"))
    child = replace(ORDERS, kind="has_one", primary_key=("user_id",))
    plan = plan_document(users(child), known)
    assert (form(plan, FEW_KEYS + 1) is ReadStrategy.CORRELATED) is served
    [member] = plan.members
    assert isinstance(member.value, RelatedValue)
    assert is_single(member.value.relation) is served


def test_an_operator_of_an_extension_that_is_not_known_is_left_to_lookups() -> None:
    ltree = replace(SHOP[name("tags")].columns[0], type="public.ltree", base_type="ltree")

    def changed(one: Table, column: str) -> Table:
        columns = tuple(replace(ltree, name=c.name) if c.name == column else c for c in one.columns)
        return replace(one, columns=columns)

    known = Catalog(
        {
            **SHOP.tables,
            name("tags"): changed(SHOP[name("tags")], "name"),
            name("user_tags"): changed(SHOP[name("user_tags")], "tag_name"),
        }
    )
    tags = JoinField(
        "tags", "many_to_many", name("tags"), ("name",), (), PLACE,
        through=Through(name("user_tags"), "user_id", "tag_name"),
    )  # fmt: skip
    assert form(plan_document(users(tags), SHOP), MANY_KEYS) is ReadStrategy.AGGREGATED
    assert form(plan_document(users(tags), known), MANY_KEYS) is ReadStrategy.CORRELATED


def sized(**rows_and_pages: tuple[int, int]) -> Catalog:
    known = shop(orders=(("user_id",),))
    tables = dict(known.tables)
    for one, (rows, pages) in rows_and_pages.items():
        tables[name(one)] = replace(tables[name(one)], row_estimate=rows, page_estimate=pages)
    return Catalog(tables)


def test_a_range_is_read_as_sets_as_far_as_they_are_of_a_bearable_size() -> None:
    """256 MiB are 32768 pages; 1024 blocks are a tenth of the users."""
    bearable = sized(users=(1_000_000, 10_240), orders=(9_000_000, 300_000))
    plan = plan_document(users(ORDERS), bearable)
    assert strategy_for_blocks(plan, 1024) is strategy_for_rows(plan, 100_000) is ReadStrategy.AGGREGATED
    assert strategy_for_blocks(plan, 2048) is strategy_for_rows(plan, 200_000) is ReadStrategy.MIXED


def test_a_row_that_many_share_is_counted_once() -> None:
    shared = JoinField("boss", "belongs_to", name("users"), ("id",), (), PLACE, column=("user_id",))
    known = sized(orders=(10_000_000, 10_240), users=(100, 100))
    plan = plan_document(IndexSpec("index", name("orders"), ("id",), (shared,), PLACE), known)
    assert strategy_for_blocks(plan, 1024) is ReadStrategy.AGGREGATED


def test_of_tables_that_were_never_analysed_only_what_has_no_index_is_a_set() -> None:
    plan = plan_document(users(ORDERS), sized())
    assert strategy_for_blocks(plan, 1024) is strategy_for_rows(plan, 5) is ReadStrategy.MIXED
