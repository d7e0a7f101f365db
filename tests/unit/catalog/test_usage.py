"""Which columns do documents read?"""

from __future__ import annotations

from pathlib import Path

from headrace.catalog.table import Catalog
from headrace.catalog.usage import used_columns
from headrace.model.names import TableName
from headrace.schema.load import load_schema
from unit.assembly import shop

SCHEMA = """
version: 1
table: orders
primary_key: id
soft_delete: { column: gone, when: [{ column: kind, op: eq, value: x }] }
filters: [{ raw: 'lower("Name") <> total::text' }]
fields:
  - object: more
    fields: [{ integer: sum, column: amount }]
  - geo: at
    lat: lat
    lon: lon
  - map: extras
    column: extra
    values: keyword
  - many_to_many: tags
    table: tags
    primary_key: code
    through: { table: tagging, left_key: order_id, right_key: tag }
    order_by: [{ column: rank, direction: asc }]
    fields: [{ keyword: label }]
  - belongs_to: user
    table: users
    column: user_id
    primary_key: id
    filters: [{ column: active, op: eq, value: true }]
    fields: []
  - max: last
    table: lines
    column: at
    value_type: timestamp
    foreign_key: order_id
"""


def test_every_place_of_a_specification_counts(tmp_path: Path) -> None:
    (tmp_path / "orders.yml").write_text(SCHEMA)
    spec = load_schema(tmp_path / "orders.yml", "orders")
    orders = shop.table("orders", "id:int8 Name:text total:int4 name:text spare:text", "id")
    lines = shop.table("lines", "id:int8 total:int4", "id")
    catalog = Catalog({table.name: table for table in (orders, lines)})
    found = used_columns([spec], catalog)
    assert {table.name: columns for table, columns in found.items()} == {
        "orders": {"id", "gone", "kind", "amount", "lat", "lon", "extra", "user_id", "Name", "total"},
        "tags": {"code", "rank", "label"},
        "tagging": {"order_id", "tag"},
        "users": {"id", "active"},
        "lines": {"order_id", "at", "total"},
    }
    assert TableName("public", "orders") in found
