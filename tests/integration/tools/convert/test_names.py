"""Whatever a schema.json names, its deployment loads: no name becomes code, and none hides another."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import yaml

from headrace.config.load import load_deployment
from headrace.config.resolve import resolve
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier
from headrace.schema.load import load_schema
from headrace.tools.convert import Conversion, convert_pgsync
from headrace.tools.saved_files import save_files

SINK = "https://reader:hush@search.example:9200"
CHILD = {"type": "one_to_many", "variant": "object"}


@pytest.fixture(scope="module")
def url(postgres: EmbeddedPostgres) -> Iterator[str]:
    url = postgres.create_database("shop")
    with connect(url) as connection:
        execute(
            connection, "CREATE TABLE books (id int PRIMARY KEY, title text, a json, a_of_b json, made date)"
        )
        execute(connection, "CREATE TABLE notes (id int PRIMARY KEY, book_id int REFERENCES books)")
    yield url
    postgres.drop_database("shop")


def converted(folder: Path, url: str, *indexes: dict[str, Any]) -> Conversion:
    (folder / "schema.json").write_text(json.dumps(indexes))
    return convert_pgsync(folder / "schema.json", url, SINK, {})


def index(node: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "database": "shop",
        "index": "books",
        "nodes": {"table": "books", "columns": ["id"], **node},
        **more,
    }


def schema(conversion: Conversion, name: str = "books") -> dict[str, Any]:
    found = yaml.safe_load(conversion.files[f"{name}.schema.yml"])
    assert isinstance(found, dict)
    return found


def imported(name: str, text: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> ModuleType:
    """Import a module that was written, as a run does, and forget it."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    with monkeypatch.context() as context:
        context.syspath_prepend(str(folder))
        try:
            return importlib.import_module(name)
        finally:
            sys.modules.pop(name, None)


def test_no_password_is_written_and_the_deployment_finds_its_servers(tmp_path: Path, url: str) -> None:
    conversion = converted(tmp_path, url, index({}))
    folder = tmp_path / "moved"
    save_files(folder, {folder / file: text.encode() for file, text in conversion.files.items()}, {})
    environ = {
        "DATABASE_URL": url,
        "PRIMARY_OPENSEARCH_USERNAME": "me",
        "PRIMARY_OPENSEARCH_PASSWORD": "hush",
    }
    resolved = resolve(load_deployment(folder / "headrace.toml", environ))
    assert resolved.database_url.reveal() == url
    assert resolved.endpoints["primary"].urls == ("https://search.example:9200",)
    assert "hush" not in "".join(conversion.files.values())


def test_an_index_of_another_database_is_left_out(tmp_path: Path, url: str) -> None:
    """One address leads to one database; where the file names only one it is that, whatever its name."""
    other = index({}, database="depot") | {"index": "pens"}
    conversion = converted(tmp_path, url, index({}), other)
    assert "pens.schema.yml" not in conversion.files
    [note] = conversion.notes
    assert (note.is_open, "of the database depot: it is left out" in note.text) == (True, True)
    assert "pens.schema.yml" in converted(tmp_path, url, other).files


def test_a_second_tree_of_an_index_is_left_out(tmp_path: Path, url: str) -> None:
    [note] = converted(tmp_path, url, index({}), index({"table": "notes"})).notes
    assert (note.is_open, "a second tree of documents" in note.text) == (True, True)


def test_a_routing_that_is_no_column_is_left_to_do(tmp_path: Path, url: str) -> None:
    [note] = converted(tmp_path, url, index({}, routing="isbn")).notes
    assert (note.is_open, note.text) == (True, "the routing 'isbn' is no column of books")


def test_settings_that_a_run_refuses_are_left_out_with_the_reason(tmp_path: Path, url: str) -> None:
    """Else a file would be written that no command loads."""
    setting = {"translog.durability": "async", "refresh_interval": "5s"}
    conversion = converted(tmp_path, url, index({}, setting=setting))
    assert "books.settings.json" not in conversion.files
    [note] = conversion.notes
    assert (note.is_open, "'setting' of books is left out: translog.durability must be" in note.text) == (
        True,
        True,
    )


