"""Are the shop's files what the rooms that read them accept?"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from headrace.schema.load import load_schema
from headrace.tools.demo.shop import INDEXES, TABLES, write_deployment


def test_the_deployment_file_holds_what_was_given_even_where_it_needs_quoting(tmp_path: Path) -> None:
    path = write_deployment(tmp_path / "new", 'postgresql://h/d?password=a"b\\c', "http://sink:9200", "t_")
    deployment = tomllib.loads(path.read_text())
    assert deployment["prefix"] == "t_"
    assert deployment["source"]["connection_url"] == 'postgresql://h/d?password=a"b\\c'
    assert deployment["sinks"]["primary"]["url"] == "http://sink:9200"
    assert [index["name"] for index in deployment["index"]] == list(INDEXES)
    assert all((path.parent / index["schema"]).exists() for index in deployment["index"])


@pytest.mark.parametrize("index", INDEXES)
def test_every_schema_file_is_valid_and_starts_at_its_own_table(tmp_path: Path, index: str) -> None:
    folder = write_deployment(tmp_path, "", "").parent
    spec = load_schema(folder / f"{index}.schema.yml", index)
    assert spec.table.name == index


def test_the_indexes_read_every_table_of_the_shop(tmp_path: Path) -> None:
    folder = write_deployment(tmp_path, "", "").parent
    read = {
        table.name
        for index in INDEXES
        for table in load_schema(folder / f"{index}.schema.yml", index).tables()
    }
    assert read == set(TABLES)
