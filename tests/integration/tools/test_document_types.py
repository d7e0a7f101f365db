"""Documents conform to the types that are generated for them, and nothing else does."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from headrace.pipeline.project import Project, open_project
from headrace.postgres.connection import connect, execute
from headrace.tools.demo.shop import INDEXES, create_shop, write_deployment
from headrace.tools.document_types.generate import generate_types
from headrace.tools.preview import open_preview

TABLES = """
CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a int, "b c" numeric, m money);
CREATE DOMAIN cents AS numeric(12, 0);
CREATE TABLE homes (id int PRIMARY KEY, name text);
CREATE TABLE things (
    id int PRIMARY KEY, whole cents NOT NULL, price numeric(10,2) NOT NULL, size float8 NOT NULL,
    home_id int NOT NULL REFERENCES homes, away_id int REFERENCES homes, loose_id int NOT NULL,
    at timestamptz NOT NULL, numbers int[] NOT NULL, grid numeric[][] NOT NULL, moods mood[] NOT NULL,
    mood mood NOT NULL, name citext NOT NULL, couple pair NOT NULL, labels hstore NOT NULL,
    path ltree NOT NULL, span int4range NOT NULL, photo bytea NOT NULL, anything jsonb NOT NULL,
    cost money NOT NULL, note text);
INSERT INTO homes VALUES (1, 'home'), (2, NULL);
INSERT INTO things
    SELECT i, i, i * 1.5, n, 1 + i % 2, CASE WHEN i > 1 THEN 1 END, i,
           CASE WHEN i > 2 THEN 'infinity' ELSE now() END, ARRAY[i, NULL], '{{1.5,NaN},{NULL,2}}',
           ARRAY['sad', NULL]::mood[], 'ok', 'Ann', ROW(i, 1.5, 2::money)::pair, 'a=>NULL,b=>x',
           'a.b', '[1,2)', 'x', 'null', '3.5', CASE WHEN i > 1 THEN 'x' END
    FROM (VALUES (1, 1.5::float8), (2, 2), (3, 'NaN')) AS v (i, n);
CREATE TABLE parts (id bigint PRIMARY KEY, thing_id int NOT NULL, weight numeric, count int);
CREATE INDEX ON parts (thing_id);
INSERT INTO parts VALUES (1, 1, 1.5, 1), (2, 1, NULL, NULL), (3, 2, 1.5, 7)
"""
OF_PARTS = "table: parts, foreign_key: thing_id"
HOME = "table: homes, primary_key: id, fields: [{text: name}]"
SCHEMA = f"""
version: 1
table: things
fields:
  - {{long: id}}
  - {{decimal: whole}}
  - {{decimal: price, required: true}}
  - {{double: size}}
  - {{timestamp: at}}
  - {{integer: numbers}}
  - {{decimal: grid}}
  - {{enum: moods, variants: [sad, ok]}}
  - {{enum: mood, variants: [sad, ok]}}
  - {{keyword: lower, column: name, transforms: [lowercase]}}
  - {{custom: couple, postgres: [pair], opensearch: object}}
  - {{custom: labels, postgres: [hstore], opensearch: object}}
  - {{custom: path, postgres: [ltree], opensearch: keyword}}
  - {{custom: span, postgres: [int4range], opensearch: keyword}}
  - {{binary: photo}}
  - {{json: anything}}
  - {{decimal: cost}}
  - {{keyword: note, default: none}}
  - {{text: remark, column: note, required: true}}
  - {{belongs_to: home, column: home_id, {HOME}}}
  - {{belongs_to: away, column: away_id, required: true, {HOME}}}
  - {{belongs_to: loose, column: loose_id, required: true, {HOME}}}
  - {{ids: parts, element_type: keyword, {OF_PARTS}}}
  - {{sum: weight, column: weight, value_type: long, {OF_PARTS}}}
  - {{max: most, column: count, value_type: decimal, {OF_PARTS}}}
"""
EXPECTED = {
    "id": "int",
    "whole": "int | None",
    "price": "float",
    "size": "float | None",
    "at": "str | None",
    "numbers": "list[int | None]",
    "grid": "list[list[float | None]]",
    "moods": "list[ThingsMoods | None]",
    "mood": "ThingsMood",
    "lower": "str",
    "couple": "ThingsCouple",
    "labels": "dict[str, str | None]",
    "path": "Any",
    "span": "str",
    "photo": "str",
    "anything": "Any",
    "cost": "float",
    "note": "str",
    "remark": "str | None",
    "home": "ThingsHome",
    "away": "ThingsAway | None",
    "loose": "ThingsLoose | None",
    "parts": "list[int]",
    "weight": "float | None",
    "most": "int | None",
}


def loaded(text: str, folder: Path) -> dict[str, Any]:
    """The names of a generated module; no document may hold more keys than its type has.

    Before Python 3.12 pydantic takes the TypedDict of `typing_extensions` alone.
    """
    module = folder / "documents.py"
    module.write_text(text.replace("from typing import", "from typing_extensions import"))
    names = runpy.run_path(str(module))
    for value in names.values():
        if is_typeddict(value):
            value.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    return names


def conforming(type_: Any, documents: list[bytes]) -> None:
    """Check that the documents conform, and that the type tells what does not."""
    adapter = TypeAdapter(type_)
    for document in documents:
        adapter.validate_json(document)
        values = json.loads(document)
        for key in values:
            with pytest.raises(ValidationError):
                adapter.validate_python({name: value for name, value in values.items() if name != key})
        with pytest.raises(ValidationError):
            adapter.validate_python({**values, "more": 1})


def documents_of(project: Project, index: str) -> list[bytes]:
    with open_preview(project.database(), project.specs[index]) as preview:
        return [found.body for found in preview.first(1000) if found.body is not None]


@pytest.mark.parametrize("offline", [False, True])
def test_the_documents_of_the_shop_have_the_types_that_are_generated(
    database: str, tmp_path: Path, *, offline: bool
) -> None:
    create_shop(database, users=40)
    project = open_project(write_deployment(tmp_path, database, "http://127.0.0.1:9"), {})
    names = loaded(generate_types(project, "python", [], offline=offline), tmp_path)
    for index in INDEXES:
        documents = documents_of(project, index)
        assert len(documents) > 30
        conforming(names[f"{index.capitalize()}Document"], documents)


@pytest.fixture
def things(database: str, tmp_path: Path) -> Project:
    with connect(database) as connection:
        for statement in TABLES.split(";"):
            execute(connection, statement)
    path = write_deployment(tmp_path, database, "http://127.0.0.1:9")
    (tmp_path / "orders.schema.yml").write_text(SCHEMA)
    project = open_project(path, {})
    return replace(project, specs={"things": replace(project.specs["orders"], name="things")})


def test_columns_say_what_a_value_is_and_whether_it_may_be_null(things: Project, tmp_path: Path) -> None:
    text = generate_types(things, "python", ["things"], offline=False)
    document = text.partition("class ThingsDocument")[2].partition("\n\n\n")[0]
    found = dict(
        line.strip().split(": ", 1)
        for line in document.splitlines()
        if line.startswith("    ") and ": " in line
    )
    assert {key: found[key] for key in EXPECTED} == EXPECTED
    conforming(loaded(text, tmp_path)["ThingsDocument"], documents_of(things, "things"))
