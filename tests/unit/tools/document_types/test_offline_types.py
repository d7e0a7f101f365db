"""What the files alone say of documents, as Python and as TypeScript."""

from __future__ import annotations

import re
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mypy import api

from headrace.pipeline.project import open_project
from headrace.tools.document_types import python
from headrace.tools.document_types.generate import Language, generate_types
from headrace.tools.document_types.json_type import STRING, JsonObject, JsonProperty, TypeNames
from support.means import TSC, needs

Generate = Callable[[str, Language], str]

DEPLOYMENT = """
[source]
type = "postgres"
connection_url = "postgresql://127.0.0.1:9/nowhere"
[sinks.primary]
type = "opensearch"
url = "http://127.0.0.1:9"
[[index]]
name = "things"
schema = "things.schema.yml"
"""
HEAD = "version: 1\ntable: things\nprimary_key: id\n"
OF_PARTS = "table: parts, primary_key: id, foreign_key: thing_id"
AWKWARD = (
    HEAD
    + r"""
description: 'Ends with a "quote"'
fields:
  - {long: id, required: true, description: "back\\slash, \"\"\"three\"\"\" and */ the end"}
  - {keyword: class, required: true, description: a word of Python}
  - {keyword: __hidden}
  - {text: str, required: true}
  - {enum: kind, variants: ['it''s "so"', 'back\slash', 'ünï'], required: true}
  - {map: str_map, values: text, required: true}
  - object: empty
    fields: []
  - object: filter
    description: named like what queries filter on
    fields: [{text: from}, {date: Any, required: true}]
  - object: document
    fields: [{enum: kind, variants: [a, b], default: c}]
"""
)
"""Keys, texts and names that are something else in a language."""


@pytest.fixture
def generate(tmp_path: Path) -> Generate:
    (tmp_path / "headrace.toml").write_text(DEPLOYMENT)

    def render(schema: str, language: Language) -> str:
        (tmp_path / "things.schema.yml").write_text(schema)
        project = open_project(tmp_path / "headrace.toml", {})
        return generate_types(project, language, [], offline=True)

    return render


@pytest.mark.parametrize(
    ("field", "python", "typescript"),
    [
        ("long: a, required: true", "int", "number"),
        ("long: a", "int | None", "number | null"),
        ("long: a, default: 0", "int", "number"),
        ("decimal: a, default: none", "float | str", "number | string"),
        ("boolean: a, required: true", "bool", "boolean"),
        ("timestamp: a", "str | None", "string | null"),
        ("json: a", "Any", "unknown"),
        ("map: a, values: long, required: true", "dict[str, int]", "Record<string, number>"),
        ("map: a, dynamic: true", "dict[str, Any] | None", "Record<string, unknown> | null"),
        ("enum: a, variants: [x], default: y", "ThingsA", "ThingsA"),
        ("geo: a, lat: y, lon: x", "GeoPoint | None", "GeoPoint | null"),
        ("constant: a, value: x", 'Literal["x"]', '"x"'),
        ("constant: a, value: true", "Literal[True]", "true"),
        ("constant: a, value: 1.5", "float", "number"),
        ("constant: a", "None", "null"),
        (
            "custom: a, required: true, postgres: ['int[]'], opensearch: long",
            "list[int | None]",
            "Array<number | null>",
        ),
        ("custom: a, postgres: [ltree], opensearch: keyword", "Any", "unknown"),
        (f"count: a, {OF_PARTS}", "int", "number"),
        (f"avg: a, column: n, {OF_PARTS}", "float | None", "number | null"),
        (f"max: a, column: n, value_type: date, {OF_PARTS}", "str | None", "string | null"),
        (f"ids: a, element_type: long, {OF_PARTS}", "list[int]", "Array<number>"),
        (f"has_many: a, {OF_PARTS}, fields: []", "list[ThingsA]", "Array<ThingsA>"),
        (f"has_one: a, {OF_PARTS}, fields: []", "ThingsA | None", "ThingsA | null"),
        (
            f"has_many: a, {OF_PARTS}, scalar: true, fields: [{{long: b, required: true}}]",
            "list[int]",
            "Array<number>",
        ),
        (f"has_one: a, {OF_PARTS}, scalar: true, fields: [{{text: b}}]", "str | None", "string | null"),
        (
            "belongs_to: a, column: b, table: t, primary_key: id, required: true, fields: []",
            "ThingsA",
            "ThingsA",
        ),
    ],
)
def test_each_kind_of_field_has_its_type(
    generate: Generate, field: str, python: str, typescript: str
) -> None:
    schema = f"{HEAD}fields:\n  - {{{field}}}\n"
    document = generate(schema, "python").partition("class ThingsDocument")[2]
    assert re.findall(r"(?m)^    a: (.*)$", document)[:1] == [python]
    document = generate(schema, "typescript").partition("interface ThingsDocument")[2]
    assert re.findall(r"(?m)^  a: (.*);$", document)[:1] == [typescript]


