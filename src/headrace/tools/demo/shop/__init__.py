"""The database and the documents of the demo, the tests and the benchmarks.

A small shop with nine tables and three indexes. The SQL and the schema files are beside this module, so an
installed package has them too.
"""

from __future__ import annotations

import json
import re
import time
from importlib.resources import files
from pathlib import Path

from headrace.model.names import TableName
from headrace.postgres import quoting
from headrace.postgres.connection import connect, execute

__all__ = ["INDEXES", "TABLES", "create_shop", "write_deployment"]

INDEXES = ("users", "orders", "products")
"""The logical indexes of the shop's deployment."""

TABLES = (
    "users",
    "profiles",
    "addresses",
    "products",
    "orders",
    "order_items",
    "tags",
    "product_tags",
    "reviews",
)
"""The shop's tables, parents before children."""

_PLACEHOLDER = re.compile(r"(?<!:):(users|products|seed)\b")


def create_shop(url: str, users: int = 500, seed: int = 1) -> float:
    """Create the shop in the schema `public` of an empty database and fill it.

    The same arguments give the same rows on every server: 5 orders per user, 3 items per order, one
    product per 5 users but at least 200.

    Args:
        url: the database; its user may create tables.
        users: the number of users.
        seed: the seed of the random values.

    Returns:
        The duration in seconds.

    Raises:
        HeadraceError: CONNECTION or AUTHENTICATION.
    """
    begin = time.monotonic()
    numbers = {"users": users, "products": max(200, users // 5), "seed": seed}
    with connect(url, application_name="headrace shop", autocommit=False) as connection:
        execute(connection, "SET LOCAL search_path = public")
        # Who loses a demo in a crash begins it again.
        execute(connection, "SET LOCAL synchronous_commit = off")
        execute(connection, "SET LOCAL TimeZone = 'UTC'")
        for name in ("tables.sql", "fill.sql", "keys.sql"):
            execute(connection, _PLACEHOLDER.sub(lambda match: str(int(numbers[match[1]])), _text(name)))
    with connect(url, application_name="headrace shop") as connection:
        for table in TABLES:
            # Autovacuum comes later than the first queries, which would be planned without statistics.
            execute(connection, f"ANALYZE {quoting.table(TableName('public', table))}")
    return time.monotonic() - begin


def write_deployment(folder: Path, database_url: str, sink_url: str, prefix: str = "") -> Path:
    """Write the shop's deployment file and its three schema files into `folder`.

    Args:
        folder: the folder, which is created where it is missing.
        database_url: the shop's database.
        sink_url: an OpenSearch server.
        prefix: the prefix of the indexes' names.

    Returns:
        The path of `headrace.toml`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = _text("headrace.toml.in")
    for name, value in {"DATABASE": database_url, "SINK": sink_url, "PREFIX": prefix}.items():
        text = text.replace(f'"@{name}@"', json.dumps(value))
    for index in INDEXES:
        schema = f"{index}.schema.yml"
        (folder / schema).write_text(_text(schema), encoding="utf-8")
    path = folder / "headrace.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
