"""docs/guides/moving.md, From Debezium, as it stands: two connectors in two files, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from e2e.walkthrough import blocks, commands, shell, typed
from headrace.config.load import load_deployment
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute
from headrace.schema.load import load_schema
from headrace.sinks.opensearch import Client, Endpoint

SOURCE, SINK = (json.loads(block)["config"] for block in blocks("From Debezium", "json"))
[DEPLOYMENT] = blocks("From Debezium", "toml")
[SCHEMA] = blocks("From Debezium", "yaml")
FOLLOW, BACK = blocks("From Debezium", "sh")
TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, status text, total numeric, placed_at timestamptz,
  card_number text);
CREATE TABLE order_lines (id bigint PRIMARY KEY, order_id bigint REFERENCES orders, sku text, quantity int);
CREATE INDEX ON order_lines (order_id);
ALTER TABLE order_lines REPLICA IDENTITY FULL;
INSERT INTO orders VALUES (7, 'new', 12.50, '2024-05-01 10:00+02', '4111');
INSERT INTO order_lines VALUES (1, 7, 'AB', 2);
"""
ORDER = {
    "id": 7,
    "status": "new",
    "total": 12.50,
    "placed_at": "2024-05-01T08:00:00+00:00",
    "lines": [{"sku": "AB", "quantity": 2}],
}


@pytest.fixture
def database(
    postgres: EmbeddedPostgres,
    opensearch: EmbeddedOpenSearch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """The database of somebody who has Debezium; the page's files are in the working folder."""
    url = postgres.create_database("orders")
    with connect(url) as connection:
        connection.execute(TABLES.encode())
        tables = SOURCE["table.include.list"]
        connection.execute(f"CREATE PUBLICATION {SOURCE['publication.name']} FOR TABLE {tables}".encode())
    monkeypatch.setenv("SHOP_DATABASE", url)
    monkeypatch.setenv("SHOP_SEARCH", opensearch.url)
    monkeypatch.chdir(tmp_path)
    Path("headrace.toml").write_text(DEPLOYMENT)
    Path("orders.schema.yml").write_text(SCHEMA)
    yield url
    postgres.drop_database("orders")


def test_the_files_say_what_the_connectors_say(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(DEPLOYMENT)
    (tmp_path / "orders.schema.yml").write_text(SCHEMA)
    source = load_deployment(tmp_path / "headrace.toml", {}).source
    spec = load_schema(tmp_path / "orders.schema.yml", "orders")
    tables = {f"{table.schema}.{table.name}" for table in spec.tables()}
    assert tables == set(SOURCE["table.include.list"].split(","))
    assert (source.slot, source.publication) != (SOURCE["slot.name"], SOURCE["publication.name"])
    assert spec.primary_key == (SINK["transforms.key.field"],)
    assert SINK["topics"] in FOLLOW.replace("before.", "")


def test_the_page_s_files_are_right_for_the_tables(database: str) -> None:
    check, preview, *_ = commands(FOLLOW)
    _, _, said = typed(check)
    assert "error" not in said, said
    code, out, _ = typed(f"{preview} --id 7")
    assert code == 0
    assert json.loads(out) == ORDER


@pytest.mark.long
def test_readers_move_from_a_sink_connectors_index_and_back(
    database: str, opensearch: EmbeddedOpenSearch
) -> None:
    client, topic = Client(Endpoint((opensearch.url,))), SINK["topics"]
    client.call("PUT", f"/{topic}/_doc/7?refresh=true", {"status": "as Debezium wrote it"})
    *_, setup, run, verify, switch = commands(FOLLOW)
    pause, _, rest = switch.partition(" && ")
    copy, _, adopt = rest.rpartition(" && ")
    assert typed(f"{setup} --yes")[0] == 0
    assert run == "headrace run"
    pipeline = headrace.Pipeline.from_file("headrace.toml")
    with pipeline.start() as running:
        running.wait_ready(timeout=180)
        assert typed(verify)[0] == 0
        assert "/connectors/orders-search/pause" in pause
        shell(copy)
        assert typed(f"{adopt} --yes")[0] == 0
        with connect(database) as connection:
            execute(connection, "UPDATE orders SET status = 'paid' WHERE id = 7")
        running.wait(searchable=True)
        assert client.read(f"/{topic}/_doc/7").json()["_source"]["status"] == "paid"
        [line] = commands(BACK)
        back, _, resume = line.partition(" && ")
        shell(back)
        assert client.read(f"/{topic}/_doc/7").json()["_source"]["status"] == "as Debezium wrote it"
        assert "/connectors/orders-search/resume" in resume
        client.call("PUT", f"/{topic}/_doc/8?refresh=true", {"status": "and goes on"})
    pipeline.teardown(indexes=True)
    client.call("DELETE", f"/before.{topic}")
    client.close()
