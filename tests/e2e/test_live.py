"""Does every kind of change reach every document that it concerns, and no other?

One pipeline follows one shop through all of these tests. Each test says which documents its change
concerns (by the oracle's own before and after, so the change really matters), then waits until all three
indexes are what the oracle expects.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import CONVERGED_WITHIN, Headrace, Shop
from headrace.embedded.processes import until
from support.shop_changes import CHANGES, STRANGE
from support.shop_workload import Workload

_VISIBLE_USER = "SELECT min(id) FROM users WHERE deleted_at IS NULL"
_SHOWN_ORDER = (
    "SELECT min(o.id) FROM orders AS o JOIN users AS u ON u.id = user_id "
    "WHERE deleted_at IS NULL AND status = 'paid' AND EXISTS (SELECT FROM order_items WHERE order_id = o.id)"
)
_SOLD_PRODUCT = (
    "SELECT min(product_id) FROM order_items AS i JOIN products AS p ON p.id = product_id "
    "JOIN orders AS o ON o.id = order_id JOIN users AS u ON u.id = user_id "
    "WHERE NOT hidden AND status = 'paid' AND deleted_at IS NULL"
)
_REVIEWED = (
    "SELECT min(product_id) FROM reviews JOIN products AS p ON p.id = product_id "
    "WHERE approved AND NOT hidden"
)


@pytest.fixture(scope="module")
def live(deploy: Deploy) -> Iterator[Headrace]:
    with deploy(users=40) as pipeline:
        pipeline.start()
        pipeline.wait_ready()
        yield pipeline
        pipeline.terminate()


@pytest.fixture(scope="module")
def shop(live: Headrace) -> Shop:
    return live.shop


def test_the_backfilled_indexes_are_what_the_database_says(live: Headrace) -> None:
    """/readyz says 200 only when every index is backfilled, so no time is given."""
    assert live.differences() == []


def test_a_root_is_inserted_updated_and_deleted(live: Headrace, shop: Shop) -> None:
    uuid = "00000000-0000-4000-8000-00000000aaaa"
    touched = shop.change(
        f"INSERT INTO users (id, external_id, email, name) VALUES (7001, '{uuid}', 'new@example.org', 'New')"
    )
    assert touched == {"users": {"7001"}}
    live.converges()
    assert shop.change("UPDATE users SET name = 'Newer', score = 0.1 WHERE id = 7001") == {"users": {"7001"}}
    live.converges()
    assert shop.change("DELETE FROM users WHERE id = 7001") == {"users": {"7001"}}
    live.converges()


def test_a_search_finds_a_change_although_the_index_is_never_refreshed_by_itself(
    live: Headrace, shop: Shop
) -> None:
    live.set_refresh_interval("users", "-1")
    try:
        for name in ("Eve", "Evelyn", "Eva"):
            shop.change("UPDATE users SET name = '" + name + " Found' WHERE id = 1")
            query = f'name:"{name} Found"'
            assert until(lambda: live.found("users", query) == ["1"], CONVERGED_WITHIN)  # noqa: B023
    finally:
        live.set_refresh_interval("users", None)


def test_a_child_is_inserted_updated_and_deleted(live: Headrace, shop: Shop) -> None:
    user = shop.id(_VISIBLE_USER)
    touched = shop.change(
        f"INSERT INTO addresses (id, user_id, street, city, country) VALUES (7002, {user}, 'S', 'C', 'CZ')"
    )
    assert touched == {"users": {str(user)}}
    live.converges()
    assert shop.change("UPDATE addresses SET latitude = 1.5, longitude = 2 WHERE id = 7002") == touched
    live.converges()
    assert shop.change("DELETE FROM addresses WHERE id = 7002") == touched
    live.converges()


def test_a_grandchild_is_inserted_updated_and_deleted(live: Headrace, shop: Shop) -> None:
    order = shop.id(_SHOWN_ORDER)
    user = shop.id(f"SELECT user_id FROM orders WHERE id = {order}")
    touched = shop.change(
        "INSERT INTO order_items (id, order_id, product_id, position, quantity, unit_price) "
        f"VALUES (700300, {order}, 1, 9, 2, 9.99)"
    )
    assert touched == {"users": {str(user)}, "orders": {str(order)}}
    live.converges()
    assert shop.change("UPDATE order_items SET quantity = 3, position = 0 WHERE id = 700300") == touched
    live.converges()
    assert shop.change("DELETE FROM order_items WHERE id = 700300") == touched
    live.converges()


def test_deleting_a_root_takes_its_children_along(live: Headrace, shop: Shop) -> None:
    """The cascade deletes orders, which are roots themselves, and sets the author of reviews to null."""
    user = shop.id(
        "SELECT user_id FROM reviews JOIN users AS u ON u.id = user_id WHERE deleted_at IS NULL LIMIT 1"
    )
    orders = {str(order) for order in shop.ids(f"SELECT id FROM orders WHERE user_id = {user}")}
    touched = shop.change(f"DELETE FROM users WHERE id = {user}")
    assert touched["users"] == {str(user)}
    assert touched["orders"] == orders
    live.converges()


def test_an_order_moves_to_another_user(live: Headrace, shop: Shop) -> None:
    order = shop.id(_SHOWN_ORDER)
    old = shop.id(f"SELECT user_id FROM orders WHERE id = {order}")
    new = shop.id(f"SELECT min(id) FROM users WHERE deleted_at IS NULL AND id <> {old}")
    touched = shop.change(f"UPDATE orders SET user_id = {new} WHERE id = {order}")
    assert touched == {"users": {str(old), str(new)}, "orders": {str(order)}}
    live.converges()


def test_an_item_moves_to_an_order_of_another_user(live: Headrace, shop: Shop) -> None:
    old = shop.id(_SHOWN_ORDER)
    users = "SELECT user_id FROM orders WHERE id = "
    new = shop.id(f"{_SHOWN_ORDER} AND user_id <> ({users}{old})")
    item = shop.id(f"SELECT min(id) FROM order_items WHERE order_id = {old}")
    touched = shop.change(f"UPDATE order_items SET order_id = {new} WHERE id = {item}")
    both = {str(shop.id(f"{users}{old}")), str(shop.id(f"{users}{new}"))}
    assert touched == {"users": both, "orders": {str(old), str(new)}}
    live.converges()


def test_a_review_moves_to_another_product(live: Headrace, shop: Shop) -> None:
    old = shop.id(_REVIEWED)
    new = shop.id(f"{_REVIEWED} AND p.id <> {old}")
    touched = shop.change(
        f"UPDATE reviews SET product_id = {new} WHERE id = "
        f"(SELECT min(id) FROM reviews WHERE approved AND product_id = {old})"
    )
    assert touched == {"products": {str(old), str(new)}}
    live.converges()


def test_an_address_moves_to_another_user(live: Headrace, shop: Shop) -> None:
    old, new = shop.ids("SELECT id FROM users WHERE deleted_at IS NULL ORDER BY id LIMIT 2")
    touched = shop.change(
        f"UPDATE addresses SET user_id = {new} "
        f"WHERE id = (SELECT min(id) FROM addresses WHERE user_id = {old})"
    )
    assert touched == {"users": {str(old), str(new)}}
    live.converges()


def test_a_profile_moves_to_another_user(live: Headrace, shop: Shop) -> None:
    """A to-one child: one document's object becomes null, the other one's an object."""
    old, new = shop.ids(
        "SELECT user_id FROM profiles JOIN users AS u ON u.id = user_id "
        "WHERE deleted_at IS NULL ORDER BY 1 LIMIT 2"
    )
    shop.run(f"DELETE FROM profiles WHERE user_id = {new}")
    live.converges()
    touched = shop.change(f"UPDATE profiles SET user_id = {new} WHERE user_id = {old}")
    assert touched == {"users": {str(old), str(new)}}
    live.converges()


def test_a_tag_is_linked_moved_and_unlinked(live: Headrace, shop: Shop) -> None:
    """The junction's own key says nothing about the two products that a moved link concerns."""
    shop.run("INSERT INTO tags (id, name, rank) VALUES (7004, 'new tag', 3)")
    one, two = shop.ids("SELECT id FROM products WHERE NOT hidden ORDER BY id LIMIT 2")
    touched = shop.change(f"INSERT INTO product_tags (id, product_id, tag_id) VALUES (7004, {one}, 7004)")
    assert touched == {"products": {str(one)}}
    live.converges()
    touched = shop.change(f"UPDATE product_tags SET product_id = {two} WHERE id = 7004")
    assert touched == {"products": {str(one), str(two)}}
    live.converges()
    assert shop.change("DELETE FROM product_tags WHERE id = 7004") == {"products": {str(two)}}
    live.converges()


