"""A PGSync view of one table is read as its table, which is told; one of several tables is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect
from headrace.schema.load import load_schema
from headrace.tools.convert import Conversion, convert_pgsync
from headrace.tools.preview import open_preview

SINK = "http://search.example:9200"
TABLES = """
CREATE TYPE mood AS ENUM ('dull', 'bright');
CREATE TABLE label (id int PRIMARY KEY, name text, secret text);
CREATE TABLE album (id int PRIMARY KEY, name text, mood mood, year int, label_id int REFERENCES label);
CREATE INDEX ON album (label_id);
INSERT INTO label VALUES (1, 'One', 'x'), (2, 'Two', NULL);
INSERT INTO album VALUES (1, 'A', 'dull', 1999, 1), (2, 'B', 'bright', 2001, 1), (3, 'C', NULL, 2005, 2),
  (4, NULL, 'bright', NULL, NULL);
"""
VIEWS = {
    "plain": "SELECT id, name FROM album",
    "bright": "SELECT id, name, label_id FROM album WHERE mood = 'bright'",
    "joined": "SELECT album.id, label.name FROM album JOIN label ON label.id = label_id",
    "above": "SELECT id, name FROM bright",
}


@pytest.fixture(scope="module")
def url(postgres: EmbeddedPostgres) -> Iterator[str]:
    url = postgres.create_database("views")
    with connect(url) as connection:
        connection.execute(TABLES.encode())
        for name, sql in VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {sql}".encode())
    yield url
    postgres.drop_database("views")


def converted(folder: Path, url: str, node: dict[str, Any]) -> Conversion:
    file = folder / "schema.json"
    file.write_text(json.dumps([{"database": "views", "index": "shown", "nodes": node}]))
    conversion = convert_pgsync(file, url, SINK, {})
    for name, text in conversion.files.items():
        (folder / name).write_text(text)
    return conversion


def shown(folder: Path, url: str) -> list[dict[str, Any]]:
    with open_preview(url, load_schema(folder / "shown.schema.yml", "shown")) as preview:
        return [json.loads(document.body or b"null") for document in preview.first(100)]


def test_a_view_of_one_table_is_read_as_its_table(tmp_path: Path, url: str) -> None:
    """Without columns in the file those of the view are shown."""
    conversion = converted(tmp_path, url, {"table": "plain", "primary_key": ["id"]})
    [note] = [note for note in conversion.notes if note.is_open]
    assert "plain is a view: its table album is read instead" in note.text
    assert "`filters:`" in note.remedy
    assert shown(tmp_path, url) == [
        {"id": 1, "name": "A"},
        {"id": 2, "name": "B"},
        {"id": 3, "name": "C"},
        {"id": 4, "name": None},
    ]


@pytest.mark.parametrize("view", ["joined", "above"])
def test_another_view_is_left_out(tmp_path: Path, url: str, view: str) -> None:
    conversion = converted(tmp_path, url, {"table": view, "columns": ["id"], "primary_key": ["id"]})
    [note] = conversion.notes
    assert (note.is_open, f"{view} is a view of " in note.text) == (True, True), note
    assert "shown.schema.yml" not in conversion.files


def test_a_view_below_a_table_is_its_tables_list(tmp_path: Path, url: str) -> None:
    relationship = {"type": "one_to_many", "variant": "object"}
    child = {"table": "bright", "columns": ["id"], "primary_key": ["id"], "relationship": relationship}
    converted(tmp_path, url, {"table": "label", "columns": ["id"], "children": [child]})
    assert shown(tmp_path, url) == [
        {"id": 1, "bright": [{"id": 1}, {"id": 2}]},
        {"id": 2, "bright": [{"id": 3}]},
    ]


def test_missing_tables_have_their_line_and_the_rest_is_converted(tmp_path: Path, url: str) -> None:
    """Also where a table stands below itself, and where the table between is missing."""
    lists = {"type": "one_to_many", "variant": "object"}
    one = {"type": "one_to_one", "variant": "object"}
    again = {"table": "album", "label": "again", "columns": ["id"], "relationship": lists}
    file = tmp_path / "schema.json"
    node = {
        "table": "album",
        "columns": ["id", "nmae"],
        "children": [
            {"table": "lable", "columns": ["id"], "relationship": one},
            {"table": "label", "columns": ["id"], "relationship": one, "children": [again]},
            {
                "table": "label",
                "label": "between",
                "columns": ["id"],
                "relationship": {**lists, "through_tables": ["no_such"]},
            },
        ],
    }
    text = json.dumps([{"database": "views", "index": "shown", "nodes": node}], indent=1)
    file.write_text(text)
    conversion = convert_pgsync(file, url, SINK, {})
    said = {note.text: note for note in conversion.notes if note.is_open}
    lines = text.splitlines()
    for what, near, remedy in (
        ("the database has no table lable", "{", "'label'"),
        ("album has no column 'nmae'", '"nmae"', "'name'"),
        ("the database has no table no_such", "relationship", "Known here"),
    ):
        [note] = [note for found, note in said.items() if found.startswith(what)]
        assert near in lines[note.line - 1], note
        assert remedy in note.remedy, note
    (tmp_path / "shown.schema.yml").write_text(conversion.files["shown.schema.yml"])
    spec = load_schema(tmp_path / "shown.schema.yml", "shown")
    assert [field.key for field in spec.fields] == ["id", "label"]
