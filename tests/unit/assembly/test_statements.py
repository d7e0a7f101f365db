"""The SQL text is what the files in snapshots/ say; HEADRACE_SNAPSHOTS=write writes them anew."""

import dataclasses
import os
from pathlib import Path

import pytest

from headrace.assembly.lowering import plan_document
from headrace.assembly.read_strategies import ReadStrategy
from headrace.assembly.statement import keys_statement, range_statement
from headrace.errors import HeadraceError, Kind
from headrace.model.names import CtidRange
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    ConstantField,
    Field,
    Filter,
    IndexSpec,
    JoinField,
    ObjectField,
    OrderBy,
    SoftDelete,
    Through,
)
from unit.assembly.shop import PLACE, SHOP, condition, name

SNAPSHOTS = Path(__file__).parent / "snapshots"


def scalar(column: str, **more: object) -> ColumnField:
    return ColumnField(column, "keyword", column, required=False, opensearch="keyword", place=PLACE, **more)  # type: ignore[arg-type]


def index(*fields: Field, table: str = "users", key: tuple[str, ...] = ("id",), **more: object) -> IndexSpec:
    return IndexSpec("index", name(table), key, fields, PLACE, **more)  # type: ignore[arg-type]


PRODUCT = JoinField(
    "product", "belongs_to", name("products"), ("sku",), (scalar("name"),), PLACE, column=("product_sku",)
)
ITEMS = JoinField(
    "items", "has_many", name("items"), ("order_id", "pos"), (PRODUCT,), PLACE, foreign_key=("order_id",)
)
THROUGH = Through(name("user_tags"), "user_id", "tag_name")

CASES = {
    "plain": index(scalar("id"), scalar("name", transforms=("trim", "lowercase"), default="it's \\ none")),
    "soft_delete_and_filters": index(
        scalar("name"),
        filters=(condition("raw", raw="name <> 'x'"), condition("eq", "email", "A@b")),
        soft_delete=SoftDelete("deleted_at", (condition("gte", "id", 5),), PLACE),
    ),
    "lists": index(
        JoinField(
            "orders",
            "has_many",
            name("orders"),
            ("id",),
            (ObjectField("o", (scalar("total"), ConstantField("c", 7, PLACE)), PLACE), ITEMS),
            PLACE,
            foreign_key=("user_id",),
            filters=(condition("in", "id", 1, 2), condition("raw", raw="open")),
            order_by=(OrderBy("placed_at", descending=True),),
            limit=3,
        )
    ),
    "junction": index(
        JoinField("tags", "many_to_many", name("tags"), ("name",), (scalar("rank"),), PLACE, through=THROUGH)
    ),
    "aggregates": index(
        AggregateField("n", "count", name("orders"), PLACE, foreign_key=("user_id",)),
        AggregateField("sum", "sum", name("orders"), PLACE, "total", "decimal", ("user_id",)),
        AggregateField("avg", "avg", name("orders"), PLACE, "total", None, ("user_id",)),
        AggregateField("max", "max", name("orders"), PLACE, "placed_at", "timestamp", ("user_id",)),
        AggregateField("ids", "ids", name("tags"), PLACE, None, "keyword", through=THROUGH),
    ),
    "routed": index(
        scalar("name"),
        AggregateField("n", "count", name("orders"), PLACE, foreign_key=("user_id",)),
        routing="boss_id",
    ),
    "composite_key": index(scalar("pos"), table="items", key=("pos", "order_id")),
}


def compare(case: str, text: str) -> None:
    path = SNAPSHOTS / f"{case}.sql"
    if os.environ.get("HEADRACE_SNAPSHOTS") == "write":
        path.write_text(text + "\n")
    assert text + "\n" == path.read_text()


@pytest.mark.parametrize("case", CASES)
def test_documents_by_keys(case: str) -> None:
    compare(case, keys_statement(plan_document(CASES[case], SHOP)))


def test_where_a_document_lies_is_read_in_every_form() -> None:
    plan = plan_document(CASES["routed"], SHOP)
    compare("routed_aggregated", keys_statement(plan, ReadStrategy.AGGREGATED))
    compare("routed_range", range_statement(plan, CtidRange(3, 9)))


def test_documents_by_range() -> None:
    plan = plan_document(CASES["soft_delete_and_filters"], SHOP)
    compare("range", range_statement(plan, CtidRange(3, 9)))


