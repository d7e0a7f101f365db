"""docs/guides/moving.md, From flusso, as it stands: files of both versions, their readers moved, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from e2e.walkthrough import blocks, commands, shell, typed
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute
from headrace.sinks.opensearch import Client, Endpoint

DATA = Path(__file__).parents[1] / "data" / "flusso"
FOLLOW, BACK = blocks("From flusso", "sh")
WHEEL = {
    "id": 1,
    "sku": "ab-1",
    "code": " AB-1 ",
    "name": "Wheel",
    "status": "active",
    "price": 12.50,
    "titles": {"en": "Wheel"},
    "location": {"lat": 59.9, "lon": 10.7},
    "flags": {"visible": True},
    "brand": {"name": "Mill"},
    "reviews": [{"stars": 5}, {"stars": 3}],
    "goodReviews": 1,
    "averageStars": 3.0,
    "bestStars": 5,
    "reviewIds": [1, 2, 3],
    "source": "shop",
}


@pytest.fixture
def database(
    postgres: EmbeddedPostgres,
    opensearch: EmbeddedOpenSearch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """The database of somebody who has flusso; its files are in the working folder."""
    url = postgres.create_database("mill")
    with connect(url) as connection:
        connection.execute((DATA / "tables.sql").read_bytes())
    monkeypatch.setenv("SHOP_DATABASE", url)
    monkeypatch.setenv("SHOP_SEARCH", opensearch.url)
    monkeypatch.chdir(tmp_path)
    yield url
    postgres.drop_database("mill")


def begin(version: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Take the first two steps with flusso's files of one version; returns the further lines."""
    schema = (DATA / "products.schema.yml").read_text()
    newer = (DATA / "newer.yml").read_text() if version == "0.16" else ""
    Path("products.schema.yml").write_text(schema + newer)
    Path("flusso.toml").write_text((DATA / f"{version}.toml").read_text())
    copy, export, *rest = commands(FOLLOW)
    shell(copy)
    for setting in export.split()[1:]:
        name, _, value = setting.partition("=")
        monkeypatch.setenv(name, value)
    return rest


@pytest.mark.parametrize(
    ("version", "more"), [("0.15", {}), ("0.16", {"tags": [{"label": "oak"}], "tagCount": 2})]
)
def test_the_files_of_flusso_are_taken_as_they_are(
    database: str, monkeypatch: pytest.MonkeyPatch, version: str, more: dict[str, object]
) -> None:
    check, preview, *_ = begin(version, monkeypatch)
    _, _, said = typed(check)
    assert "error" not in said, said
    code, out, _ = typed(f"{preview} --id 1")
    assert code == 0
    assert json.loads(out) == {**WHEEL, **more}


@pytest.mark.long
def test_readers_move_from_flussos_index_and_back(
    database: str, opensearch: EmbeddedOpenSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(Endpoint((opensearch.url,)))
    client.call("PUT", "/products_ab12cd_1", {"aliases": {"products": {}, "products_ab12cd": {}}})
    client.call("PUT", "/products_ab12cd_1/_doc/1?refresh=true", {"name": "as flusso wrote it"})
    _, _, setup, run, verify, adopt = begin("0.16", monkeypatch)
    assert typed(f"{setup} --yes")[0] == 0
    assert run == "headrace run"
    pipeline = headrace.Pipeline.from_file(slot=os.environ["HEADRACE_SLOT"], publication="headrace")
    with pipeline.start() as running:
        running.wait_ready(timeout=180)
        assert typed(verify)[0] == 0
        command, _, file = adopt.partition(" > ")
        code, back, _ = typed(f"{command} --yes")
        assert code == 0
        Path(file).write_text(back)
        with connect(database) as connection:
            execute(connection, "UPDATE shop.product_tags SET removed_at = now()")
        running.wait(searchable=True)
        assert client.read("/products/_doc/1").json()["_source"]["tags"] == []
        [line] = commands(BACK)
        shell(line)
        assert client.read("/products/_doc/1").json()["_source"]["name"] == "as flusso wrote it"
    pipeline.teardown(indexes=True)
    client.call("DELETE", "/products_ab12cd_1")
    client.close()
