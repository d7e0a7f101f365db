"""Compare the documents of the shop's indexes with those that an independent oracle expects.

The oracle builds the expected documents in the simplest way, from `SELECT *` of whole tables in one snapshot.
It shares no code with what it checks: no schema files, no assembly, no other SQL. Each index is written by
hand, so an error must be made twice to stay unseen.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import urllib3

from headrace.model.names import TableName
from headrace.postgres import quoting
from headrace.postgres.connection import Connection, connect

__all__ = ["Average", "actual_documents", "as_json", "differences", "expected_documents", "read_rows"]

Row = dict[str, Any]
Document = dict[str, Any]
Documents = dict[str, Document]


class Average(Decimal):
    """A mean; it is compared to 12 digits, because the last ones depend on rounding."""


def expected_documents(url: str) -> dict[str, Documents]:
    """Build the documents of each of the shop's indexes, by id, from the database as it is now.

    Values are as a reader of `_source` sees them: numbers as int or Decimal, timestamps as ISO text in
    UTC, nulls included.

    Raises:
        HeadraceError: CONNECTION or AUTHENTICATION.
    """
    with connect(url, application_name="headrace oracle", autocommit=False) as connection:
        # One snapshot for all tables: the workload goes on meanwhile.
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        connection.execute("SET LOCAL TimeZone = 'UTC'")
        tables = {name: read_rows(connection, name) for name in _TABLES}
    return {
        index: {key: as_json(document) for key, document in build(tables).items()}
        for index, build in _INDEXES.items()
    }


_TABLES = (
    "users", "profiles", "addresses", "orders", "order_items", "products", "tags", "product_tags", "reviews"
)  # fmt: skip


def read_rows(connection: Connection, table: str) -> list[Row]:
    """Read all rows of one of the shop's tables, by id."""
    source = quoting.table(TableName("public", table))
    cursor = connection.execute(f"SELECT * FROM {source}".encode())
    names = [column.name for column in cursor.description or ()]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return sorted(rows, key=lambda row: row["id"])


def _users(tables: Mapping[str, list[Row]]) -> Documents:
    profiles = {row["user_id"]: row for row in tables["profiles"]}
    products = {row["id"]: row for row in tables["products"]}
    addresses = _grouped(tables["addresses"], "user_id")
    orders = _grouped(tables["orders"], "user_id")
    items = _grouped(tables["order_items"], "order_id")
    reviews = _grouped(tables["reviews"], "user_id")
    documents = {}
    for user in tables["users"]:
        if user["deleted_at"] is not None:
            continue
        own = orders.get(user["id"], [])
        shown = [order for order in own if order["status"] != "cancelled"]
        shown.sort(key=lambda order: order["placed_at"], reverse=True)
        documents[str(user["id"])] = {
            **_taken(user, "id", "name", "active", "level", "score", "birthday", "attributes"),
            **_taken(user, externalId="external_id", createdAt="created_at"),
            **_totals(own),
            "email": user["email"].strip().lower(),
            "credit": 0 if user["credit"] is None else user["credit"],
            "kind": "customer",
            "profile": _picked(profiles.get(user["id"]), "bio", "website", "newsletter"),
            "addresses": [_address(address) for address in addresses.get(user["id"], [])],
            "orders": [_order_of_user(order, items.get(order["id"], []), products) for order in shown],
            "reviewCount": len(reviews.get(user["id"], [])),
        }
    return documents


def _totals(orders: Sequence[Row]) -> Document:
    paid = [order["total"] for order in orders if order["status"] in ("paid", "shipped", "delivered")]
    return {
        "orderCount": len(orders),
        "lifetimeValue": _sum(paid),
        "averageOrder": _average(order["total"] for order in orders),
        "lastOrderAt": max((order["placed_at"] for order in orders), default=None),
    }


def _address(address: Row) -> Document:
    point = None
    if address["latitude"] is not None and address["longitude"] is not None:
        point = {"lat": address["latitude"], "lon": address["longitude"]}
    return {**_taken(address, "id", "label", "street", "city", "zip", "country"), "location": point}