def test_a_renamed_tag_reaches_every_product(live: Headrace, shop: Shop) -> None:
    tag = shop.id("SELECT tag_id FROM product_tags GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1")
    products = shop.ids(
        "SELECT p.id FROM product_tags JOIN products AS p ON p.id = product_id "
        f"WHERE tag_id = {tag} AND NOT hidden"
    )
    assert len(products) > 5
    touched = shop.change(f"UPDATE tags SET name = 'renamed' WHERE id = {tag}")
    assert touched == {"products": set(map(str, products))}
    live.converges()
    shop.change(f"UPDATE tags SET rank = rank + 20 WHERE id = {tag}")
    live.converges()


def test_a_deleted_tag_leaves_every_product(live: Headrace, shop: Shop) -> None:
    tag = shop.id("SELECT tag_id FROM product_tags GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1")
    assert len(shop.change(f"DELETE FROM tags WHERE id = {tag}")["products"]) > 5
    live.converges()


def test_a_renamed_product_reaches_orders_and_users(live: Headrace, shop: Shop) -> None:
    """Two hops to the orders, three to the users."""
    product = shop.id(_SOLD_PRODUCT)
    touched = shop.change(f"UPDATE products SET name = 'Renamed' WHERE id = {product}")
    orders = shop.ids(f"SELECT DISTINCT order_id FROM order_items WHERE product_id = {product}")
    assert touched["products"] == {str(product)}
    assert touched["orders"] == set(map(str, orders))
    assert touched["users"]
    live.converges()


