"""Generate the page of field types: the keys of each from the JSON Schema, an example and its document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from builder.markdown import cell, table
from headrace.schema.json_schema import schema_of_files
from headrace.schema.language import AGGREGATES, JOINS, SCALARS, TAGS

Json = dict[str, Any]

_FILE = yaml.safe_load((Path(__file__).parent / "fields.yml").read_text())
ROWS: str = _FILE["rows"]
"""The statements that make the tables and rows of all examples."""
EXAMPLES: dict[str, dict[str, str]] = _FILE["examples"]
"""Of each type the `fields` of a schema file, and the `document` of user 1."""

HEAD = """\
# Field types

**For authors of schema files**: every type of the [schema language](schema.md), with its keys, an example,
and the document that PostgreSQL makes of it. A test makes each of them. All examples are of user 1 in these
tables:
"""
_GROUPS = {
    "Values of a column": tuple(SCALARS),
    "Other values": ("custom", "geo", "map", "object", "constant"),
    "Related rows": JOINS,
    "Aggregates": AGGREGATES,
}


def schema_file(example: dict[str, str]) -> str:
    """Return the schema file of an example."""
    return f"version: 1\ntable: users\nprimary_key: id\nfields:\n{_indented(example['fields'])}"


def page() -> str:
    """Return the page's text."""
    assert {tag for tags in _GROUPS.values() for tag in tags} == set(TAGS)
    parts = [HEAD, f"```sql\n{ROWS}```\n"]
    for title, tags in _GROUPS.items():
        parts.append(f"## {title}\n")
        keys = {tag: _keys(tag) for tag in tags}
        common = [row for row in keys[tags[0]] if all(row in rows for rows in keys.values())]
        if common:
            parts.append(f"Each has these keys:\n\n{table(_HEAD, common)}")
        parts += [_section(tag, [row for row in keys[tag] if row not in common]) for tag in tags]
    return "\n".join(parts)


_HEAD = ("key", "required", "meaning")


def _section(tag: str, own: list[tuple[str, str, str]]) -> str:
    example = EXAMPLES[tag]
    parts = [
        f"### `{tag}`\n\n{_description(_definition(tag)['properties'][tag])}\n",
        f"```yaml\n{example['fields']}```\n",
        f"```json\n{example['document'].strip()}\n```\n",
    ]
    return "\n".join([*parts, table(_HEAD, own)] if own else parts)


def _definition(tag: str) -> Json:
    definition: Json = schema_of_files()["$defs"][f"field_{tag}"]
    return definition


def _keys(tag: str) -> list[tuple[str, str, str]]:
    """Return of each key beside the type: its name, whether it is required, and its meaning."""
    definition = _definition(tag)
    return [
        (f"`{key}`", _needed(key, definition), cell(_description(value)))
        for key, value in definition["properties"].items()
        if key != tag
    ]


def _needed(key: str, definition: Json) -> str:
    choices: list[Json] = [*definition.get("oneOf", ()), *definition.get("anyOf", ())]
    if key in definition.get("required", ()):
        return "yes"
    is_choice = all("required" in choice for choice in choices)
    return "one of" if is_choice and any(key in choice["required"] for choice in choices) else ""


def _description(value: Json) -> str:
    return str(value.get("description", ""))


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())