def test_two_columns_under_one_key_are_one_field(tmp_path: Path, url: str) -> None:
    """In PGSync the later one overwrites the other in a JSON object; a child's label wins."""
    node = {
        "columns": ["id", "title", "made"],
        "transform": {"rename": {"title": "id", "made": "notes"}},
        "children": [{"table": "notes", "columns": ["id"], "relationship": CHILD}],
    }
    fields = schema(converted(tmp_path, url, index(node)))["fields"]
    assert [next(iter(field.values())) for field in fields] == ["id", "notes"]
    assert fields[1]["has_many"] == "notes"


def test_a_mapping_of_pgsync_chooses_the_type(tmp_path: Path, url: str) -> None:
    mapping = {
        "id": {"type": "long"},
        "title": {"type": "keyword", "ignore_above": 9},
        "made": {"type": "date"},
    }
    node = {"columns": ["id", "title", "made"], "transform": {"mapping": mapping}}
    assert schema(converted(tmp_path, url, index(node)))["fields"] == [
        {"long": "id"},
        {"keyword": "title", "options": {"ignore_above": 9}},
        {"date": "made"},
    ]


def test_paths_into_columns_of_like_names_each_read_their_own(tmp_path: Path, url: str) -> None:
    conversion = converted(tmp_path, url, index({"columns": ["id", "a_of_b->x", "a->y", "a->z"]}))
    helpers = {field["json"]: field["column"] for field in schema(conversion)["fields"] if "json" in field}
    extracted = re.findall(r"extract\(row, '(\w+)', .* '(\w+)'\)", conversion.files["books_transform.py"])
    assert [(helpers[helper], key) for helper, key in extracted] == [
        ("a_of_b", "a_of_b_x"),
        ("a", "a_y"),
        ("a", "a_z"),
    ]


@pytest.mark.parametrize("name", ["class", "rows", "rename", "books"])
def test_a_transform_runs_whatever_its_index_is_called(tmp_path: Path, url: str, name: str) -> None:
    node = {"columns": ["title"], "transform": {"rename": {"title": "the title"}}}
    conversion = converted(tmp_path, url, {**index(node), "index": name})
    given = tomllib.loads(conversion.files["headrace.toml"])["index"][0]["transform"]
    module, _, function = given.partition(":")
    names: dict[str, Any] = {}
    exec(conversion.files[f"{module}.py"], names)
    key = schema(conversion, name)["fields"][0]["text"]
    batch = pa.RecordBatch.from_pydict({"id": ["1"], "document": [json.dumps({key: "Emma"})]})
    assert names[function](batch)["document"].to_pylist() == ['{"the title":"Emma"}']


def test_an_index_whose_name_headrace_does_not_take_has_another(tmp_path: Path, url: str) -> None:
    conversion = converted(tmp_path, url, {**index({}), "index": "2024-books"})
    assert "_2024_books.schema.yml" in conversion.files
    assert "`headrace adopt _2024_books --name 2024-books`" in conversion.notes[0].remedy


