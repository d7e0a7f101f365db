"""What PGSync's examples say of a document is what Headrace assembles from the converted files.

The schema.json and its tables are made up in the shapes of all examples that PGSync's repository has.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.config.deployment import Deployment, IndexEntry
from headrace.config.load import load_deployment
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.pipeline.project import open_project
from headrace.postgres.connection import connect
from headrace.schema.load import load_schema
from headrace.sinks.opensearch import mapping
from headrace.tools.convert import Conversion, convert_pgsync
from headrace.tools.preview import open_preview
from support.pgsync_oracle import Town, documents

DATA = Path(__file__).parents[3] / "data" / "pgsync"
SINK = "http://search.example:9200"
INDEXES: dict[str, dict[str, Any]] = {
    index["index"]: index for index in json.loads((DATA / "schema.json").read_text())
}


@dataclass(frozen=True)
class Converted:
    """The town's database, and the deployment that the conversion has written."""

    url: str
    town: Town
    conversion: Conversion
    deployment: Deployment
    entries: Mapping[str, IndexEntry]


@pytest.fixture(scope="module")
def converted(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Converted]:
    url = postgres.create_database("town")
    with connect(url) as connection:
        connection.execute((DATA / "tables.sql").read_bytes())
    conversion = convert_pgsync(DATA / "schema.json", url, SINK, {})
    folder = tmp_path_factory.mktemp("converted")
    for name, text in conversion.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    deployment = load_deployment(folder / "headrace.toml", {})
    sys.path.insert(0, str(folder))
    yield Converted(
        url, Town.read(url), conversion, deployment, {entry.name: entry for entry in deployment.indexes}
    )
    sys.path.remove(str(folder))
    postgres.drop_database("town")


def assembled(converted: Converted, name: str) -> dict[str, Any]:
    """What `headrace preview` shows."""
    entry = converted.entries[name]
    spec = dataclasses.replace(load_schema(entry.schema_path, name), transform=entry.transform)
    with open_preview(converted.url, spec) as preview:
        return {document.id: json.loads(document.body or b"null") for document in preview.first(1000)}