def test_a_deleted_product_leaves_null_behind(live: Headrace, shop: Shop) -> None:
    product = shop.id(_SOLD_PRODUCT)
    touched = shop.change(f"DELETE FROM products WHERE id = {product}")
    assert touched.keys() == {"products", "orders", "users"}
    live.converges()


def test_a_renamed_user_reaches_orders_and_reviewed_products(live: Headrace, shop: Shop) -> None:
    user = shop.id(
        "SELECT min(user_id) FROM products AS p JOIN reviews ON p.id = product_id "
        "JOIN users AS u ON u.id = user_id WHERE NOT hidden AND approved AND deleted_at IS NULL "
        "AND (SELECT count(*) FROM reviews WHERE product_id = p.id) < 5 "
        "AND EXISTS (SELECT FROM orders WHERE user_id = u.id)"
    )
    touched = shop.change(
        f"UPDATE users SET name = 'Renamed', email = ' RENAMED@example.org' WHERE id = {user}"
    )
    assert touched["users"] == {str(user)}
    assert touched.keys() == {"users", "orders", "products"}
    live.converges()


def test_soft_delete_and_its_undo(live: Headrace, shop: Shop) -> None:
    user = shop.id(_VISIBLE_USER)
    assert shop.change(f"UPDATE users SET deleted_at = now() WHERE id = {user}") == {"users": {str(user)}}
    live.converges()
    assert str(user) not in live.documents("users")
    assert shop.change(f"UPDATE users SET deleted_at = NULL WHERE id = {user}") == {"users": {str(user)}}
    live.converges()
    assert str(user) in live.documents("users")


def test_a_child_of_a_soft_deleted_root_does_not_bring_it_back(live: Headrace, shop: Shop) -> None:
    """The order's own document changes; the user's comes back only with the user, then with the change."""
    order = shop.id(_SHOWN_ORDER)
    user = shop.id(f"SELECT user_id FROM orders WHERE id = {order}")
    shop.run(f"UPDATE users SET deleted_at = now() WHERE id = {user}")
    assert shop.change(f"UPDATE orders SET total = 77.77 WHERE id = {order}") == {"orders": {str(order)}}
    live.converges()
    assert shop.change(f"UPDATE users SET deleted_at = NULL WHERE id = {user}") == {"users": {str(user)}}
    live.converges()


