import pickle
from dataclasses import replace

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.resolution import plan_resolution, required_columns
from headrace.resolution.plan import Route
from headrace.schema.tree import (
    AggregateField,
    ColumnField,
    Field,
    Filter,
    IndexSpec,
    JoinField,
    ObjectField,
    OrderBy,
    SoftDelete,
    Through,
)
from unit.assembly.shop import PLACE, SHOP, catalog, name, table


def index(*fields: Field, table: str = "users", key: tuple[str, ...] = ("id",)) -> IndexSpec:
    return IndexSpec("index", name(table), key, fields, PLACE)


def routes(spec: IndexSpec, table_name: str) -> tuple[Route, ...]:
    """Where they lead; `reads` are looked at by `read`."""
    return tuple(
        replace(route, reads=None) for route in plan_resolution([spec], SHOP).routes[name(table_name)]
    )


def read(spec: IndexSpec, table_name: str) -> list[set[str] | None]:
    found = plan_resolution([spec], SHOP).routes[name(table_name)]
    return [None if route.reads is None else set(route.reads) for route in found]


PRODUCT = JoinField("product", "belongs_to", name("products"), ("sku",), (), PLACE, column=("product_sku",))
ITEMS = JoinField(
    "items", "has_many", name("items"), ("order_id", "pos"), (PRODUCT,), PLACE, foreign_key=("order_id",)
)
ORDERS = JoinField("orders", "has_many", name("orders"), ("id",), (ITEMS,), PLACE, foreign_key=("user_id",))
TAGS = JoinField(
    "tags",
    "many_to_many",
    name("tags"),
    ("name",),
    (),
    PLACE,
    through=Through(name("user_tags"), "user_id", "tag_name"),
)
BOSS = JoinField("boss", "belongs_to", name("users"), ("id",), (), PLACE, column=("boss_id",))


def test_a_root_and_its_children_need_no_query() -> None:
    spec = index(ORDERS)
    assert routes(spec, "users") == (Route("index", ("id",), None),)
    assert routes(spec, "orders") == (Route("index", ("user_id",), None),)


def test_a_grandchild_asks_its_parent() -> None:
    assert routes(index(ORDERS), "items") == (
        Route(
            "index",
            ("order_id",),
            'SELECT DISTINCT h1."user_id"::text\n'
            "FROM unnest($1::text[]) AS v (v1)\n"
            'JOIN "public"."orders" AS h1 ON h1."id" = v.v1::pg_catalog."int8"',
        ),
    )


def test_a_row_that_others_point_at_asks_them() -> None:
    assert routes(index(ORDERS), "products") == (
        Route(
            "index",
            ("sku",),
            'SELECT DISTINCT h2."user_id"::text\n'
            "FROM unnest($1::text[]) AS v (v1)\n"
            'JOIN "public"."items" AS h1 ON h1."product_sku" = v.v1::pg_catalog."varchar"\n'
            'JOIN "public"."orders" AS h2 ON h2."id" = h1."order_id"',
        ),
    )


def test_a_junction_leads_by_its_left_key_and_the_related_row_through_it() -> None:
    spec = index(TAGS)
    assert routes(spec, "user_tags") == (Route("index", ("user_id",), None),)
    (related,) = routes(spec, "tags")
    assert related.statement is not None
    assert 'h1."tag_name" OPERATOR("public".=) v.v1::public.citext' in related.statement
    assert related.statement.startswith('SELECT DISTINCT h1."user_id"::text')


def test_rows_that_refer_to_another_column_than_the_key_ask_their_parent() -> None:
    """The parent's column counts as read: where it changes, other rows belong to the document."""
    spec = index(replace(ORDERS, fields=(), references=("boss_id",)))
    [orders] = routes(spec, "orders")
    assert orders.columns == ("user_id",)
    assert 'h1."boss_id" = v.v1' in (orders.statement or "")
    assert read(spec, "users") == [{"id", "boss_id"}]


def test_a_junction_between_columns_that_are_no_keys_asks_for_both_ends() -> None:
    through = Through(name("user_tags"), "user_id", "tag_name", "boss_id", "rank")
    spec = index(replace(TAGS, through=through))
    [junction], [related] = routes(spec, "user_tags"), routes(spec, "tags")
    assert 'h1."boss_id" = v.v1' in (junction.statement or "")
    assert related.columns == ("rank",)
    assert read(spec, "users") == [{"id", "boss_id"}]
    assert read(spec, "tags") == [{"name", "rank"}]


def test_a_self_reference_leads_by_both_ends() -> None:
    own, referred = routes(index(BOSS), "users")
    assert own == Route("index", ("id",), None)
    assert referred.columns == ("id",)
    assert referred.statement is not None
    assert 'h1."boss_id" = v.v1' in referred.statement


def test_an_aggregate_leads_as_a_join_does() -> None:
    aggregate = AggregateField("n", "count", name("orders"), PLACE, foreign_key=("user_id",))
    assert routes(index(aggregate), "orders") == (Route("index", ("user_id",), None),)


