"""Does the oracle say what a person works out by hand?

Every expected value below was written down from the inserted rows, not computed.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from headrace.postgres.connection import connect, execute
from headrace.tools.demo.shop import create_shop
from support.shop_oracle import expected_documents

_ROWS = """
TRUNCATE users, products, tags CASCADE;
INSERT INTO users
    (id, external_id, email, name, level, credit, score, birthday, attributes, created_at)
VALUES
    (1, '00000000-0000-4000-8000-000000000001', ' Ada@Example.org ', 'Ada', 3, NULL, 0.1, '1815-12-10',
     '{"a": [1, null, "x"]}', '2026-01-02 03:04:05.120+00'),
    (2, '00000000-0000-4000-8000-000000000002', 'bob@example.org', 'Bob "B" \\ é', 1, 12.30, NULL, NULL, NULL,
     '2026-01-02 05:04:05+02');
INSERT INTO users (id, external_id, email, name, deleted_at) VALUES
    (3, '00000000-0000-4000-8000-000000000003', 'gone@example.org', 'Gone', now());
INSERT INTO profiles (user_id, bio, newsletter) VALUES (1, NULL, true);
INSERT INTO addresses (id, user_id, street, city, country, latitude, longitude) VALUES
    (11, 1, 'High Street', 'London', 'GB', 51.5, -0.12), (10, 1, 'Low Street', 'Paris', 'FR', 48.8, NULL);
INSERT INTO products (id, sku, name, price, labels, hidden) VALUES
    (1, 'A-1', 'Lamp', 10.50, '{"en": "lamp"}', false), (2, 'B-2', 'Hidden lamp', 1, '{}', true);
INSERT INTO orders (id, reference, user_id, shipping_address_id, status, total, placed_at, paid_at) VALUES
    (1, '00000000-0000-4000-8000-0000000000a1', 1, 11, 'paid', 10.10, '2026-02-01Z', '2026-02-02Z'),
    (2, '00000000-0000-4000-8000-0000000000a2', 1, NULL, 'new', 5.00, '2026-03-01 00:00+00', NULL),
    (3, '00000000-0000-4000-8000-0000000000a3', 1, NULL, 'cancelled', 1.00, '2026-04-01 00:00+00', NULL),
    (4, '00000000-0000-4000-8000-0000000000a4', 3, NULL, 'new', 0.00, '2026-04-01 00:00+00', NULL);
INSERT INTO order_items (id, order_id, product_id, position, quantity, unit_price, gift) VALUES
    (1, 1, 1, 2, 3, 10.50, true), (2, 1, NULL, 1, 4, 2.00, false);
INSERT INTO tags (id, name, rank) VALUES (1, 'low', 1), (2, 'high', 5), (3, 'also high', 5);
INSERT INTO product_tags (product_id, tag_id) VALUES (1, 1), (1, 3), (1, 2), (2, 1);
INSERT INTO reviews (id, product_id, user_id, rating, body, approved, created_at) VALUES
    (1, 1, 1, 4, 'good', true, '2026-05-01 00:00+00'), (2, 1, NULL, 5, 'best', true, '2026-05-02 00:00+00'),
    (3, 1, 3, 1, 'unseen', false, '2026-05-03 00:00+00'), (4, 1, 3, 4, 'tie', true, '2026-05-02 00:00+00');
