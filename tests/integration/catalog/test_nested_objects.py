"""Is one told before a document grows beyond what the cluster takes?"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.catalog import read_catalog
from headrace.catalog.checks import nested_findings
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema

TABLES = """
CREATE TABLE shop (id int PRIMARY KEY, note text);
CREATE TABLE orders (id int PRIMARY KEY, shop_id int REFERENCES shop);
CREATE TABLE items (id int PRIMARY KEY, order_id int REFERENCES orders) PARTITION BY RANGE (id);
CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (0) TO (100000);
INSERT INTO shop SELECT i FROM generate_series(1, 10) i;
INSERT INTO orders SELECT i, CASE WHEN i <= 2000 THEN 1 ELSE i % 10 + 1 END FROM generate_series(1, 3000) i;
INSERT INTO items SELECT i, 1 + i % 3000 FROM generate_series(1, 12000) i;
ANALYZE
"""
SCHEMA = """
version: 1
table: shop
fields:
  - has_many: orders
    table: orders
    primary_key: id
    foreign_key: shop_id{orders}
    fields:
      - has_many: items
        table: items
        primary_key: id
        foreign_key: order_id{items}
        fields: [{{integer: id}}]
"""
PLAIN = "\n        options: {type: object}"


@pytest.mark.parametrize(
    ("joins", "limit", "said"),
    [
        (("", ""), 10_000, "about 10,5"),
        (("", ""), 20_000, None),
        (("\n    limit: 100", ""), 10_000, None),
        (("", PLAIN), 10_000, None),
        (("", PLAIN), 1_000, "of them orders, by the statistics of orders"),
    ],
)
def test_a_document_that_may_grow_too_large_is_told_of(
    database: str, tmp_path: Path, joins: tuple[str, str], limit: int, said: str | None
) -> None:
    """The largest shop has 2,100 orders of four items each."""
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in TABLES.split(";"):
            connection.execute(statement.encode())
    file = tmp_path / "shop.schema.yml"
    file.write_text(SCHEMA.format(orders=joins[0], items=joins[1]))
    spec = load_schema(file, "shop")
    with ReadSession(database) as session:
        found = nested_findings(session, [spec], read_catalog(session, spec.tables()), {"shop": limit})
    assert [finding.level for finding in found] == ["warning"] * (said is not None)
    assert all(said is not None and said in finding.error.cause for finding in found)
