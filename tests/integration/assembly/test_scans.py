"""A table that no index leads into is read once for all documents that are asked for together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from headrace.assembly.assembler import Assembler
from headrace.assembly.digests import DigestRanges
from headrace.catalog import Catalog, read_catalog
from headrace.model.names import CtidRange
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec

KEYS = 1000
_TABLES = (
    "CREATE TABLE shops (id bigint PRIMARY KEY, name text)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, shop_id bigint, at timestamptz)",
    "CREATE TABLE items (id bigint PRIMARY KEY, order_id bigint, price float8)",
    "CREATE TABLE tags (id bigint PRIMARY KEY, name text)",
    "CREATE TABLE shop_tags (id bigint PRIMARY KEY, shop_id bigint, tag_id bigint)",
    f"INSERT INTO shops SELECT i, 's' || i FROM generate_series(1, {KEYS}) i",
    f"INSERT INTO orders SELECT i, 1 + i % {KEYS}, to_timestamp(i) FROM generate_series(1, 3 * {KEYS}) i",
    f"INSERT INTO items SELECT i, 1 + i % (3 * {KEYS}), 0.1 * i FROM generate_series(1, 6 * {KEYS}) i",
    "INSERT INTO tags SELECT i, 't' || i FROM generate_series(1, 20) i",
    f"INSERT INTO shop_tags SELECT i, 1 + i % {KEYS}, 1 + i % 20 FROM generate_series(1, 2 * {KEYS}) i",
)
_SCHEMA = """version: 1
table: shops
primary_key: id
fields:
  - keyword: name
  - has_many: orders
    table: orders
    primary_key: id
    foreign_key: shop_id
    limit: 2
    order_by: [{column: at, direction: desc}]
    fields:
      - long: id
      - has_many: items
        table: items
        primary_key: id
        foreign_key: order_id
        fields: [{double: price}]
  - many_to_many: tags
    table: tags
    primary_key: id
    through: {table: shop_tags, left_key: shop_id, right_key: tag_id}
    fields: [{keyword: name}]
"""
_SCANS = "SELECT relname::text, seq_scan FROM pg_stat_user_tables"
_WITHOUT_INDEX = ("orders", "items", "shop_tags")


class Shops:
    """A reading session, and what it has read."""

    def __init__(self, url: str, spec: IndexSpec) -> None:
        self.session = ReadSession(url)
        self.spec = spec
        self.catalog: Catalog = read_catalog(self.session, spec.tables())
        self._url = url

    def scans(self) -> dict[str, int]:
        """How often the whole of each table was read so far."""
        self.session.query("SELECT pg_stat_force_next_flush()")
        with connect(self._url) as connection:
            return dict(execute(connection, _SCANS))

    def count(self, work: Callable[[], Iterable[object]]) -> list[int]:
        """How often `work` reads the tables that no index leads into; it gives a document for each shop."""
        before = self.scans()
        assert sum(1 for _ in work()) == KEYS
        after = self.scans()
        return [after[table] - before[table] for table in _WITHOUT_INDEX]


@pytest.fixture
def shops(database: str, tmp_path: Path) -> Iterator[Shops]:
    with connect(database) as connection:
        execute(connection, "SET search_path = public")
        for statement in _TABLES:
            execute(connection, statement)
    path = tmp_path / "shops.schema.yml"
    path.write_text(_SCHEMA)
    held = Shops(database, load_schema(path, "shops"))
    yield held
    held.session.close()


@pytest.mark.long
@pytest.mark.parametrize("analysed", [False, True])
def test_a_thousand_keys_take_a_scan_for_each_chunk(shops: Shops, database: str, analysed: bool) -> None:
    """Of 100, 400 and 500 keys; also as often as a plan may be kept, and where nobody knows the sizes."""
    if analysed:
        with connect(database) as connection:
            execute(connection, "ANALYZE")
    assembler = Assembler(shops.session, shops.spec, shops.catalog)
    keys = [(str(number),) for number in range(1, KEYS + 1)]
    assert shops.count(lambda: assembler.assemble(keys, 1)) == [3, 3, 3]
    for _ in range(12):
        assert shops.count(lambda: assembler.assemble(keys, 1)) == [1, 1, 1]


def test_a_range_and_a_comparison_take_one_scan(shops: Shops) -> None:
    assembler = Assembler(shops.session, shops.spec, shops.catalog)
    assert shops.count(lambda: assembler.assemble_range(CtidRange(0, None), 1)) == [1, 1, 1]
    digests = DigestRanges(shops.session, shops.spec, shops.catalog)
    assert shops.count(lambda: digests.next(KEYS)) == [1, 1, 1]


def test_one_document_reads_the_table_below_a_list_once(shops: Shops) -> None:
    assembler = Assembler(shops.session, shops.spec, shops.catalog)
    before = shops.scans()["items"]
    [one] = assembler.assemble([("7",)], 1)
    assert one.body is not None
    assert one.body.count(b'"price"') > 1
    assert shops.scans()["items"] - before == 1
