"""A PGSync view of one table is converted to the table with its condition; every other one says why not."""

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

TABLES = """
CREATE TYPE mood AS ENUM ('dull', 'bright');
CREATE TABLE label (id int PRIMARY KEY, name text, secret text);
CREATE TABLE album (id int PRIMARY KEY, name text, mood mood, year int, label_id int REFERENCES label);
CREATE INDEX ON album (label_id);
INSERT INTO label VALUES (1, 'One', 'x'), (2, 'Two', NULL);
INSERT INTO album VALUES (1, 'A', 'dull', 1999, 1), (2, 'B', 'bright', 2001, 1), (3, 'C', NULL, 2005, 2),
  (4, NULL, 'bright', NULL, NULL);
"""
RIGHT = {
    "plain": "SELECT id, name FROM album",
    "bright": "SELECT id, name, label_id FROM album WHERE mood = 'bright'",
    "several": "SELECT name, id FROM album WHERE (year > 2000 AND name IS NOT NULL) OR label_id IN (1, 7)",
    "fenced": "SELECT id FROM album WHERE lower(name) = 'a'",
}
REFUSED = {
    "renamed": ("SELECT id, name AS title FROM album", "title is name"),
    "made": ("SELECT id, upper(name) AS name FROM album", "name is an expression"),
    "swapped": ("SELECT id, year AS label_id, label_id AS year FROM album", "label_id is year"),
    "once": ("SELECT DISTINCT id, name FROM album", "more than columns"),
    "counted": ("SELECT label_id AS id, count(*) FROM album GROUP BY label_id", "more than columns"),
    "first": ("SELECT id, name FROM album LIMIT 2", "more than columns"),
    "above": ("SELECT id, name FROM bright", "more than columns"),
    "twice": ("SELECT id, name FROM album UNION ALL SELECT id, name FROM album", "more than columns"),
    "recent": ("SELECT id, name FROM album WHERE year < extract(year FROM now())", "of its condition"),
    "asked": ("SELECT id FROM album WHERE EXISTS (SELECT FROM album b WHERE b.year = 1)", "of its condition"),
}


@pytest.fixture(scope="module")
def url(postgres: EmbeddedPostgres) -> Iterator[str]:
    url = postgres.create_database("views")
    views = {**RIGHT, **{name: sql for name, (sql, _) in REFUSED.items()}}
    with connect(url) as connection:
        connection.execute(TABLES.encode())
        for name, sql in views.items():
            connection.execute(f"CREATE VIEW {name} AS {sql}".encode())
        connection.execute(b"ALTER VIEW fenced SET (security_barrier)")
        connection.execute(b"CREATE VIEW ruled AS SELECT id, name FROM album")
        connection.execute(b"CREATE RULE gone AS ON DELETE TO ruled DO INSTEAD NOTHING")
    yield url
    postgres.drop_database("views")


def converted(folder: Path, url: str, node: dict[str, Any]) -> Conversion:
    file = folder / "schema.json"
    file.write_text(json.dumps([{"database": "views", "index": "shown", "nodes": node}]))
    conversion = convert_pgsync(file, None, url, {})
    for name, text in conversion.files.items():
        (folder / name).write_text(text)
    return conversion


def shown(folder: Path, url: str) -> list[dict[str, Any]]:
    with open_preview(url, load_schema(folder / "shown.schema.yml", "shown")) as preview:
        return [json.loads(document.body or b"null") for document in preview.first(100)]


@pytest.mark.parametrize("view", RIGHT)
def test_a_view_of_columns_and_a_condition_shows_the_same_rows(tmp_path: Path, url: str, view: str) -> None:
    conversion = converted(tmp_path, url, {"table": view, "primary_key": ["id"]})
    assert not [note for note in conversion.notes if note.is_open], conversion.notes
    assert any("Convert again when the view changes" in note.remedy for note in conversion.notes)
    with connect(url) as connection:
        rows = connection.execute(f"SELECT to_jsonb(v) FROM {view} AS v ORDER BY id".encode()).fetchall()
    assert rows
    assert shown(tmp_path, url) == [row for (row,) in rows]


@pytest.mark.parametrize("view", [*REFUSED, "ruled"])
def test_another_view_is_left_to_do_with_the_reason(tmp_path: Path, url: str, view: str) -> None:
    _, why = REFUSED.get(view, ("", "more than columns"))
    conversion = converted(tmp_path, url, {"table": view, "columns": ["id"], "primary_key": ["id"]})
    [note] = [note for note in conversion.notes if "is a view" in note.text]
    assert (note.is_open, why in note.text) == (True, True), note
    assert "filters" not in conversion.files["shown.schema.yml"]


def test_a_view_below_a_table_narrows_the_list(tmp_path: Path, url: str) -> None:
    relationship = {"type": "one_to_many", "variant": "object"}
    child = {"table": "bright", "columns": ["id"], "primary_key": ["id"], "relationship": relationship}
    converted(tmp_path, url, {"table": "label", "columns": ["id"], "children": [child]})
    assert shown(tmp_path, url) == [{"id": 1, "bright": [{"id": 2}]}, {"id": 2, "bright": []}]


def test_a_column_that_the_view_hides_is_not_shown(tmp_path: Path, url: str) -> None:
    conversion = converted(
        tmp_path, url, {"table": "plain", "columns": ["id", "year"], "primary_key": ["id"]}
    )
    [note] = [note for note in conversion.notes if note.is_open]
    assert "plain has no column 'year'" in note.text
    assert "year" not in conversion.files["shown.schema.yml"]


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
    conversion = convert_pgsync(file, None, url, {})
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
    assert [field.key for field in spec.fields] == ["id", "lable", "label", "between"]
