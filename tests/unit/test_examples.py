"""Is every example of the documentation followed by a test, and do the files that it shows work?"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import polars as pl
import pyarrow as pa
import pytest
import yaml

from builder.examples import TESTS
from headrace.config.load import load_deployment
from headrace.schema.load import load_schema

ROOT = Path(__file__).parents[2]
PAGES = [page.relative_to(ROOT).as_posix() for page in sorted(ROOT.glob("docs/**/*.md"))]
_BLOCK = re.compile(r"^( *)```(?P<language>\w+)\n(?P<text>.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    found = _BLOCK.finditer((ROOT / page).read_text())
    return [match["text"] for match in found if match["language"] == language]


def languages(page: str) -> set[str]:
    return {match["language"] for match in _BLOCK.finditer((ROOT / page).read_text())}


def test_every_example_says_which_tests_follow_it() -> None:
    assert {page: set(tests) for page, tests in TESTS.items()} == {
        page: languages(page) for page in PAGES if languages(page)
    }


@pytest.mark.parametrize("page", TESTS)
def test_the_tests_of_a_page_look_at_it(page: str) -> None:
    for test in {test for tests in TESTS[page].values() for test in tests}:
        text = (ROOT / test).read_text()
        assert Path(page).name in text or "docs/**/*.md" in text or "builder.fields" in text, test


HEAD = """
[source]
type = "postgres"
connection_url = "postgresql://db.example/shop"
"""
SINK = """
[sinks.primary]
type = "opensearch"
url = "https://search.example:9200"
"""


@pytest.mark.parametrize(
    ("page", "number", "more"),
    [
        ("docs/guides/moving.md", 0, SINK),
        ("docs/guides/control.md", 0, HEAD + SINK),
        ("docs/guides/sinks.md", 0, HEAD),
    ],
)
def test_what_a_page_shows_of_a_deployment_file_is_taken(
    page: str, number: int, more: str, tmp_path: Path
) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(blocks(page, "toml")[number] + more)
    deployment = load_deployment(file, {})
    assert deployment.sinks


def test_the_mirror_of_the_page_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(blocks("docs/guides/mirror.md", "toml")[0])
    deployment = load_deployment(file, {})
    assert deployment.mirror is not None
    assert deployment.mirror.location == str(tmp_path / "lake")


@pytest.mark.parametrize("part", blocks("docs/guides/mirror-tables.md", "toml"))
def test_the_parts_of_a_mirror_are_taken(part: str, tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    mirror = "" if "[mirror]" in part else '[mirror]\nlocation = "lake"\n'
    file.write_text(HEAD + mirror + part)
    assert load_deployment(file, {"MASK_SALT": "salt"}).mirror is not None


def test_a_history_table_tells_what_a_row_was() -> None:
    at_the_time, at_a_position = blocks("docs/guides/mirror-tables.md", "sql")
    noon, tea, supper = (datetime(2026, 11, 24, hour, tzinfo=UTC) for hour in (12, 15, 18))
    prices = pl.DataFrame(
        {
            "price": [1, 2, 3],
            "_valid_from": [noon, tea, supper],
            "_valid_to": [tea, supper, None],
            "_from_lsn": [10, 20, 30],
            "_to_lsn": [20, 30, None],
        }
    )
    lake = pl.SQLContext(prices=prices)
    assert lake.execute(at_the_time, eager=True)["price"].to_list() == [1]
    for position, price in {10: 1, 29: 2, 99: 3}.items():
        query = re.sub(r"\bP\b", str(position), at_a_position)
        assert lake.execute(query, eager=True)["price"].to_list() == [price]


def test_the_settings_and_mappings_of_the_page_are_json_of_their_kind() -> None:
    settings, mappings = map(json.loads, blocks("docs/guides/configuration.md", "json"))
    assert settings["index"]["analysis"]["analyzer"].keys() == {mappings["properties"]["bio"]["analyzer"]}


def test_the_transform_of_the_page_adds_a_length() -> None:
    [program] = blocks("docs/guides/configuration.md", "python")
    module = ModuleType("shop_documents")
    exec(program, module.__dict__)
    batch = pa.RecordBatch.from_pydict({"id": ["1"], "document": ['{"name": "Ann"}']})
    [document] = module.add_length(batch).column("document").to_pylist()
    assert json.loads(document) == {"name": "Ann", "name_length": 3}


def test_the_filters_of_the_language_are_filters(tmp_path: Path) -> None:
    whole, editor, filters = blocks("docs/reference/schema.md", "yaml")
    assert editor.startswith("# yaml-language-server: $schema=")
    file = tmp_path / "users.schema.yml"
    file.write_text("version: 1\ntable: users\nprimary_key: id\n" + filters + "fields: [{long: id}]\n")
    assert len(load_schema(file, "users").filters) == 4
    file.write_text(whole.replace("[ … ]", "[]").replace("fields: []", "fields: [{long: id}]"))
    assert load_schema(file, "users").routing is not None
    assert yaml.safe_load(whole)["version"] == 1
