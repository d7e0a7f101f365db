"""Edits of a schema file leave everything else as it was written."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.schema.editing import add_item, remove_field, remove_item, set_word
from headrace.schema.load import parse_schema
from headrace.schema.tree import IndexSpec, JoinField
from headrace.schema.yaml_nodes import source_of

TEXT = """\
# The head of the file.
version: 1
table:   users   # not people
primary_key: 'id'

filters:
  - { column: kind, op: neq, value: robot }   # no robots
fields:
  # an address, not a name
  - keyword: email
    transforms: [ trim,   lowercase ]

  # what they ordered
  - has_many: orders   # newest first
    table: orders
    primary_key: id
    foreign_key: user_id
    fields:
      - long: id
      # a comment at the end of the inner list

  - {boolean: active, required: true}
  # the last words
"""


def parsed(text: str) -> IndexSpec:
    return parse_schema(source_of(Path("users.schema.yml"), text), text, "users")


def differing(before: str, after: str) -> list[str]:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


def test_a_field_is_added_behind_the_last_one() -> None:
    text = add_item(TEXT, (), "fields", ["- text: name", "  required: true"])
    assert differing(TEXT, text) == ["+   - text: name", "+     required: true"]
    assert [field.key for field in parsed(text).fields] == ["email", "orders", "active", "name"]


def test_a_field_of_a_join_is_added_inside_it() -> None:
    text = add_item(TEXT, ["orders"], "fields", ["- decimal: total"])
    assert differing(TEXT, text) == ["+       - decimal: total"]
    [_, join, _] = parsed(text).fields
    assert isinstance(join, JoinField)
    assert [field.key for field in join.fields] == ["id", "total"]


def test_a_removed_field_leaves_the_comments_around_it() -> None:
    assert differing(TEXT, remove_field(TEXT, ["email"])) == [
        "-   - keyword: email",
        "-     transforms: [ trim,   lowercase ]",
    ]
    without = remove_field(TEXT, ["orders"])
    assert "# what they ordered" in without
    assert "# a comment at the end of the inner list" in without
    assert [field.key for field in parsed(without).fields] == ["email", "active"]


def test_the_last_field_leaves_an_empty_list_which_takes_fields_again() -> None:
    empty = remove_field(TEXT, ["orders", "id"])
    assert "    fields: []\n" in empty
    assert "# a comment at the end of the inner list" in empty
    again = add_item(empty, ["orders"], "fields", ["- long: id"])
    assert parsed(again) == parsed(TEXT)


def test_words_are_set_replaced_and_removed() -> None:
    limited = set_word(TEXT, ["orders"], "limit", "10")
    assert differing(TEXT, limited) == ["+     limit: 10"]
    assert differing(limited, set_word(limited, ["orders"], "limit", "5")) == [
        "-     limit: 10",
        "+     limit: 5",
    ]
    assert set_word(limited, ["orders"], "limit", None) == TEXT
    assert "- {boolean: active, required: false}" in set_word(TEXT, ["active"], "required", "false")
    assert "table:   people   # not people" in set_word(TEXT, (), "table", "people")


def test_filters_come_and_go() -> None:
    more = add_item(TEXT, (), "filters", ["- {column: age, op: gte, value: 18}"])
    assert differing(TEXT, more) == ["+   - {column: age, op: gte, value: 18}"]
    assert remove_item(more, (), "filters", 1) == TEXT
    none = remove_item(TEXT, (), "filters", 0)
    assert differing(TEXT, none) == [
        "- filters:",
        "-   - { column: kind, op: neq, value: robot }   # no robots",
    ]
    first = add_item(TEXT, ["orders"], "filters", ["- {column: total, op: gt, value: 0}"])
    assert parsed(first).fields[1] != parsed(TEXT).fields[1]
    assert remove_item(first, ["orders"], "filters", 0) == TEXT


def test_what_is_written_on_one_line_is_left_to_its_author() -> None:
    text = TEXT.replace("fields:\n      - long: id\n", "fields: [{long: id}, {decimal: total}]\n")
    edits: tuple[Callable[[], str], ...] = (
        lambda: remove_field(text, ["orders", "id"]),
        lambda: add_item(text, ["orders"], "fields", ["- text: more"]),
        lambda: set_word(text, ["orders", "id"], "required", "true"),
        lambda: set_word(text, ["active"], "required", None),
    )
    for edit in edits:
        with pytest.raises(HeadraceError, match="written on one line"):
            edit()


def test_a_file_without_an_end_of_line_and_a_text_over_several_lines() -> None:
    text = "version: 1\ntable: users\ndescription: |\n  One\n\n  two\n\nfields:\n- long: id"
    added = add_item(text, (), "fields", ["- text: name"])
    assert added == text + "\n- text: name\n"
    changed = set_word(text, (), "description", "One line")
    assert changed == text.replace("|\n  One\n\n  two\n", "One line\n")
    assert remove_field(added, ["name"]) == text + "\n"


def test_aliases_are_left_to_their_author() -> None:
    text = "version: 1\ntable: users\nfields:\n  - &id {long: id}\n  - *id\n"
    with pytest.raises(HeadraceError, match="used again by an alias"):
        remove_field(text, ["id"])


@pytest.mark.parametrize("item", ["keyword", "[a]", "? [a]\n    : b", "~"])
def test_an_item_that_is_no_field_is_left_to_its_author(item: str) -> None:
    """The file is wrong, and every check says where; until then the other fields can be edited."""
    text = f"version: 1\ntable: users\nfields:\n  - {item}\n  - text: b\n  - long: c\n"
    assert remove_field(text, ["b"]) == text.replace("  - text: b\n", "")
    assert set_word(text, ["c"], "limit", "1") == f"{text}    limit: 1\n"


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(HeadraceError, match=r"no field orders\.gone"):
        remove_field(TEXT, ["orders", "gone"])
    with pytest.raises(HeadraceError, match="no field gone"):
        set_word(TEXT, ["gone"], "limit", "1")