def test_what_can_be_filtered_on_are_the_paths_of_the_mapping_with_subfields(generate: Generate) -> None:
    """Without what is not indexed, and without keys that are data."""
    inner = "[{enum: kind, variants: [a]}, {short: rank}]"
    schema = (
        f"{HEAD}fields:\n  - {{text: name}}\n  - {{json: open}}\n  - {{binary: photo}}\n"
        "  - {keyword: shown, options: {index: false, fields: {}}}\n"
        f"  - {{has_many: parts, {OF_PARTS}, fields: {inner}}}\n"
        f"  - {{has_many: kept, {OF_PARTS}, fields: {inner}, options: {{enabled: false}}}}\n"
    )
    filters = generate(schema, "python").partition("ThingsFilter = ")[2]
    assert re.findall(r'(?m)^ {8}"([\w.]+)": (\w+),  # (.*)$', filters) == [
        ("name", "str", "text"),
        ("name.keyword", "str", "keyword"),
        ("name.keyword_lowercase", "str", "keyword"),
        ("parts.kind", "str", "keyword, nested in parts"),
        ("parts.kind.text", "str", "text, nested in parts"),
        ("parts.kind.keyword_lowercase", "str", "keyword, nested in parts"),
        ("parts.kind.sort", "str", "keyword, nested in parts"),
        ("parts.rank", "int", "short, nested in parts"),
    ]
    assert '"parts.kind.sort"?: string;' in generate(schema, "typescript")


def test_the_python_of_awkward_names_and_texts_is_what_mypy_accepts_and_python_runs(
    generate: Generate, tmp_path: Path
) -> None:
    text = generate(AWKWARD, "python")
    assert text == generate(AWKWARD, "python")
    module = tmp_path / "awkward.py"
    module.write_text(
        text + '\nfound: ThingsDocument = {"id": 1}\n'  # lacks keys
        'name: str = found["class"]\nquery: ThingsFilter = {"id": 1, "filter.from": "x"}\n'
        'found["kind"] = "other"\nquery["id"] = "x"\nfound["unknown"]\n'
    )
    out, _, _ = api.run(
        ["--config-file=", "--strict", "--no-incremental", "--cache-dir", str(tmp_path), str(module)]
    )
    lines = len(text.splitlines())
    assert re.findall(r"py:(\d+): error: .*\[(.+)\]", out) == [
        (str(lines + line), code)
        for line, code in [
            (2, "typeddict-item"),
            (5, "typeddict-item"),
            (6, "typeddict-item"),
            (7, "typeddict-item"),
        ]
    ], out
    names: dict[str, object] = {}
    exec(text, names)
    assert 'Ends with a "quote"' in text


@needs(TSC)
def test_the_typescript_of_awkward_names_and_texts_is_what_tsc_accepts(
    generate: Generate, tmp_path: Path
) -> None:
    assert TSC.path is not None
    module = tmp_path / "awkward.ts"
    module.write_text(
        generate(AWKWARD, "typescript")
        + 'export const kind: ThingsKind = "ünï";\nexport const missing: ThingsDocument = {id: 1};\n'
    )
    done = subprocess.run(
        [TSC.path, "--strict", "--noEmit", "--target", "es2022", str(module)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert re.findall(r"error (TS\d+)", done.stdout) == ["TS2740"], done.stdout


KEYS = [
    "ﬁ",
    "fi",
    "µ",
    "μ",
    "\u017f",
    "s",
    "ŉ",
    "²",
    "class",
    "int",
    "__x",
    'a"b',
    "\\",
    "a\nb",
    "é\u2028",
    "Any",
]


def test_keys_are_what_they_are_in_the_database_letter_by_letter() -> None:
    """Python folds compatibility characters in its own names: the types named keys that no document has."""
    names = TypeNames()
    rows = [JsonObject(names.name("things", key), (JsonProperty(key, STRING, key),), key) for key in KEYS]
    assert len({unicodedata.normalize("NFKC", row.name) for row in rows}) == len(KEYS)
    module: dict[str, Any] = {}
    exec(python.render_module(f"Head with {KEYS}", rows), module)
    assert [list(module[row.name].__annotations__) for row in rows] == [[key] for key in KEYS]


@pytest.mark.parametrize("end", ["\\r", "\\n", "\\x0c", "\\u2028", "\\x85", '\\"\\"\\"'])
def test_a_description_never_becomes_code(generate: Generate, end: str) -> None:
    """Python ends a line at a carriage return, also in a comment."""
    code = f"x{end}        **__import__('sys').exit('run'),"
    for key in ("class", "plain"):
        schema = f'{HEAD}fields:\n  - {{text: {key}, description: "{code}"}}\n'
        exec(generate(schema, "python"), {})
        assert "\r" not in generate(schema, "typescript")