HOSTILE = [
    'x"""\nraise SystemExit("written as code")\n"""',
    "x\nraise SystemExit('written as code')",
    "x'''; raise SystemExit",
    "a.b:c",
    "__init__",
    "2024 orders",
    "\x7f\x1b[2J",
    "ﬁle",
    "é\u2028# x",
    "\\",
    "{% raw %}{{ x }}",
    "!!python/object:os.system x",
    "null",
    "x" * 60,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_never_becomes_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, name: str
) -> None:
    """Everything that the file names is called so; the files load, and the module does what it should."""
    table = f"{identifier(name)}.{identifier(name)}"
    with connect(url) as connection:
        execute(connection, f"CREATE SCHEMA {identifier(name)}")
        execute(connection, f"CREATE TABLE {table} (id int PRIMARY KEY, {identifier(name)} json)")
    node = {
        "table": name,
        "schema": name,
        "columns": ["id", name, f"{name}->{name}"],
        "transform": {
            "rename": {"id": name + "2"},
            "replace": {name: {name: name}},
            "concat": {"columns": [name], "destination": name + "3", "delimiter": name},
        },
    }
    whole = {"database": name, "index": name, "nodes": node, "plugins": [name], "pipeline": name}
    conversion = converted(tmp_path, url, whole)
    folder = tmp_path / "converted"
    save_files(folder, {folder / file: text.encode() for file, text in conversion.files.items()}, {})
    [entry] = load_deployment(folder / "headrace.toml", {}).indexes
    assert load_schema(entry.schema_path, entry.name).table == TableName(name, name)
    module, _, function = str(entry.transform).partition(":")
    found = imported(module, conversion.files[f"{module}.py"], monkeypatch, tmp_path)
    keys = [next(iter(field.values())) for field in schema(conversion, entry.name)["fields"]]
    document = json.dumps({key: {name: name} for key in keys})
    batch = pa.RecordBatch.from_pydict({"id": ["1"], "document": [document]})
    [made] = getattr(found, function)(batch)["document"]
    assert {f"{name}2", f"{name}3"} <= json.loads(made.as_py()).keys()


def test_names_that_are_alike_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Two indexes whose names have the same letters were one."""
    names = ("my-books", "my_books", "rows", "class", "class_")
    steps = {"columns": ["title"], "transform": {"replace": {"title": {"a": "b"}}}}
    given = [{**index(steps), "index": name} for name in names]
    conversion = converted(tmp_path, url, *given)
    entries = tomllib.loads(conversion.files["headrace.toml"])["index"]
    assert len({entry["name"] for entry in entries}) == len({entry["transform"] for entry in entries}) == 5
    for entry in entries:
        module, _, function = entry["transform"].partition(":")
        found = imported(module, conversion.files[f"{module}.py"], monkeypatch, tmp_path)
        assert callable(getattr(found, function))


@pytest.mark.long
@pytest.mark.parametrize("folder", [".", "a new folder"])
def test_the_commands_that_come_next_work_where_they_are_read(tmp_path: Path, url: str, folder: str) -> None:
    """The module of a converted index was not importable, and in another folder no file was found."""
    given = index({"columns": ["id", "title"], "transform": {"replace": {"title": {"a": "b"}}}})
    (tmp_path / "schema.json").write_text(json.dumps([given]))
    programs = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environ = {"PATH": programs, "HOME": str(tmp_path), "DATABASE_URL": url}

    def run(*line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False
        )

    told = run("headrace", "convert", "pgsync", "schema.json", "--folder", folder)
    [following] = re.findall(r"next: (.*)", " ".join(told.stderr.split()))
    check, setup, started = following.split(", ")
    assert ("headrace setup" in setup, "headrace run" in started) == (True, True)
    checked = run("sh", "-c", f"{check} --offline")
    assert checked.returncode == 0, checked.stderr


def test_a_deployment_that_is_converted_again_keeps_its_slot(url: str, tmp_path: Path) -> None:
    """A new slot would leave the former one behind, which keeps the log for ever."""
    (tmp_path / "schema.json").write_text(json.dumps([index({})]))
    former = tmp_path / "headrace.toml"
    first, other = (convert_pgsync(tmp_path / "schema.json", url, SINK, {}, former) for _ in range(2))
    assert first.files["headrace.toml"] != other.files["headrace.toml"]
    named = re.sub("(?m)^publication = .*", 'publication = "mine"', first.files["headrace.toml"])
    save_files(tmp_path, {tmp_path / name: text.encode() for name, text in first.files.items()}, {})
    former.write_text(named)
    again = convert_pgsync(tmp_path / "schema.json", url, SINK, {}, former)
    assert again.files["headrace.toml"] == named
    former.write_text("no deployment")
    assert convert_pgsync(tmp_path / "schema.json", url, SINK, {}, former).files["headrace.toml"] != named
