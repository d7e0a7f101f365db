"""A wrong schema.json: each mistake has its line and a remedy, and everything else is converted."""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import yaml

from headrace.config.load import load_deployment
from headrace.errors import HeadraceError
from headrace.model.names import TableName
from headrace.schema.load import load_schema
from headrace.tools.convert import Conversion, convert_pgsync
from headrace.tools.saved_files import save_files

TITLE = '{"table": "books", "columns": ["id", "title"]'
ONE_SIDED = '"foreign_key": {"parent": ["a"], "child": []}'
CHILD = '"relationship": {"type": "one_to_many", "variant": "object"}'


def converted(tmp_path: Path, text: str) -> Conversion:
    """What becomes of a file, without a database."""
    file = tmp_path / "schema.json"
    file.write_text(text, encoding="utf-8")
    return convert_pgsync(file, None, None, {})


def entry(node: str, more: str = "") -> str:
    """A file whose node begins in line 3."""
    return f'[{{"database": "shop", "index": "books",{more}\n"nodes":\n{node}\n}}]'


def schema(conversion: Conversion, name: str = "books") -> dict[str, Any]:
    found = yaml.safe_load(conversion.files[f"{name}.schema.yml"])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ('[{"index": "a",\n"nodes": }]', "2:10", "not JSON: Expecting value"),
        ("", "1:1", "not JSON"),
        ('"books"', "1", "holds no index"),
        ("[]", "1", "holds no index"),
        ('[\n{"index": "books"}]', "1", "holds no index"),
        ("[7]", "1", "holds no index"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, place: str, said: str) -> None:
    with pytest.raises(HeadraceError) as raised:
        converted(tmp_path, text)
    assert f"schema.json:{place}: " in str(raised.value)
    assert said in str(raised.value)
    assert raised.value.remedy
    assert raised.value.exit_code == 2


def test_a_file_without_end_of_depth(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="nested too deeply"):
        converted(tmp_path, "[" * 100_000 + "]" * 100_000)


MISTAKES = [
    (entry(TITLE + ',\n"colums": []}'), 4, "unknown key 'colums' in a node", "Did you mean 'columns'?"),
    (entry(TITLE + "}", '\n"plugin": ["A"],'), 2, "unknown key 'plugin' in an index", "'plugins'"),
    (entry(TITLE + ',\n"children": {}}'), 4, "'children' of a node is an object, not a list", "Write a list"),
    (entry(TITLE + ',\n"children": [\n"pages"]}'), 5, "a node is text, not an object", "Write { … }"),
    (
        entry(TITLE + f',\n"children": [{{{CHILD}}}]}}'),
        4,
        "a node without a table is left out",
        'Add "table"',
    ),
    (entry(TITLE + ',\n"children": [{"table": "pages"}]}'), 4, "has no relationship", 'Add "relationship"'),
    (
        entry(
            TITLE
            + ',\n"children": [{"table": "p", "relationship": {"type": "one_to_mny", "variant": "object"}}]}'
        ),
        4,
        "unknown type 'one_to_mny'",
        "Did you mean 'one_to_many'?",
    ),
    (
        entry(TITLE + ',\n"children": [{"table": "p", "relationship": {"type": "one_to_one"}}]}'),
        4,
        "a relationship without a variant",
        "object, scalar",
    ),
    (
        entry(TITLE + f',\n"children": [{{"table": "p", {CHILD[:-1]}, "through_tables": ["a", "b"]}}}}]}}'),
        4,
        "PGSync goes through one table; b is left out",
        "nodes of their own",
    ),
    (
        entry(TITLE + f',\n"children": [{{"table": "p", {CHILD[:-1]}, {ONE_SIDED}}}}}]}}'),
        4,
        "names 1 column of the parent and 0 of the child",
        "Name as many of both",
    ),
    (entry(TITLE[:-1] + ",\n7]}"), 4, "an item of 'columns' of a node is a number, not text", "Write text"),
    (
        entry(TITLE + ',\n"transform": {"rename": {"title": 3}}}'),
        4,
        "'title' in 'rename' is a number",
        "Write text",
    ),
    (
        entry(TITLE + ',\n"transform": {"concat": {"columns": ["id"]}}}'),
        4,
        "a concat without columns",
        "Add both",
    ),
    (entry(TITLE + ',\n"transform": {"upper": {}}}'), 4, "unknown key 'upper' in a transform", "Known here"),
    (
        entry(TITLE + "}", '\n"routing": "isbn",'),
        2,
        "the routing 'isbn' is no column of books",
        "Write `routing:`",
    ),
    (entry(TITLE + "}").replace('"shop"', '"${SHOP}"'), 1, "a variable that is not set: ${SHOP}", "Set it"),
    (
        entry(TITLE + "}", '\n"setting": [],'),
        2,
        "'setting' of an index is a list, not an object",
        "Write an object",
    ),
    (entry(TITLE + "}")[:-1] + ',\n{"index": "pens"}]', 5, "the index has no nodes: it is left out", "Add"),
    (entry(TITLE + "}")[:-1] + ',\n{"nodes": {"table": "a"}}]', 5, "the index has no name", "Add"),
    (
        entry(TITLE + "}")[:-1] + f",{entry(TITLE + '}')[1:]}",
        4,
        "a second tree of documents",
        "an index of its own",
    ),
]


