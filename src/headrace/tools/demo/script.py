"""The scenes of the demo: changes of the shop's rows, each with the document that must follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """One transaction, and the document that shows whether it has arrived.

    Attributes:
        title: the title, for people.
        sql: the statements of the transaction, in order.
        document: the logical index of the document, and its id.
        arrived: returns whether the document (None where there is none) shows the change.
        shown: returns the part of the document that is displayed.
    """

    title: str
    sql: tuple[str, ...]
    document: tuple[str, str]
    arrived: Callable[[Document | None], bool]
    shown: Callable[[Document], object] = lambda _: "still there"


def _order(document: Document | None, number: int) -> Document | None:
    orders = [] if document is None else document["orders"]
    return next((order for order in orders if order["id"] == number), None)


# Behind every id of the shop, whatever its size.
_NEW_ID = 1_000_001

SCENES: tuple[Scene, ...] = (
    Scene(
        "a user changes her name",
        ("UPDATE users SET name = 'Ada Lovelace', deleted_at = NULL WHERE id = 1",),
        ("users", "1"),
        lambda d: d is not None and d["name"] == "Ada Lovelace",
        lambda d: {"name": d["name"]},
    ),
    Scene(
        "she orders; order and line in one transaction",
        (
            (
                "INSERT INTO orders (id, reference, user_id, status, total, placed_at) "
                f"VALUES ({_NEW_ID}, gen_random_uuid(), 1, 'paid', 99.50, now())"
            ),
            (
                "INSERT INTO order_items (id, order_id, product_id, position, quantity, unit_price) "
                f"VALUES ({_NEW_ID}, {_NEW_ID}, 1, 1, 2, 49.75)"
            ),
        ),
        ("users", "1"),
        lambda d: bool((order := _order(d, _NEW_ID)) and order["items"]),
        lambda d: {"orderCount": d["orderCount"], "lifetimeValue": d["lifetimeValue"]},
    ),
    Scene(
        "two levels down: the quantity of that line changes",
        (f"UPDATE order_items SET quantity = 7 WHERE id = {_NEW_ID}",),
        ("users", "1"),
        lambda d: bool((order := _order(d, _NEW_ID)) and order["items"][0]["quantity"] == 7),  # noqa: PLR2004
        lambda d: {"quantity": (order := _order(d, _NEW_ID)) and order["items"][0]["quantity"]},
    ),
    Scene(
        "the order moves to another user: both documents change",
        (
            "UPDATE users SET deleted_at = NULL WHERE id = 2",
            f"UPDATE orders SET user_id = 2 WHERE id = {_NEW_ID}",
        ),
        ("users", "2"),
        lambda d: _order(d, _NEW_ID) is not None,
        lambda d: {"orders": [order["id"] for order in d["orders"]]},
    ),
    Scene(
        "… and the first user has lost it",
        (),
        ("users", "1"),
        lambda d: d is not None and _order(d, _NEW_ID) is None,
        lambda d: {"orders": [order["id"] for order in d["orders"]]},
    ),
    Scene(
        "three tables away: the product on the line is renamed",
        ("UPDATE products SET name = 'Analytical Engine', hidden = false WHERE id = 1",),
        ("users", "2"),
        lambda d: bool(
            (order := _order(d, _NEW_ID)) and order["items"][0]["product"]["name"] == "Analytical Engine"
        ),
        lambda d: {"product": (order := _order(d, _NEW_ID)) and order["items"][0]["product"]["name"]},
    ),
    Scene(
        "a tag is linked to the product, through the junction table",
        (
            f"INSERT INTO tags (id, name, rank) VALUES ({_NEW_ID}, 'brass', 1000)",
            f"INSERT INTO product_tags (id, product_id, tag_id) VALUES ({_NEW_ID}, 1, {_NEW_ID})",
        ),
        ("products", "1"),
        lambda d: d is not None and any(tag["name"] == "brass" for tag in d["tags"]),
        lambda d: {"tags": [tag["name"] for tag in d["tags"]]},
    ),
    Scene(
        "the tag is renamed: every product that has it follows",
        (f"UPDATE tags SET name = 'steam' WHERE id = {_NEW_ID}",),
        ("products", "1"),
        lambda d: d is not None and any(tag["name"] == "steam" for tag in d["tags"]),
        lambda d: {"tags": [tag["name"] for tag in d["tags"]]},
    ),
    Scene(
        "a transaction of 5,000 rows: everything is paid for once more",
        (
            (
                "INSERT INTO order_items (order_id, product_id, position, quantity, unit_price) "
                f"SELECT {_NEW_ID}, 1, 100 + i % 10000, 1, 0.01 FROM generate_series(1, 5000) i"
            ),
        ),
        ("orders", str(_NEW_ID)),
        lambda d: d is not None and d["itemCount"] == 5001,  # noqa: PLR2004
        lambda d: {"itemCount": d["itemCount"], "pieces": d["pieces"]},
    ),
    Scene(
        "the order is deleted, with its lines",
        (f"DELETE FROM order_items WHERE order_id = {_NEW_ID}", f"DELETE FROM orders WHERE id = {_NEW_ID}"),
        ("orders", str(_NEW_ID)),
        lambda d: d is None,
    ),
    Scene(
        "a user is marked as deleted: her document goes",
        ("UPDATE users SET deleted_at = now() WHERE id = 1",),
        ("users", "1"),
        lambda d: d is None,
    ),
    Scene(
        "… and comes back",
        ("UPDATE users SET deleted_at = NULL WHERE id = 1",),
        ("users", "1"),
        lambda d: d is not None,
        lambda d: {"name": d["name"]},
    ),
)