def test_a_row_leaves_and_enters_the_root_filter(live: Headrace, shop: Shop) -> None:
    product = shop.id("SELECT min(id) FROM products WHERE NOT hidden")
    touched = {"products": {str(product)}}
    assert shop.change(f"UPDATE products SET hidden = true WHERE id = {product}") == touched
    live.converges()
    assert shop.change(f"UPDATE products SET hidden = false WHERE id = {product}") == touched
    live.converges()


def test_a_child_leaves_and_enters_a_join_filter(live: Headrace, shop: Shop) -> None:
    order = shop.id(_SHOWN_ORDER)
    assert "users" in shop.change(f"UPDATE orders SET status = 'cancelled' WHERE id = {order}")
    live.converges()
    assert "users" in shop.change(f"UPDATE orders SET status = 'paid' WHERE id = {order}")
    live.converges()


def test_a_rolled_back_transaction_and_savepoint_change_nothing(live: Headrace, shop: Shop) -> None:
    """Not even the version of the document that they would have changed."""
    one, two = shop.ids("SELECT id FROM users WHERE deleted_at IS NULL ORDER BY id LIMIT 2")
    live.converges()
    # What was written early may be written once more until it is confirmed.
    assert live.ask("/wait?timeout=50").json()["done"]
    before = live.version("users", str(one))
    rename = f"UPDATE users SET name = 'Undone' WHERE id = {one}"
    shop.run(rename, commit=False)
    shop.run("SAVEPOINT here", rename, "ROLLBACK TO here", f"UPDATE users SET name = 'Done' WHERE id = {two}")
    live.converges()
    assert live.documents("users")[str(two)]["name"] == "Done"
    assert live.version("users", str(one)) == before


def test_a_transaction_of_5000_rows(live: Headrace, shop: Shop) -> None:
    touched = shop.change(
        "INSERT INTO order_items (id, order_id, position, quantity, unit_price) SELECT 800000 + i, o.id, "
        "i % 30000, 1, 0.01 FROM generate_series(1, 5000) AS i JOIN (SELECT id, row_number() OVER () AS n, "
        "count(*) OVER () AS every FROM orders) AS o ON o.n = i % o.every + 1"
    )
    assert len(touched["orders"]) > 100
    live.converges()
    shop.change("DELETE FROM order_items WHERE id > 800000")
    live.converges()


def test_the_same_row_many_times_in_one_transaction(live: Headrace, shop: Shop) -> None:
    user = shop.id(_VISIBLE_USER)
    shop.change(
        *(f"UPDATE users SET level = {level} WHERE id = {user}" for level in range(50)),
        f"DELETE FROM profiles WHERE user_id = {user}",
        f"INSERT INTO profiles (user_id, bio) VALUES ({user}, 'again')",
    )
    live.converges()


def test_a_root_changes_its_primary_key(live: Headrace, shop: Shop) -> None:
    """The old id's document goes, the new one's comes; children follow by ON UPDATE CASCADE."""
    user = shop.id(f"SELECT user_id FROM orders WHERE id = ({_SHOWN_ORDER})")
    touched = shop.change(f"UPDATE users SET id = 7005 WHERE id = {user}")
    assert touched["users"] == {str(user), "7005"}
    assert touched["orders"]
    live.converges()


def test_a_root_without_children_changes_its_primary_key(live: Headrace, shop: Shop) -> None:
    """No cascade helps here: only the root's own old key says which document goes."""
    uuid = "00000000-0000-4000-8000-00000000bbbb"
    shop.run(f"INSERT INTO users (id, external_id, email, name) VALUES (7006, '{uuid}', 'e', 'Alone')")
    live.converges()
    assert shop.change("UPDATE users SET id = 7007 WHERE id = 7006") == {"users": {"7006", "7007"}}
    live.converges()