@pytest.mark.parametrize(("text", "line", "said", "remedy"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_has_its_line_and_the_rest_is_converted(
    tmp_path: Path, text: str, line: int, said: str, remedy: str
) -> None:
    conversion = converted(tmp_path, text)
    found = [note for note in conversion.notes if said in note.text]
    assert [(note.line, note.is_open) for note in found] == [(line, True)], conversion.notes
    assert remedy in found[0].remedy
    assert str(found[0]).startswith(f"{tmp_path / 'schema.json'}:{line}: ")
    assert [field.get("text") for field in schema(conversion)["fields"]][:2] == ["id", "title"]


def test_a_key_that_stands_twice_counts_as_json_counts_it(tmp_path: Path) -> None:
    conversion = converted(tmp_path, entry('{"table": "pens", "table": "books", "columns": ["id"]}'))
    assert schema(conversion)["table"] == "books"
    assert any("'table' stands twice" in note.text and note.line == 3 for note in conversion.notes)


def test_two_columns_under_one_key_are_one_field(tmp_path: Path) -> None:
    """In PGSync the later one overwrites the other in a JSON object; a child's label wins."""
    child = f'{{"table": "notes", "columns": ["id"], {CHILD}}}'
    renamed = '"transform": {"rename": {"title": "id"}}'
    node = f'{{"table": "books", "columns": ["id", "title", "notes"], {renamed}, "children": [{child}]}}'
    fields = schema(converted(tmp_path, entry(node)))["fields"]
    assert [next(iter(field.values())) for field in fields] == ["id", "notes"]
    assert fields[1]["has_many"] == "notes"


def test_without_the_database_every_guess_is_listed(tmp_path: Path) -> None:
    """The files load; what nobody knows stands in the notes, with what would tell it."""
    child = f'{{"table": "pages", "columns": ["no"],\n{CHILD}}}'
    conversion = converted(
        tmp_path, entry(f'{{"table": "books", "columns": ["Title"], "children": [\n{child}]}}')
    )
    found = schema(conversion)
    assert found["primary_key"] == "id"
    assert found["fields"][0] == {"text": "Title", "column": '"Title"'}
    assert found["fields"][1]["foreign_key"] == "books_id"
    said = " ".join(note.text for note in conversion.notes if note.is_open)
    assert "the primary key of books is unknown: id is guessed" in said
    assert "the types of the columns of books are unknown" in said
    assert "it is unknown how books and pages are joined: books_id = id is guessed" in said
    assert all("--env or --database" in note.remedy for note in conversion.notes)


def test_names_of_a_foreign_key_need_no_database(tmp_path: Path) -> None:
    keys = '"foreign_key": {"child": ["book_isbn"], "parent": ["isbn"]}'
    child = f'{{"table": "pages", "columns": ["no"], {CHILD[:-1]}, {keys}}}}}'
    found = schema(
        converted(tmp_path, entry(f'{{"table": "books", "columns": ["isbn"], "children": [{child}]}}'))
    )
    assert (found["fields"][1]["foreign_key"], found["fields"][1]["references"]) == ("book_isbn", "isbn")


def test_paths_into_columns_of_like_names_each_read_their_own(tmp_path: Path) -> None:
    columns = '["id", "a_of_b->x", "a->y", "a->z"]'
    conversion = converted(tmp_path, entry(f'{{"table": "books", "columns": {columns}}}'))
    helpers = {field["json"]: field["column"] for field in schema(conversion)["fields"] if "json" in field}
    extracted = re.findall(r"extract\(row, '(\w+)', .* '(\w+)'\)", conversion.files["books_transform.py"])
    assert [(helpers[helper], key) for helper, key in extracted] == [
        ("a_of_b", "a_of_b_x"),
        ("a", "a_y"),
        ("a", "a_z"),
    ]


@pytest.mark.parametrize("name", ["class", "rows", "rename", "books"])
def test_a_transform_runs_whatever_its_index_is_called(tmp_path: Path, name: str) -> None:
    node = '{"table": "books", "columns": ["title"], "transform": {"rename": {"title": "the title"}}}'
    conversion = converted(tmp_path, entry(node).replace('"books",', f'"{name}",', 1))
    module, _, function = tomllib.loads(conversion.files["headrace.toml"])["index"][0]["transform"].partition(
        ":"
    )
    names: dict[str, Any] = {}
    exec(conversion.files[f"{module}.py"], names)
    key = schema(conversion, name)["fields"][0]["text"]
    batch = pa.RecordBatch.from_pydict({"id": ["1"], "document": [json.dumps({key: "Emma"})]})
    assert names[function](batch)["document"].to_pylist() == ['{"the title":"Emma"}']


def test_the_mapping_tells_types_without_the_database(tmp_path: Path) -> None:
    mapping = {
        "id": {"type": "long"},
        "title": {"type": "keyword", "ignore_above": 9},
        "made": {"type": "date"},
    }
    node = {"table": "books", "columns": ["id", "title", "made"], "transform": {"mapping": mapping}}
    found = schema(converted(tmp_path, entry(json.dumps(node))))
    assert found["fields"] == [
        {"long": "id"},
        {"keyword": "title", "options": {"ignore_above": 9}},
        {"date": "made"},
    ]


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


def imported(name: str, text: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> ModuleType:
    """Import a module that was written, as a run does, and forget it."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    with monkeypatch.context() as context:
        context.syspath_prepend(str(folder))
        try:
            return importlib.import_module(name)
        finally:
            sys.modules.pop(name, None)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_never_becomes_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Everything that the file names is called so; the files load, and the module does what it should."""
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
    whole = {"database": name, "index": name, "nodes": node, "plugins": [name, name + " "], "pipeline": name}
    conversion = converted(tmp_path, json.dumps([whole, {**whole, "database": name + "?", "index": "b"}]))
    folder = tmp_path / "converted"
    save_files(folder, {folder / file: text.encode() for file, text in conversion.files.items()}, {})
    for config in conversion.deployments:
        [entry] = load_deployment(folder / config, {}).indexes
        assert load_schema(entry.schema_path, entry.name).table == TableName(name, name)
        module, _, function = str(entry.transform).partition(":")
        found = imported(module, conversion.files[f"{module}.py"], monkeypatch, tmp_path)
        keys = [next(iter(field.values())) for field in schema(conversion, entry.name)["fields"]]
        document = json.dumps({key: {name: name} for key in keys})
        batch = pa.RecordBatch.from_pydict({"id": ["1"], "document": [document]})
        [made] = getattr(found, function)(batch)["document"]
        assert {f"{name}2", f"{name}3"} <= json.loads(made.as_py()).keys()
        assert len([each for each in vars(found) if each.startswith("plugin_")]) == 2


def test_names_that_are_alike_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two indexes, two databases or two plugins whose names have the same letters were one."""
    node = {"table": "books", "columns": ["id"]}
    plugins = ["My.Plugin", "my_plugin", "ﬁ", "fi", "é", "ë", "My.Plugin"]
    given = [
        {"database": database, "index": index, "nodes": node, "plugins": plugins}
        for database, index in (
            ("a b", "my-books"),
            ("a/b", "my_books"),
            ("a_b", "plugin_fi"),
            ("c", "class"),
            ("c", "class_"),
        )
    ]
    conversion = converted(tmp_path, json.dumps(given))
    assert len(conversion.deployments) == len(set(conversion.deployments)) == 4
    entries = [
        entry
        for config in conversion.deployments
        for entry in tomllib.loads(conversion.files[config])["index"]
    ]
    assert len({entry["name"] for entry in entries}) == len({entry["transform"] for entry in entries}) == 5
    for entry in entries:
        module, _, function = entry["transform"].partition(":")
        found = imported(module, conversion.files[f"{module}.py"], monkeypatch, tmp_path)
        own = [each for each in vars(found) if each.startswith("plugin_") and each != function]
        assert len(own) == len(set(plugins))


def test_files_of_databases_whose_names_differ_in_case_alone_stay_apart(tmp_path: Path) -> None:
    """Some file systems hold them to be one file."""
    given = [
        {"database": database, "index": index, "nodes": {"table": "books", "columns": ["id"]}}
        for database, index in (("Shop", "one"), ("shop", "two"), ("SHOP_2", "three"))
    ]
    files = converted(tmp_path, json.dumps(given)).files
    assert len({file.lower() for file in files}) == len(files)
    assert len([file for file in files if file.endswith(".toml")]) == 3


def test_a_foreign_key_by_table_without_lists_is_told(tmp_path: Path) -> None:
    sides = '"foreign_key": {"parent": {"books": 7}, "child": {"pages": ["book_id"]}}'
    text = entry(TITLE + f',\n"children": [{{"table": "pages", {CHILD[:-1]}, {sides}}}}}]}}')
    said = "\n".join(str(note) for note in converted(tmp_path, text).notes)
    assert "'books' of 'parent' of a foreign_key is a number, not a list" in said


def test_settings_that_a_run_refuses_are_left_out_with_the_reason(tmp_path: Path) -> None:
    """Else a file would be written that no command loads."""
    setting = {"translog.durability": "async", "refresh_interval": "5s"}
    conversion = converted(tmp_path, entry(TITLE + "}", f'\n"setting": {json.dumps(setting)},'))
    assert "books.settings.json" not in conversion.files
    [note] = [str(note) for note in conversion.notes if note.is_open and "'setting'" in str(note)]
    assert "schema.json:2: 'setting' of books is left out: translog.durability must be request" in note


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", r'"\ud800"', r'["\udfff"]'])
def test_what_no_file_can_hold_is_told_with_its_place(tmp_path: Path, value: str) -> None:
    with pytest.raises(HeadraceError, match=r"schema\.json:3:\d+: not JSON: ") as raised:
        converted(tmp_path, f'[{{"index": "a",\n"setting":\n{{"a":   {value}}}}}]'.replace("{{", "{"))
    assert raised.value.exit_code == 2