@pytest.mark.parametrize("form", [ReadStrategy.MIXED, ReadStrategy.AGGREGATED])
@pytest.mark.parametrize("case", ["lists", "junction", "aggregates"])
def test_documents_by_sets(case: str, form: ReadStrategy) -> None:
    """Products have the index on their key, orders and items have none on the key above them."""
    compare(f"{case}_{form.value}", keys_statement(plan_document(CASES[case], SHOP), form))


def test_live_documents_by_sets() -> None:
    """Nothing is looked for that belongs to a row without a document."""
    orders = AggregateField("n", "count", name("orders"), PLACE, foreign_key=("user_id",))
    spec = dataclasses.replace(CASES["soft_delete_and_filters"], fields=(scalar("name"), orders))
    plan = plan_document(spec, SHOP)
    compare("soft_delete_and_filters_aggregated", keys_statement(plan, ReadStrategy.AGGREGATED))
    compare("range_aggregated", range_statement(plan, CtidRange(3, 9), ReadStrategy.AGGREGATED))


@pytest.mark.parametrize("case", ["plain", "soft_delete_and_filters", "composite_key"])
def test_documents_without_related_rows_have_one_form(case: str) -> None:
    plan = plan_document(CASES[case], SHOP)
    assert {keys_statement(plan, form) for form in ReadStrategy} == {keys_statement(plan)}


def test_the_open_range_of_a_partition_has_no_end() -> None:
    plan = plan_document(CASES["composite_key"], SHOP)
    text = range_statement(plan, CtidRange(0, None, name("items_1")))
    assert '"public"."items_1" AS t0' in text
    assert "$2" not in text


def test_many_members_take_no_more_than_ninety_arguments_each() -> None:
    fields = tuple(
        ColumnField(f"k{number}", "keyword", "name", required=False, opensearch="keyword", place=PLACE)
        for number in range(500)
    )
    text = keys_statement(plan_document(index(*fields), SHOP))
    assert text.count("concat(") == 13


RAW = [
    ("", "empty"),
    ("a = 1; DROP TABLE x", "';'"),
    ("a = 1 -- rest", "'--'"),
    ("a /* c */ = 1", "'/*'"),
    ("id IN (SELECT 1)", "SELECT"),
    ("now() > at", "now"),
    ("at < current_date", "current_date"),
    ('"random"() < 1', "random"),
    ("age (at) > '1 day'", "age"),
    ("a = $1", "'$1'"),
    ("a = 1) OR (true", "parentheses"),
    ("(a = 1", "parentheses"),
    ("a = 'open", "quote"),
    (r"a = E'\' OR (SELECT 1) -- ", "quote"),
]


@pytest.mark.parametrize(("raw", "named"), RAW)
def test_a_raw_filter_that_is_no_function_of_its_row_is_refused(raw: str, named: str) -> None:
    with pytest.raises(HeadraceError, match=r"shop\.schema\.yml:3:5") as caught:
        plan_document(index(filters=(condition("raw", raw=raw),)), SHOP)
    assert caught.value.kind is Kind.SCHEMA
    assert named in caught.value.cause


@pytest.mark.parametrize(
    "raw",
    ["age > 18", "a = 'x; SELECT now() --'", '"select" = 1', r"a = E'it\'s; --'", "a = $$;$$", "f(a)[1] = 2"],
)
def test_a_raw_filter_on_its_own_row_is_accepted(raw: str) -> None:
    plan_document(index(filters=(condition("raw", raw=raw),)), SHOP)


def between(*values: int) -> Filter:
    return condition("between", "id", *values)


WRONG = {
    "no column nope": index(scalar("nope")),
    "no table nope": index(table="nope"),
    "no key": index(key=("name",)),
    "1 column of the related table for 2": index(
        JoinField("u", "has_many", name("users"), ("id",), (), PLACE, foreign_key=("boss_id",)),
        table="items",
        key=("order_id", "pos"),
    ),
    "keys of several columns": index(
        AggregateField("n", "count", name("tags"), PLACE, through=THROUGH),
        table="items",
        key=("order_id", "pos"),
    ),
}


@pytest.mark.parametrize("cause", WRONG)
def test_what_cannot_be_rendered_names_its_place(cause: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        plan_document(WRONG[cause], SHOP)
    assert caught.value.kind is Kind.SCHEMA
    assert caught.value.cause.startswith("shop.schema.yml:3:5: ")
    assert cause in caught.value.cause


def test_a_filter_with_the_wrong_number_of_values_names_its_place() -> None:
    with pytest.raises(HeadraceError, match=r"shop\.schema\.yml:3:5"):
        keys_statement(plan_document(index(filters=(between(1),)), SHOP))
