"""PGSync's .env becomes the connections of a deployment file, and no secret stands in it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from headrace.config.load import load_deployment
from headrace.config.resolve import resolve
from headrace.tools.convert import Conversion, convert_pgsync

SCHEMA = '[{"database": "shop", "index": "books", "nodes": {"table": "books", "columns": ["id"]}}]'
NOWHERE = "PG_HOST=127.0.0.1\nPG_PORT=9\nPG_USER=me\n"


def converted(tmp_path: Path, env: str, schema: str = SCHEMA) -> Conversion:
    (tmp_path / "schema.json").write_text(schema)
    (tmp_path / ".env").write_text(env)
    conversion = convert_pgsync(tmp_path / "schema.json", tmp_path / ".env", None, {})
    for name, text in conversion.files.items():
        (tmp_path / name).write_text(text)
    return conversion


def deployment(conversion: Conversion) -> dict[str, Any]:
    return tomllib.loads(conversion.files["headrace.toml"])


def notes(conversion: Conversion) -> str:
    return "\n".join(str(note) for note in conversion.notes)


def test_parts_of_a_connection_and_the_names_of_its_secrets(tmp_path: Path) -> None:
    env = f"""\
# a comment
export PG_PASSWORD='s3cr3t # no comment'
{NOWHERE}PG_SSLMODE=require # a comment
ELASTICSEARCH_SCHEME=https
ELASTICSEARCH_HOST="search.example"
ELASTICSEARCH_PORT=9201
ELASTICSEARCH_USER=reader
ELASTICSEARCH_PASSWORD=hidden
ELASTICSEARCH_VERIFY_CERTS=False
ELASTICSEARCH_CHUNK_SIZE=2000
ELASTICSEARCH_TIMEOUT=20.0
OPENSEARCH=true
REDIS_HOST=localhost
"""
    conversion = converted(tmp_path, env)
    found = deployment(conversion)
    assert found["source"]["connection_url"] == {
        "host": "127.0.0.1",
        "port": 9,
        "user": "me",
        "password": {"env": "PG_PASSWORD"},
        "database": "shop",
        "parameters": {"sslmode": "require"},
    }
    assert found["sinks"]["primary"] == {
        "type": "opensearch",
        "url": "https://search.example:9201",
        "username": "reader",
        "password": {"env": "ELASTICSEARCH_PASSWORD"},
        "tls_verify": False,
        "batch_size": 2000,
        "timeout_secs": 20,
    }
    everything = "".join(conversion.files.values()) + notes(conversion)
    assert "s3cr3t" not in everything
    assert "hidden" not in everything
    environ = {"PG_PASSWORD": "s3cr3t # no comment", "ELASTICSEARCH_PASSWORD": "hidden"}
    resolved = resolve(load_deployment(tmp_path / "headrace.toml", environ))
    assert "s3cr3t" in resolved.database_url.reveal()


@pytest.mark.parametrize(
    ("env", "connection"),
    [
        (
            "PG_URL=postgresql+psycopg2://me@h.example:1/other?sslmode=require",
            "postgresql://me@h.example:1/shop?sslmode=require",
        ),
        ("PG_URL=postgresql://me:pw@h.example:1/shop", {"env": "PG_URL"}),
        ("PG_URL=postgresql://me:pw@h.example:1/other", {"env": "DATABASE_URL"}),
        ("PG_URL=postgresql://me@[::1:1/shop", {"env": "PG_URL"}),
    ],
)
def test_an_address_with_a_password_stays_in_its_variable(tmp_path: Path, env: str, connection: Any) -> None:
    conversion = converted(tmp_path, env.replace("h.example:1", "127.0.0.1:9"))
    wanted = connection.replace("h.example:1", "127.0.0.1:9") if isinstance(connection, str) else connection
    assert deployment(conversion)["source"]["connection_url"] == wanted
    assert "pw@" not in "".join(conversion.files.values())


@pytest.mark.parametrize(
    ("env", "sink", "said"),
    [
        (
            "ELASTICSEARCH_URL=https://a:hush@s.example",
            {"username": {"env": "SEARCH_USERNAME"}, "password": {"env": "SEARCH_PASSWORD"}},
            "Set SEARCH_USERNAME and SEARCH_PASSWORD",
        ),
        ("ELASTICSEARCH_API_KEY=hush", {"api_key": {"env": "SEARCH_API_KEY"}}, "Set SEARCH_API_KEY"),
        (
            "ELASTICSEARCH_BASIC_AUTH=a:hush",
            {"username": {"env": "SEARCH_USERNAME"}},
            "BASIC_AUTH holds name",
        ),
        ("ELASTICSEARCH_CLOUD_ID=hush", {}, "ELASTICSEARCH_CLOUD_ID has no counterpart"),
        ("ELASTICSEARCH_PORT=https", {"url": "http://localhost:9200"}, "ELASTICSEARCH_PORT is not a number"),
        ("PG_DRIVER=pymysql", {}, "the database is not PostgreSQL"),
        ("what is this", {}, "the line is not NAME=value"),
    ],
)
def test_what_has_no_counterpart_is_listed_with_its_line(
    tmp_path: Path, env: str, sink: dict[str, Any], said: str
) -> None:
    conversion = converted(tmp_path, f"{NOWHERE}{env}\n")
    assert sink.items() <= deployment(conversion)["sinks"]["primary"].items()
    [note] = [note for note in conversion.notes if said in str(note)]
    assert (note.file, note.line, note.is_open) == (tmp_path / ".env", 4, True)
    assert "hush" not in "".join(conversion.files.values()) + notes(conversion)


def test_a_database_that_cannot_be_reached_leaves_the_file_alone(tmp_path: Path) -> None:
    conversion = converted(tmp_path, NOWHERE)
    assert "the database cannot be read" in notes(conversion)
    assert "books.schema.yml" in conversion.files


def test_each_database_has_a_deployment_of_its_own(tmp_path: Path) -> None:
    two = (
        SCHEMA[:-1] + "," + SCHEMA.replace("shop", "depot").replace('"books", "nodes"', '"pens", "nodes"')[1:]
    )
    conversion = converted(tmp_path, NOWHERE, two)
    assert conversion.deployments == ("headrace.shop.toml", "headrace.depot.toml")
    for name, index in zip(conversion.deployments, ("books", "pens"), strict=True):
        assert [entry.name for entry in load_deployment(tmp_path / name, {}).indexes] == [index]


def test_the_variables_of_the_file_stand_in_names(tmp_path: Path) -> None:
    schema = SCHEMA.replace('"books", "nodes"', '"${STAGE}_books", "nodes"')
    conversion = converted(tmp_path, f"{NOWHERE}STAGE=test\n", schema)
    assert "test_books.schema.yml" in conversion.files


def test_an_index_whose_name_headrace_does_not_take_has_another(tmp_path: Path) -> None:
    conversion = converted(tmp_path, NOWHERE, SCHEMA.replace('"books", "nodes"', '"2024-books", "nodes"'))
    assert [entry.name for entry in load_deployment(tmp_path / "headrace.toml", {}).indexes] == [
        "_2024_books"
    ]
    assert "`headrace adopt _2024_books --name 2024-books`" in notes(conversion)