def _order_of_user(order: Row, items: list[Row], products: Mapping[int, Row]) -> Document:
    lines = [
        {
            **_taken(item, "id", "quantity", unitPrice="unit_price"),
            "product": _picked(products.get(item["product_id"]), "sku", "name"),
        }
        for item in sorted(items, key=lambda item: item["position"])
    ]
    return {**_taken(order, "id", "status", "total", placedAt="placed_at"), "items": lines}


def _orders(tables: Mapping[str, list[Row]]) -> Documents:
    users = {row["id"]: row for row in tables["users"]}
    addresses = {row["id"]: row for row in tables["addresses"]}
    products = {row["id"]: row for row in tables["products"]}
    items = _grouped(tables["order_items"], "order_id")
    documents = {}
    for order in tables["orders"]:
        own = items.get(order["id"], [])
        # A foreign key that is not null: this user is there.
        user = users[order["user_id"]]
        address = addresses.get(order["shipping_address_id"])
        documents[str(order["id"])] = {
            **_taken(order, "id", "reference", "status", "total", "note"),
            "channel": "unknown" if order["channel"] is None else order["channel"],
            "source": "shop",
            "timeline": _taken(order, placedAt="placed_at", paidAt="paid_at", shippedAt="shipped_at"),
            "customer": {**_taken(user, "id", "name"), "email": user["email"].strip().lower()},
            "shippingAddress": _picked(address, "street", "city", "country"),
            "items": [
                {
                    **_taken(item, "id", "position", "quantity", "gift", unitPrice="unit_price"),
                    "product": _picked(products.get(item["product_id"]), "id", "sku", "name"),
                }
                for item in sorted(own, key=lambda item: item["position"])
            ],
            "itemCount": len(own),
            "pieces": _sum(item["quantity"] for item in own),
            "giftCount": len([item for item in own if item["gift"]]),
        }
    return documents


def _products(tables: Mapping[str, list[Row]]) -> Documents:
    users = {row["id"]: row for row in tables["users"]}
    tags = {row["id"]: row for row in tables["tags"]}
    links = _grouped(tables["product_tags"], "product_id")
    reviews = _grouped(tables["reviews"], "product_id")
    return {
        str(product["id"]): _product(
            product,
            [tags[link["tag_id"]] for link in links.get(product["id"], [])],
            reviews.get(product["id"], []),
            users,
        )
        for product in tables["products"]
        if not product["hidden"]
    }


def _product(product: Row, tags: Iterable[Row], reviews: Iterable[Row], users: Mapping[int, Row]) -> Document:
    approved = [review for review in reviews if review["approved"]]
    newest = sorted(approved, key=lambda review: review["created_at"], reverse=True)[:5]
    ratings = [review["rating"] for review in reviews]
    ordered = sorted(tags, key=lambda tag: (-tag["rank"], tag["id"]))
    return {
        **_taken(product, "id", "sku", "name", "description", "price", "weight", "stock", "labels"),
        **_taken(product, "attributes", releasedOn="released_on"),
        "tags": [_taken(tag, "id", "name") for tag in ordered],
        "reviews": [
            {
                **_taken(review, "id", "rating", "title", "body", createdAt="created_at"),
                "author": _picked(users.get(review["user_id"]), "name"),
            }
            for review in newest
        ],
        "reviewCount": len(approved),
        "averageRating": _average(review["rating"] for review in approved),
        "worstRating": min(ratings, default=None),
        "bestRating": max(ratings, default=None),
        "tagCount": len(ordered),
    }


_INDEXES: dict[str, Callable[[Mapping[str, list[Row]]], Documents]] = {
    "users": _users,
    "orders": _orders,
    "products": _products,
}


def _grouped(rows: Iterable[Row], column: str) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def _taken(row: Row, *names: str, **renamed: str) -> Document:
    """Return columns of a row: some under their own names, others as `key="column"` says."""
    return {**{name: row[name] for name in names}, **{key: row[name] for key, name in renamed.items()}}


def _picked(row: Row | None, *names: str) -> Document | None:
    return None if row is None else _taken(row, *names)


