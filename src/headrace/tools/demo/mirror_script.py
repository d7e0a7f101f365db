"""The scenes of the mirror's demo: changes of the shop, each with the row of the lake that must follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class MirrorScene:
    """One transaction, and the row of the lake that shows whether it has arrived.

    Attributes:
        title: the title, for people.
        sql: the statements of the transaction, in order.
        table: the table of the row.
        id: the row's key.
        arrived: returns whether the row (None where there is none) shows the change.
        column: the column that is displayed.
    """

    title: str
    sql: tuple[str, ...]
    table: str
    id: int
    arrived: Callable[[Row], bool]
    column: str


_NEW_ID = 1_000_001

MIRROR_SCENES = (
    MirrorScene(
        "a user changes her name",
        ("UPDATE users SET name = 'Ada Lovelace' WHERE id = 1",),
        "users",
        1,
        lambda row: row is not None and row["name"] == "Ada Lovelace",
        "name",
    ),
    MirrorScene(
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
        "order_items",
        _NEW_ID,
        lambda row: row is not None,
        "unit_price",
    ),
    MirrorScene(
        "a column is added while the mirror runs: rows that were there before have its default",
        ("ALTER TABLE users ADD COLUMN language text DEFAULT 'en'",),
        "users",
        2,
        lambda row: row is not None and row.get("language") == "en",
        "language",
    ),
    MirrorScene(
        "a review gets another key",
        ("UPDATE reviews SET id = -1 WHERE id = (SELECT min(id) FROM reviews)",),
        "reviews",
        -1,
        lambda row: row is not None,
        "rating",
    ),
    MirrorScene(
        "a transaction of 5,000 rows",
        (
            (
                "INSERT INTO order_items (order_id, product_id, position, quantity, unit_price) "
                f"SELECT {_NEW_ID}, 1, i, 1, 0.01 FROM generate_series(2, 5001) i"
            ),
            f"UPDATE order_items SET quantity = 3 WHERE id = {_NEW_ID}",
        ),
        "order_items",
        _NEW_ID,
        lambda row: row is not None and row["quantity"] == 3,  # noqa: PLR2004
        "quantity",
    ),
    MirrorScene(
        "the order is deleted, with its lines",
        (f"DELETE FROM order_items WHERE order_id = {_NEW_ID}", f"DELETE FROM orders WHERE id = {_NEW_ID}"),
        "orders",
        _NEW_ID,
        lambda row: row is None,
        "status",
    ),
    MirrorScene(
        "a table is created, and filled",
        (
            "CREATE TABLE coupons (id bigint PRIMARY KEY, code text, percent numeric(5, 2))",
            "INSERT INTO coupons VALUES (1, 'WELCOME', 7.50)",
        ),
        "coupons",
        1,
        lambda row: row is not None,
        "percent",
    ),
)
