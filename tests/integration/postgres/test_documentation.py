"""The SQL of the guides runs as written, on a server of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute

DOCS = Path(__file__).parents[3] / "docs/guides"
PAGES = (
    "postgres.md",
    "replica-identities.md",
    "altered-tables.md",
    "slots.md",
    "failover.md",
    "connections.md",
    "monitoring.md",
)
BEFORE = """
CREATE TABLE orders (id bigint PRIMARY KEY, status text);
CREATE TABLE order_items (id bigint PRIMARY KEY, order_id bigint NOT NULL);
CREATE TABLE events (id bigint, at date NOT NULL) PARTITION BY RANGE (at);
CREATE PUBLICATION headrace FOR TABLE orders;
CREATE PUBLICATION other_program;
CREATE PUBLICATION mine;
CREATE ROLE rds_replication
"""


def blocks() -> list[str]:
    """The SQL blocks of the pages in their order, indented ones too."""
    text = "\n".join((DOCS / page).read_text() for page in PAGES)
    found = re.findall(r"^( *)```sql\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def test_every_block_of_sql_runs(make_server: Callable[..., EmbeddedPostgres]) -> None:
    server = make_server()
    ran = 0
    with connect(server.url) as connection:
        for statement in BEFORE.split(";"):
            execute(connection, statement)
        for block in blocks():
            since = re.match(r"-- PostgreSQL (\d+) and later\n", block)
            if since and connection.info.server_version < int(since[1]) * 10000:
                continue
            for statement in block.strip().rstrip(";").split(";"):
                execute(connection, statement)
                ran += 1
        assert ran > 20
        sent = "SELECT pubname, tablename FROM pg_publication_tables ORDER BY 1, 2"
        assert execute(connection, sent) == [
            ("headrace", "order_items"),
            ("headrace", "orders"),
            ("mine", "orders"),
        ]