def _sum(values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _average(values: Iterable[Any]) -> Average | None:
    known = [Decimal(value) for value in values if value is not None]
    return Average(sum(known) / len(known)) if known else None


def as_json(value: Any) -> Any:
    """Convert `value` to what a JSON parser returns, with floats as Decimal."""
    convert = _AS_JSON.get(type(value))
    return value if convert is None else convert(value)


def _timestamp(value: dt.datetime) -> str:
    text = value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{value.microsecond:06}".rstrip("0")
    return f"{text}.{fraction}+00:00" if fraction else f"{text}+00:00"


_AS_JSON: dict[type, Callable[[Any], Any]] = {
    dict: lambda value: {key: as_json(field) for key, field in value.items()},
    list: lambda value: [as_json(element) for element in value],
    float: lambda value: Decimal(repr(value)),
    dt.datetime: _timestamp,
    dt.date: dt.date.isoformat,
    uuid.UUID: str,
}


def actual_documents(url: str, alias: str) -> Documents:
    """Read all documents of `alias` by id, after a refresh; numbers as int or Decimal.

    Raises:
        LookupError: the alias does not exist, or OpenSearch returned another error.
    """
    pool = urllib3.PoolManager(retries=False, timeout=30)
    try:
        _ask(pool, "POST", f"{url}/{alias}/_refresh")
        # A scroll sees the index as of one moment, like the snapshot on the other side.
        page = _ask(pool, "POST", f"{url}/{alias}/_search?scroll=1m", {"size": 1000, "sort": ["_doc"]})
        documents: Documents = {}
        while hits := page["hits"]["hits"]:
            documents |= {hit["_id"]: hit["_source"] for hit in hits}
            page = _ask(
                pool, "POST", f"{url}/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]}
            )
        _ask(pool, "DELETE", f"{url}/_search/scroll", {"scroll_id": page["_scroll_id"]})
        return documents
    finally:
        pool.clear()


def _ask(pool: urllib3.PoolManager, method: str, url: str, body: object = None) -> Any:
    response = pool.request(method, url, json=body) if body is not None else pool.request(method, url)
    if response.status >= 300:
        raise LookupError(f"{method} {url}: {response.status} {response.data[:300].decode(errors='replace')}")
    return json.loads(response.data, parse_float=Decimal)


def differences(expected: Documents, actual: Documents, limit: int = 5) -> list[str]:
    """Describe the differences: at most `limit` lines, each with id, path, expected and found value.

    One more line states how many were left out. Empty where nothing differs.
    """
    lines = list(_differences(expected, actual))
    more = [f"… and {len(lines) - limit} more"] if len(lines) > limit else []
    return lines[:limit] + more


def _differences(expected: Documents, actual: Documents) -> Iterator[str]:
    for key in sorted(expected.keys() - actual.keys()):
        yield f"{key}: missing"
    for key in sorted(actual.keys() - expected.keys()):
        yield f"{key}: should not be there"
    for key in sorted(expected.keys() & actual.keys()):
        for path, wanted, found in _unequal("", expected[key], actual[key]):
            yield f"{key} {path}: expected {_shown(wanted)}, found {_shown(found)}"


_ABSENT = object()


def _unequal(path: str, expected: Any, actual: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            below = f"{path}.{key}" if path else key
            yield from _unequal(below, expected.get(key, _ABSENT), actual.get(key, _ABSENT))
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{path}.length", len(expected), len(actual)
        for index, (left, right) in enumerate(zip(expected, actual, strict=False)):
            yield from _unequal(f"{path}[{index}]", left, right)
    elif not _same(expected, actual):
        yield path, expected, actual


def _same(expected: Any, actual: Any) -> bool:
    # True == 1 in Python, and not in JSON.
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, Average) and isinstance(actual, int | Decimal):
        return abs(expected - actual) <= abs(expected) * Decimal("1e-12")
    if isinstance(expected, int | Decimal) and isinstance(actual, int | Decimal):
        return expected == actual
    return type(expected) is type(actual) and bool(expected == actual)


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