def test_a_key_of_another_kind_is_looked_up_in_the_parent() -> None:
    """A text that means a number need not be written as the number's key is."""
    other = catalog(table("users", "id:int8", "id"), table("visits", "id:int8 who:numeric", "id"))
    visits = AggregateField("n", "count", name("visits"), PLACE, foreign_key=("who",))
    (route,) = plan_resolution([index(visits)], other).routes[name("visits")]
    assert route.statement is not None
    assert 'SELECT DISTINCT h1."id"::text' in route.statement


@pytest.mark.parametrize(("holds", "asks"), [("int4", False), ("int8", True)])
def test_a_larger_integer_is_looked_up_in_the_parent(holds: str, asks: bool) -> None:
    """Without a foreign key it may hold what is no value of the key's type, and the stream would end."""
    other = catalog(table("users", "id:int4", "id"), table("visits", f"id:int8 who:{holds}", "id"))
    visits = AggregateField("n", "count", name("visits"), PLACE, foreign_key=("who",))
    (route,) = plan_resolution([index(visits)], other).routes[name("visits")]
    assert (route.statement is not None) == asks


def test_a_partition_arrives_under_its_own_name_too() -> None:
    plan = plan_resolution([index(ORDERS)], SHOP)
    assert plan.routes[name("items_1")] == plan.routes[name("items")]


def test_the_plan_crosses_to_a_worker() -> None:
    plan = plan_resolution([index(ORDERS, TAGS, BOSS)], SHOP)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_old_rows_must_carry_what_leads_upwards_and_no_more() -> None:
    required = required_columns([index(ORDERS, TAGS, BOSS)], SHOP)
    assert {str(one): value.columns for one, value in required.items()} == {
        "users": ("id",),
        "orders": ("user_id",),
        "items": ("order_id",),
        "products": ("sku",),
        "tags": ("name",),
        "user_tags": ("user_id",),
    }
    assert required[TableName("public", "items")].why == "order_id leads to orders for index"


def test_an_unknown_column_names_its_place() -> None:
    wrong = JoinField("x", "has_many", name("orders"), ("id",), (), PLACE, foreign_key=("nope",))
    with pytest.raises(HeadraceError, match=r":3:5: table orders has no column nope") as caught:
        plan_resolution([index(wrong)], SHOP)
    assert caught.value.kind is Kind.SCHEMA


def test_each_place_knows_the_columns_that_it_reads() -> None:
    shown = ColumnField("sum", "decimal", "total", required=False, opensearch="double", place=PLACE)
    inside = ObjectField("money", (shown,), PLACE)
    paid = Filter("eq", "status", ("paid",), None, PLACE)
    by_date = OrderBy("placed_at", descending=True)
    orders = replace(ORDERS, fields=(inside, ITEMS), filters=(paid,), order_by=(by_date,))
    assert read(index(orders), "orders") == [{"id", "user_id", "total", "status", "placed_at"}]
    assert read(index(orders), "items") == [{"order_id", "pos", "product_sku"}]
    assert read(index(BOSS), "users") == [{"id", "boss_id"}, {"id"}]
    assert read(index(TAGS), "user_tags") == [{"user_id", "tag_name"}]
    assert read(index(TAGS), "tags") == [{"name"}]
    marked = replace(index(), soft_delete=SoftDelete("gone", (paid,), PLACE))
    assert read(marked, "users") == [{"id", "gone", "status"}]
    total = AggregateField(
        "total", "sum", name("orders"), PLACE, column="total", value_type="decimal", foreign_key=("user_id",)
    )
    assert read(index(total), "orders") == [{"id", "user_id", "total"}]
    raw = Filter("raw", None, (), "total > 1", PLACE)
    assert read(index(replace(ORDERS, filters=(raw,))), "orders") == [None]


def test_places_that_one_way_leads_to_are_one_route() -> None:
    """A tag's name and the number of tags: a renamed tag asks once, and writes each document once."""
    counted = AggregateField("n", "count", name("tags"), PLACE, through=TAGS.through, primary_key=("name",))
    shown = replace(
        TAGS, fields=(ColumnField("label", "text", "label", required=False, opensearch="text", place=PLACE),)
    )
    assert read(index(shown, counted), "tags") == [{"name", "label"}]
    assert len(routes(index(shown, counted), "tags")) == 1
    raw = Filter("raw", None, (), "label <> ''", PLACE)
    assert read(index(shown, replace(counted, filters=(raw,))), "tags") == [None]


def test_every_update_of_a_root_row_counts_for_an_index_that_the_row_may_be_missing_in() -> None:
    spec = index(ORDERS)
    found = plan_resolution([spec], SHOP, every_update={"index"}).routes
    assert [route.reads for route in found[name("users")]] == [None]
    assert read(spec, "users") != [None]
    assert [route.reads for route in found[name("orders")]] == read(spec, "orders") != [None]