"""


@pytest.fixture
def shop(database: str) -> str:
    create_shop(database, users=1)
    with connect(database) as connection:
        execute(connection, _ROWS)
    return database


def test_users(shop: str) -> None:
    """Soft-deleted users have no document; cancelled orders count but are not shown."""
    documents = expected_documents(shop)["users"]
    assert documents.keys() == {"1", "2"}
    assert documents["1"] == {
        "id": 1,
        "externalId": "00000000-0000-4000-8000-000000000001",
        "email": "ada@example.org",
        "name": "Ada",
        "active": True,
        "level": 3,
        "credit": 0,
        "score": Decimal("0.1"),
        "birthday": "1815-12-10",
        "attributes": {"a": [1, None, "x"]},
        "createdAt": "2026-01-02T03:04:05.12+00:00",
        "kind": "customer",
        "profile": {"bio": None, "website": None, "newsletter": True},
        "addresses": [
            {
                "id": 10,
                "label": None,
                "street": "Low Street",
                "city": "Paris",
                "zip": None,
                "country": "FR",
                "location": None,
            },
            {
                "id": 11,
                "label": None,
                "street": "High Street",
                "city": "London",
                "zip": None,
                "country": "GB",
                "location": {"lat": Decimal("51.5"), "lon": Decimal("-0.12")},
            },
        ],
        "orders": [
            {"id": 2, "status": "new", "total": 5, "placedAt": "2026-03-01T00:00:00+00:00", "items": []},
            {
                "id": 1,
                "status": "paid",
                "total": Decimal("10.1"),
                "placedAt": "2026-02-01T00:00:00+00:00",
                "items": [
                    {"id": 2, "quantity": 4, "unitPrice": 2, "product": None},
                    {
                        "id": 1,
                        "quantity": 3,
                        "unitPrice": Decimal("10.5"),
                        "product": {"sku": "A-1", "name": "Lamp"},
                    },
                ],
            },
        ],
        "orderCount": 3,
        "lifetimeValue": Decimal("10.1"),
        "averageOrder": Decimal("16.1") / 3,
        "lastOrderAt": "2026-04-01T00:00:00+00:00",
        "reviewCount": 1,
    }
    bob = documents["2"]
    assert (bob["name"], bob["createdAt"]) == ('Bob "B" \\ é', "2026-01-02T03:04:05+00:00")
    assert bob["profile"] is None
    assert bob["addresses"] == bob["orders"] == []
    assert (bob["orderCount"], bob["lifetimeValue"], bob["averageOrder"], bob["lastOrderAt"]) == (
        0,
        None,
        None,
        None,
    )


def test_orders(shop: str) -> None:
    """An order of a soft-deleted user keeps its customer."""
    documents = expected_documents(shop)["orders"]
    assert documents.keys() == {"1", "2", "3", "4"}
    assert documents["1"] == {
        "id": 1,
        "reference": "00000000-0000-4000-8000-0000000000a1",
        "status": "paid",
        "total": Decimal("10.1"),
        "channel": "unknown",
        "note": None,
        "source": "shop",
        "timeline": {
            "placedAt": "2026-02-01T00:00:00+00:00",
            "paidAt": "2026-02-02T00:00:00+00:00",
            "shippedAt": None,
        },
        "customer": {"id": 1, "email": "ada@example.org", "name": "Ada"},
        "shippingAddress": {"street": "High Street", "city": "London", "country": "GB"},
        "items": [
            {"id": 2, "position": 1, "quantity": 4, "unitPrice": 2, "gift": False, "product": None},
            {
                "id": 1,
                "position": 2,
                "quantity": 3,
                "unitPrice": Decimal("10.5"),
                "gift": True,
                "product": {"id": 1, "sku": "A-1", "name": "Lamp"},
            },
        ],
        "itemCount": 2,
        "pieces": 7,
        "giftCount": 1,
    }
    assert documents["4"]["customer"] == {"id": 3, "email": "gone@example.org", "name": "Gone"}
    empty = documents["2"]
    assert (empty["items"], empty["itemCount"], empty["pieces"], empty["shippingAddress"]) == (
        [],
        0,
        None,
        None,
    )


def test_products(shop: str) -> None:
    """Hidden products have no document; of reviews only approved ones show, newest first, ties by key."""
    documents = expected_documents(shop)["products"]
    assert documents.keys() == {"1"}
    product = documents["1"]
    assert product["tags"] == [
        {"id": 2, "name": "high"},
        {"id": 3, "name": "also high"},
        {"id": 1, "name": "low"},
    ]
    assert [(review["id"], review["author"]) for review in product["reviews"]] == [
        (2, None),
        (4, {"name": "Gone"}),
        (1, {"name": "Ada"}),
    ]
    assert product["reviews"][0] == {
        "id": 2,
        "rating": 5,
        "title": None,
        "body": "best",
        "createdAt": "2026-05-02T00:00:00+00:00",
        "author": None,
    }
    rest = {key: value for key, value in product.items() if key not in ("tags", "reviews")}
    assert rest == {
        "id": 1,
        "sku": "A-1",
        "name": "Lamp",
        "description": None,
        "price": Decimal("10.5"),
        "weight": None,
        "stock": 0,
        "releasedOn": None,
        "labels": {"en": "lamp"},
        "attributes": None,
        "reviewCount": 3,
        "averageRating": Decimal(13) / 3,
        "worstRating": 1,
        "bestRating": 5,
        "tagCount": 3,
    }