def test_a_child_changes_its_primary_key(live: Headrace, shop: Shop) -> None:
    order = shop.id(_SHOWN_ORDER)
    item = shop.id(f"SELECT min(id) FROM order_items WHERE order_id = {order}")
    touched = shop.change(f"UPDATE order_items SET id = 700700 WHERE id = {item}")
    assert touched["orders"] == {str(order)}
    live.converges()


def test_a_nullable_foreign_key_is_set_and_unset(live: Headrace, shop: Shop) -> None:
    order = shop.id("SELECT min(id) FROM orders WHERE shipping_address_id IS NULL")
    touched = {"orders": {str(order)}}
    assert (
        shop.change(
            f"UPDATE orders SET shipping_address_id = (SELECT min(id) FROM addresses) WHERE id = {order}"
        )
        == touched
    )
    live.converges()
    assert shop.change(f"UPDATE orders SET shipping_address_id = NULL WHERE id = {order}") == touched
    live.converges()


def test_strange_text_arrives_as_it_is(live: Headrace, shop: Shop) -> None:
    """Quotes, backslashes, control characters, other scripts, long text: in columns, json, lists."""
    user = shop.id(_VISIBLE_USER)
    with Workload(shop.url, seed=1) as workload:
        for _ in STRANGE:
            workload.step("change profile")
            workload.step("rename product")
            workload.step("change review")
    quoted = [text.replace("'", "''") for text in STRANGE]
    for text in quoted:
        shop.run(
            f"UPDATE users SET name = left('{text}', 120), "
            f"attributes = jsonb_build_object('note', '{text}'::text) WHERE id = {user}"
        )
        live.converges()


def test_every_kind_of_change_that_a_workload_knows(live: Headrace, shop: Shop) -> None:
    """One transaction for each kind, then random ones all at once."""
    with Workload(shop.url, seed=11) as workload:
        for change in CHANGES:
            workload.step(change)
        live.converges()
        for _ in range(100):
            workload.step()
    live.converges()


def test_truncating_a_child_table(live: Headrace, shop: Shop) -> None:
    touched = shop.change("TRUNCATE reviews")
    assert touched["products"]
    assert touched["users"]
    live.converges()
    shop.change("TRUNCATE profiles", f"INSERT INTO profiles (user_id, bio) SELECT ({_VISIBLE_USER}), 'after'")
    live.converges()


def test_what_is_new_beside_a_truncate_arrives(live: Headrace, shop: Shop) -> None:
    """As a nightly load does it: empty the table and fill it again, in one transaction, with new keys."""
    touched = shop.change(
        "INSERT INTO products (id, sku, name, price) VALUES (7020, 'S7020', 'Before', 1)",
        "TRUNCATE product_tags, reviews",
        "INSERT INTO products (id, sku, name, price) VALUES (7021, 'S7021', 'Behind', 1)",
    )
    assert {"7020", "7021"} <= touched["products"]
    live.converges()


def test_the_oracle_sees_an_edited_a_lost_and_a_foreign_document(live: Headrace, shop: Shop) -> None:
    """Behind the pipeline's back: one value, one deletion, one orphan; each must turn the comparison red."""
    live.converges()
    alias = f"{live.sink_url}/{live.prefix}orders"
    one, two = sorted(live.documents("orders"), key=int)[:2]
    _ask("POST", f"{alias}/_update/{one}", {"doc": {"total": 123456.78}})
    _ask("DELETE", f"{alias}/_doc/{two}")
    _ask("PUT", f"{alias}/_doc/999999", {"id": 999999})
    assert [line.split(":")[0] for line in live.differences()] == [
        f"orders {two}",
        "orders 999999",
        f"orders {one} total",
    ]
    _ask("DELETE", f"{alias}/_doc/999999")
    shop.run(f"UPDATE orders SET note = 'touched' WHERE id IN ({one}, {two})")
    live.converges()


def test_truncating_roots_and_their_children(live: Headrace, shop: Shop) -> None:
    """The last test of this file: it empties an index."""
    assert shop.change("TRUNCATE orders CASCADE").keys() == {"users", "orders"}
    live.converges()
    assert live.documents("orders") == {}


def _ask(method: str, url: str, body: object = None) -> None:
    response = urllib3.request(method, url, json=body, timeout=30)
    assert response.status < 300, response.data
