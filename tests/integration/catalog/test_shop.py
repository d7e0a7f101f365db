"""The shop's own files fit the shop's tables, and so does what would be suggested for them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import psycopg
import pytest

from headrace.catalog import Catalog, findings, list_tables, read_catalog, suggest_name, suggest_schema
from headrace.catalog.binding import bind
from headrace.config.load import load_deployment
from headrace.config.suggestion import suggest_deployment
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema, parse_schema
from headrace.schema.yaml_nodes import source_of
from headrace.tools.demo.shop import create_shop


@pytest.fixture(scope="module")
def catalog(postgres: EmbeddedPostgres) -> Iterator[Catalog]:
    url = postgres.create_database("catalog_shop")
    create_shop(url, users=5)
    with ReadSession(url) as session:
        yield read_catalog(session, list_tables(session))


@pytest.mark.parametrize("name", ["users", "orders", "products"])
def test_the_shops_schemas_fit_its_tables(catalog: Catalog, name: str) -> None:
    with as_file(files("headrace.tools.demo.shop") / f"{name}.schema.yml") as file:
        spec = load_schema(file, name)
    assert [str(finding.error) for finding in findings(spec, catalog)] == []


def test_every_table_of_the_shop_gets_files_that_load_and_fit(catalog: Catalog, tmp_path: Path) -> None:
    for root in catalog.tables:
        schema = tmp_path / f"{root.name}.schema.yml"
        schema.write_text(suggest_schema(catalog, root))
        spec = load_schema(schema, root.name)
        assert [finding for finding in findings(spec, catalog) if finding.level == "error"] == []
        config = tmp_path / f"{root.name}.toml"
        config.write_text(suggest_deployment("postgresql://u:p@h/d", {suggest_name(root): schema.name}))
        assert [entry.name for entry in load_deployment(config, {}).enabled] == [root.name]


def test_a_suggestion_reads_well(catalog: Catalog) -> None:
    """What a newcomer sees first; a junction with a number of its own is still only a link."""
    text = suggest_schema(catalog, TableName("public", "products"))
    assert text.splitlines()[:8] == [
        "# Documents of products: one for each row. Take out what no search needs.",
        "version: 1",
        "table: products",
        "primary_key: id",
        "",
        "fields:",
        "  - long: id",
        "    required: true",
    ]
    link = text[text.index("  - many_to_many: tags") :]
    assert link.splitlines()[:8] == [
        "  - many_to_many: tags",
        "    table: tags",
        "    primary_key: id",
        "    through:",
        "      table: product_tags",
        "      left_key: product_id",
        "      right_key: tag_id",
        "    fields:",
    ]


ODD = """
CREATE EXTENSION IF NOT EXISTS citext;
CREATE TABLE u (id bigint PRIMARY KEY, code text UNIQUE NOT NULL, nick citext UNIQUE NOT NULL,
    may text UNIQUE);
CREATE TABLE by_code (id bigint PRIMARY KEY, ucode text REFERENCES u (code));
CREATE TABLE by_nick (id bigint PRIMARY KEY, nick text NOT NULL, unick citext REFERENCES u (nick));
CREATE TABLE by_cast (id bigint PRIMARY KEY, ucode citext REFERENCES u (code));
CREATE TABLE by_may (id bigint PRIMARY KEY, umay text REFERENCES u (may));
CREATE TABLE keyless (u_id bigint REFERENCES u);
CREATE TABLE made (id bigint PRIMARY KEY, twice bigint GENERATED ALWAYS AS (id * 2) STORED REFERENCES u);
CREATE TABLE parent (id bigint PRIMARY KEY, u_id bigint REFERENCES u);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE late (id bigint PRIMARY KEY DEFERRABLE, u_id bigint REFERENCES u);
CREATE TABLE tag (id bigint, name text UNIQUE NOT NULL, tenant bigint, PRIMARY KEY (tenant, id));
CREATE TABLE u_tag (u text REFERENCES u (code), tag text REFERENCES tag (name), PRIMARY KEY (u, tag));
CREATE TABLE api_tokens (api_key text PRIMARY KEY);
"""


def test_what_is_suggested_for_odd_tables_is_not_refused(postgres: EmbeddedPostgres) -> None:
    url = postgres.create_database("catalog_odd")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(ODD)
    with ReadSession(url) as session:
        odd = read_catalog(session, list_tables(session))
    refused = set()
    for root in odd.tables:
        try:
            text = suggest_schema(odd, root)
        except HeadraceError:
            refused.add(root.name)
            continue
        spec = parse_schema(source_of(Path("it.schema.yml"), text), text, root.name)
        assert bind(spec, odd) == []
    assert refused == {"keyless", "parent", "child", "late"}
    text = suggest_schema(odd, TableName("public", "u"))
    names = (
        "by_code",
        "by_nick",
        "tag",
        "by_may",
        "# by_cast (ucode)",
        "# keyless (u_id)",
        "# made (twice)",
        "# parent (u_id)",
    )
    assert [name for name in (*names, "# late (u_id)") if name not in text] == []