def in_order(value: Any) -> Any:
    """With each list in one order: PGSync's have none."""
    if isinstance(value, dict):
        return {key: in_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(map(in_order, value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


@pytest.mark.parametrize("name", INDEXES)
def test_documents_are_what_pgsync_promises(converted: Converted, name: str) -> None:
    wanted = documents(INDEXES[name], converted.town)
    assert len(wanted) > 1
    assert in_order(assembled(converted, name)) == in_order(wanted)


ODD: dict[str, dict[str, Any]] = {
    "keys that the schema language lacks": {
        "table": "person",
        "columns": ["id", "name", "age"],
        "transform": {
            "rename": {"name": "first name", "posts": "the.posts"},
            "concat": {"columns": ["first name", "!"], "destination": "called"},
        },
        "children": [
            {
                "table": "post",
                "label": "posts",
                "columns": ["title"],
                "relationship": {
                    "type": "one_to_many",
                    "variant": "object",
                    "through_tables": ["person_post"],
                },
                "transform": {"rename": {"title": "1st-title"}, "replace": {"title": {"l": "L"}}},
            },
            {
                "table": "tag",
                "label": "its-tags",
                "columns": ["name"],
                "relationship": {
                    "type": "one_to_many",
                    "variant": "scalar",
                    "through_tables": ["person_tag"],
                },
            },
        ],
    },
    "texts out of json, beside the column and in a list": {
        "table": "clan",
        "columns": ["name"],
        "children": [
            {
                "table": "unit",
                "columns": ["details", "details->>hp", "details#>{hp}"],
                "relationship": {
                    "type": "one_to_many",
                    "variant": "object",
                    "foreign_key": {"child": ["clan_id"], "parent": ["id"]},
                },
            }
        ],
    },
    "a value of a row above, and its key": {
        "table": "cabin",
        "columns": ["address"],
        "children": [
            {
                "table": "village",
                "label": "where",
                "columns": ["name"],
                "relationship": {"type": "one_to_many", "variant": "scalar"},
            }
        ],
    },
}


@pytest.mark.parametrize("case", ODD)
def test_documents_of_odd_trees_are_what_pgsync_promises(
    converted: Converted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    entry = {"database": "town", "index": f"odd_{list(ODD).index(case)}", "nodes": ODD[case]}
    (tmp_path / "schema.json").write_text(json.dumps([entry]))
    for name, text in convert_pgsync(tmp_path / "schema.json", converted.url, SINK, {}).files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    deployment = load_deployment(tmp_path / "headrace.toml", {})
    odd = dataclasses.replace(converted, entries={found.name: found for found in deployment.indexes})
    wanted = documents(entry, converted.town)
    assert in_order(assembled(odd, str(entry["index"]))) == in_order(wanted)


def moods(label: str) -> dict[str, Any]:
    return {
        "table": "mood",
        "label": label,
        "columns": ["name"],
        "relationship": {"type": "one_to_many", "variant": "scalar", "through_tables": ["album_mood"]},
    }


ONE = {"type": "one_to_one", "variant": "object"}
MANY = {"type": "one_to_many", "variant": "object"}
REPLIES = {
    "table": "reply",
    "label": "replies",
    "columns": ["text"],
    "relationship": {"type": "one_to_many", "variant": "scalar", "through_tables": ["offered_reply"]},
}


@pytest.mark.parametrize(
    ("table", "child"), [("album", moods("moods")), ("album", moods("its-moods")), ("riddle", REPLIES)]
)
def test_a_list_of_values_has_the_type_that_pgsync_maps_it_to(
    converted: Converted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    child: Mapping[str, Any],
) -> None:
    """Also under a key that only a step can give, and out of a junction between keys of two columns."""
    key = str(child["label"])
    wanted = {"type": "keyword", "normalizer": "lowercase"}
    node = {"table": table, "columns": [], "children": [child], "transform": {"mapping": {key: wanted}}}
    index = f"typed_{key.replace('-', '_')}"
    (tmp_path / "schema.json").write_text(json.dumps([{"database": "town", "index": index, "nodes": node}]))
    for name, text in convert_pgsync(tmp_path / "schema.json", converted.url, SINK, {}).files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    project = open_project(tmp_path / "headrace.toml", {})
    made = mapping(project.specs[index], project.primary.index_options(index))
    found = made["mappings"]["properties"][key]
    assert found == {**found, **wanted}


def properties(
    converted: Converted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Conversion]:
    """The mapping of the documents' keys, and the conversion."""
    (tmp_path / "schema.json").write_text(json.dumps([{"database": "town", "index": "one", "nodes": node}]))
    conversion = convert_pgsync(tmp_path / "schema.json", converted.url, SINK, {})
    for name, text in conversion.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("one_")]:
        monkeypatch.delitem(sys.modules, name)
    project = open_project(tmp_path / "headrace.toml", {})
    made = mapping(project.specs["one"], project.primary.index_options("one"))
    found: Mapping[str, Any] = made["mappings"]["properties"]
    return found, conversion


@pytest.mark.parametrize("label", ["posts", "its-posts"])
@pytest.mark.parametrize("kind", [None, "nested"])
def test_a_list_keeps_its_type_and_the_keys_below_that_only_steps_give(
    converted: Converted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str, kind: str | None
) -> None:
    """The mapping of the whole replaced that of what stands in it, and the cluster refused documents."""
    posts = {
        "table": "post",
        "label": label,
        "columns": ["id", "title"],
        "relationship": {"type": "one_to_many", "variant": "object", "through_tables": ["person_post"]},
        "transform": {"rename": {"title": "1st-title"}, "mapping": {"1st-title": {"type": "keyword"}}},
    }
    mapped = {"mapping": {label: {"type": kind}}} if kind else {}
    node = {"table": "person", "columns": ["id"], "children": [posts], "transform": mapped}
    found, _ = properties(converted, tmp_path, monkeypatch, node)
    assert found[label]["type"] == (kind or "object")
    assert found[label]["properties"]["1st-title"]["type"] == "keyword"


def test_one_row_that_is_mapped_as_nested_stays_so(
    converted: Converted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = {"table": "region", "columns": ["name"], "relationship": ONE}
    node = {
        "table": "village",
        "columns": ["id"],
        "children": [region],
        "transform": {"mapping": {"region": {"type": "nested"}}},
    }
    found, conversion = properties(converted, tmp_path, monkeypatch, node)
    assert found["region"]["type"] == "nested"
    assert not [note for note in conversion.notes if "mapped as" in note.text]


def test_a_type_that_objects_cannot_keep_is_told(
    converted: Converted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posts = {"table": "cabin", "label": "cabins", "columns": ["address"], "relationship": MANY}
    node = {
        "table": "village",
        "columns": ["id"],
        "children": [posts],
        "transform": {"mapping": {"cabins": {"type": "flattened", "depth_limit": 3}}},
    }
    found, conversion = properties(converted, tmp_path, monkeypatch, node)
    assert (found["cabins"]["type"], "depth_limit" in found["cabins"]) == ("object", False)
    assert [note.is_open for note in conversion.notes if "'cabins' is mapped as flattened" in note.text] == [
        True
    ]


def test_a_point_under_a_key_that_only_a_step_gives_stays_a_point(
    converted: Converted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = {"rename": {"spot": "the-spot"}, "mapping": {"the-spot": {"type": "geo_point"}}}
    node = {"table": "album", "columns": ["id", "spot"], "transform": changed}
    found, _ = properties(converted, tmp_path, monkeypatch, node)
    assert found["the-spot"] == {"type": "geo_point"}


def test_a_foreign_key_beside_a_table_between_is_told(
    converted: Converted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = moods("moods")
    child["relationship"]["foreign_key"] = {"parent": ["id"], "child": ["id"]}
    node = {"table": "album", "columns": ["id"], "children": [child]}
    _, conversion = properties(converted, tmp_path, monkeypatch, node)
    assert [note.is_open for note in conversion.notes if "`foreign_key` beside" in note.text] == [True]


def test_what_the_database_does_not_have_is_listed(converted: Converted, tmp_path: Path) -> None:
    """Tables, columns, foreign keys: each with its line and what was meant; the rest is converted."""
    text = """[{"database": "town", "index": "odd", "nodes": {
"table": "person", "columns": ["name",
"agee"], "children": [
{"table": "tagg", "columns": ["name"], "relationship":
 {"type": "one_to_many", "variant": "object"}},
{"table": "guest", "columns": ["email"], "relationship":
 {"type": "one_to_many", "variant": "object"}}]}}]"""
    (tmp_path / "schema.json").write_text(text)
    conversion = convert_pgsync(tmp_path / "schema.json", converted.url, SINK, {})
    told = [
        (note.line, note.text.partition(": ")[0], note.remedy) for note in conversion.notes if note.is_open
    ]
    assert (3, "person has no column 'agee'", "Did you mean 'age'?") in told
    assert (4, "the database has no table tagg", "Did you mean 'tag'?") in told
    assert (7, "the database has no foreign key between person and guest") in [item[:2] for item in told]
    assert "text: name" in conversion.files["odd.schema.yml"]
