"""The single changes of the shop's workload.

Each is a small function of a `Hand`. Together they change every column, key and link that a document of the
shop depends on. They keep the shop's invariants.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from headrace.postgres.connection import Connection, execute
from headrace.tools.demo.shop import TABLES

__all__ = ["CHANGES", "STRANGE", "WEIGHTS", "Hand"]

STRANGE = (
    "plain",
    "",
    "quotes \" and ' and `",
    "back\\slash \\n \\u0041",
    "new\nline, tab\t, return\r",
    "größe / 東京 / 🦊 / \u202eright to left\u202c",
    '{"json": [null]}',
    "\x01\x1f\x7f control",
    "<b>&amp;</b>",
    "x" * 3000,
)
"""Texts that are easy to escape wrongly in JSON; the last is long enough to be stored as TOAST."""

_PICK = {
    table: (
        f"SELECT min(id), max(id) FROM public.{table}",
        f"SELECT min(id) FROM public.{table} WHERE id >= $1",
    )
    for table in TABLES
}


class Hand:
    """A writer in an open transaction: runs statements, and picks rows and values by a seed."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self.random = random.Random(seed)
        self._connection = connection

    def do(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run one statement."""
        return execute(self._connection, sql, parameters)

    def dice(self, sides: int) -> int:
        """Return a random number from 1 to `sides`."""
        return self.random.randint(1, sides)

    def text(self) -> str:
        """Return a random text, often a strange one, that ends with a number."""
        return f"{self.random.choice(STRANGE)} {self.dice(1000)}"

    def price(self) -> str:
        """Return a random amount that fits numeric(10, 2)."""
        return f"{self.dice(99999)}.{self.random.randrange(100):02}"

    def uuid(self) -> str:
        """Return a new random UUID."""
        return f"{self.random.getrandbits(128):032x}"

    def any(self, table: str) -> int | None:
        """Return the id of a random row; None where there is none, or another writer has just deleted it."""
        span, following = _PICK[table]
        [(low, high)] = self.do(span)
        if low is None:
            return None
        # From a random id on, not by OFFSET: that would read half of the table each time.
        [(row,)] = self.do(following, self.random.randint(low, high))
        return None if row is None else int(row)


Change = Callable[[Hand], None]


def _insert_user(hand: Hand) -> None:
    [(user,)] = hand.do(
        "INSERT INTO public.users (external_id, email, name, level, credit, score, attributes) "
        "VALUES ($1::uuid, $2, $3, $4, $5::numeric, $6, jsonb_build_object('note', $7::text)) RETURNING id",
        *(hand.uuid(), f" New{hand.dice(9999)}@Example.org ", hand.text()[:120], hand.dice(9)),
        *(hand.price(), hand.random.random() * 1e6, hand.text()),
    )
    hand.do("INSERT INTO public.profiles (user_id, bio) VALUES ($1, $2)", user, hand.text())
    _insert_address(hand, user)
    _insert_order(hand, user)


def _insert_address(hand: Hand, user: int | None = None) -> None:
    hand.do(
        "INSERT INTO public.addresses (user_id, street, city, country, latitude, longitude) "
        # Another writer may have emptied the table meanwhile; then nothing is inserted.
        "SELECT $1, $2, $3, 'CZ', $4, $5 WHERE $1 IS NOT NULL",
        *(user or hand.any("users"), hand.text(), hand.text()),
        *(hand.random.uniform(-90, 90), hand.random.uniform(-180, 180)),
    )


def _insert_order(hand: Hand, user: int | None = None) -> None:
    orders = hand.do(
        "INSERT INTO public.orders (reference, user_id, status, total, note) "
        "SELECT $1::uuid, $2, 'new', $3::numeric, $4 WHERE $2 IS NOT NULL RETURNING id",
        *(hand.uuid(), user or hand.any("users"), hand.price(), hand.text()),
    )
    for (order,) in orders:
        for position in range(1, 1 + hand.dice(4)):
            hand.do(
                "INSERT INTO public.order_items (order_id, product_id, position, quantity, unit_price) "
                "VALUES ($1, $2, $3, $4, $5::numeric)",
                *(order, hand.any("products"), position, hand.dice(5), hand.price()),
            )


def _insert_product(hand: Hand) -> None:
    [(product,)] = hand.do(
        "INSERT INTO public.products (sku, name, description, price, weight, labels) "
        "VALUES ($1, $2, $3, $4::numeric, $5, jsonb_build_object('en', $6::text)) RETURNING id",
        *(hand.uuid(), hand.text(), hand.text(), hand.price(), hand.random.random(), hand.text()),
    )
    hand.do(
        "INSERT INTO public.product_tags (product_id, tag_id) "
        "SELECT $1, id FROM public.tags WHERE id % 7 = $2",
        *(product, hand.random.randrange(7)),
    )


def _insert_review(hand: Hand) -> None:
    hand.do(
        "INSERT INTO public.reviews (product_id, user_id, rating, body, approved) "
        "SELECT $1, $2, $3, $4, $5 WHERE $1 IS NOT NULL",
        *(hand.any("products"), hand.any("users"), hand.dice(5), hand.text(), hand.dice(4) > 1),
    )


def _link_tag(hand: Hand) -> None:
    hand.do(
        "INSERT INTO public.product_tags (product_id, tag_id) "
        "SELECT $1, $2 WHERE $1 IS NOT NULL AND $2 IS NOT NULL ON CONFLICT DO NOTHING",
        *(hand.any("products"), hand.any("tags")),
    )


def _relink_tag(hand: Hand) -> None:
    """Point a junction row at another product that it is not linked to yet."""
    hand.do(
        "UPDATE public.product_tags AS link SET product_id = $2 "
        "WHERE id = $1 AND $2 IS NOT NULL AND NOT EXISTS (SELECT FROM public.product_tags AS other "
        "WHERE other.product_id = $2 AND other.tag_id = link.tag_id)",
        *(hand.any("product_tags"), hand.any("products")),
    )


def _insert_profile(hand: Hand) -> None:
    hand.do(
        "INSERT INTO public.profiles (user_id, bio) SELECT $1, $2 WHERE $1 IS NOT NULL "
        "ON CONFLICT (user_id) DO UPDATE SET bio = excluded.bio",
        *(hand.any("users"), hand.text()),
    )


def _many_orders(hand: Hand) -> None:
    """Change many orders, and so their users' documents, in one statement."""
    hand.do(
        "UPDATE public.orders SET total = total + 1 WHERE id % 50 = $1 AND total < 90000000",
        hand.random.randrange(50),
    )


def _set(table: str, assignment: str, *values: Callable[[Hand], object]) -> Change:
    """Return a change that updates one row of `table`; the values are `$2` and on."""
    sql = f"UPDATE public.{table} SET {assignment} WHERE id = $1"

    def change(hand: Hand) -> None:
        hand.do(sql, hand.any(table), *(value(hand) for value in values))

    return change


def _delete(table: str) -> Change:
    sql = f"DELETE FROM public.{table} WHERE id = $1"

    def change(hand: Hand) -> None:
        hand.do(sql, hand.any(table))

    return change


def _renumber(table: str) -> Change:
    """Return a change of a row's primary key to the next number of the identity sequence."""
    return _set(table, f"id = nextval(pg_get_serial_sequence('public.{table}', 'id'))")


def _some(table: str) -> Callable[[Hand], object]:
    return lambda hand: hand.any(table)


_text = Hand.text
_price = Hand.price

CHANGES: dict[str, Change] = {
    "insert user": _insert_user,
    "change user": _set("users", "name = left($2, 120), email = $3, active = NOT active", _text, _text),
    "change user's values": _set(
        "users", "credit = $2::numeric, score = random(), attributes = NULL", _price
    ),
    "soft-delete user": _set("users", "deleted_at = now()"),
    "restore user": _set("users", "deleted_at = NULL"),
    "delete user": _delete("users"),
    "renumber user": _renumber("users"),
    "insert profile": _insert_profile,
    "change profile": _set("profiles", "bio = $2, newsletter = NOT newsletter", _text),
    "delete profile": _delete("profiles"),
    "insert address": _insert_address,
    "change address": _set("addresses", "street = $2, latitude = NULL", _text),
    "move address": _set("addresses", "user_id = coalesce($2, user_id)", _some("users")),
    "delete address": _delete("addresses"),
    "insert order": _insert_order,
    "change order": _set("orders", "status = 'paid', paid_at = now(), note = $2", _text),
    "cancel order": _set("orders", "status = 'cancelled'"),
    "move order": _set("orders", "user_id = coalesce($2, user_id)", _some("users")),
    "ship order": _set("orders", "shipping_address_id = $2, shipped_at = now()", _some("addresses")),
    "unset address": _set("orders", "shipping_address_id = NULL"),
    "delete order": _delete("orders"),
    "renumber order": _renumber("orders"),
    "many orders": _many_orders,
    "change item": _set("order_items", "quantity = quantity % 9 + 1, gift = NOT gift"),
    "move item": _set("order_items", "order_id = coalesce($2, order_id)", _some("orders")),
    "swap product": _set("order_items", "product_id = $2", _some("products")),
    "unset product": _set("order_items", "product_id = NULL"),
    "delete item": _delete("order_items"),
    "renumber item": _renumber("order_items"),
    "insert product": _insert_product,
    "rename product": _set("products", "name = $2", _text),
    "price product": _set("products", 'price = $2::numeric, labels = labels || \'{"new": "yes"}\'', _price),
    "hide product": _set("products", "hidden = NOT hidden"),
    "delete product": _delete("products"),
    "renumber product": _renumber("products"),
    "rename tag": _set("tags", "name = $2", _text),
    "rank tag": _set("tags", "rank = (rank * 7 + 3) % 10"),
    "link tag": _link_tag,
    "relink tag": _relink_tag,
    "unlink tag": _delete("product_tags"),
    "insert review": _insert_review,
    "change review": _set("reviews", "rating = rating % 5 + 1, body = $2", _text),
    "approve review": _set("reviews", "approved = NOT approved"),
    "move review": _set("reviews", "product_id = coalesce($2, product_id)", _some("products")),
    "author review": _set("reviews", "user_id = $2", _some("users")),
    "anonymise review": _set("reviews", "user_id = NULL"),
    "delete review": _delete("reviews"),
}
"""Every kind of change, by the name that `Workload.step` takes."""

WEIGHTS = dict.fromkeys(CHANGES, 10) | {
    "delete user": 2,
    "delete product": 2,
    "many orders": 3,
    "insert user": 4,
}
"""The weight of each kind among random changes; deletions of roots are rare, or the shop would empty."""
