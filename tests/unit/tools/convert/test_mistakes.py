"""A wrong schema.json: every mistake is told with its line and a remedy, and nothing is converted."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.model.names import TableName
from headrace.tools.convert.pgsync_file import PgsyncIndex, read_pgsync

TITLE = '{"table": "books", "columns": ["id", "title"]'
NOT_LISTS = '"foreign_key": {"parent": {"b": 7}, "child": 8}'
ONE_SIDED = '"foreign_key": {"parent": ["a", "b"], "child": ["c"]}'
CHILD = '"relationship": {"type": "one_to_many", "variant": "object"}'


def read(tmp_path: Path, text: str, **variables: str) -> list[PgsyncIndex]:
    file = tmp_path / "schema.json"
    file.write_text(text, encoding="utf-8")
    return read_pgsync(file, variables)[0]


def entry(node: str, more: str = "") -> str:
    """A file whose node begins in line 3."""
    return f'[{{"database": "shop", "index": "books",{more}\n"nodes":\n{node}\n}}]'


def child(rest: str) -> str:
    """A node whose only child is in line 4."""
    return f'{TITLE},\n"children": [{rest}]}}'


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ('[{"index": "a",\n"nodes": }]', "2:10", "not JSON: Expecting value"),
        ("", "1:1", "not JSON"),
        ('"books"', "1", "holds no index"),
        ("[]", "1", "holds no index"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, place: str, said: str) -> None:
    with pytest.raises(HeadraceError) as raised:
        read(tmp_path, text)
    assert f"schema.json:{place}: " in str(raised.value)
    assert said in str(raised.value)
    assert raised.value.remedy
    assert raised.value.exit_code == 2


def test_a_file_without_end_of_depth(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="nested too deeply"):
        read(tmp_path, "[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[\n{"index": "books"}]', 2, "'[1].nodes' is missing. Add \"nodes\"."),
        ("[\n7]", 2, "'[1]': must be a valid dictionary"),
        (entry(TITLE + ',\n"colums": []}'), 4, "unknown key '[1].nodes.colums'. Did you mean 'columns'?"),
        (entry(TITLE + "}", '\n"plugin": ["A"],'), 2, "unknown key '[1].plugin'. Did you mean 'plugins'?"),
        (entry(TITLE + "}").replace("nodes", "node"), 3, "unknown key '[1].node'. Did you mean 'nodes'?"),
        (entry(f"[{TITLE}}}]"), 3, "'[1].nodes': must be a valid dictionary"),
        (entry(TITLE + ',\n"children": {}}'), 4, "'[1].nodes.children': must be a valid list"),
        (entry(child('\n"pages"')), 5, "'[1].nodes.children[1]': must be a valid dictionary"),
        (entry(child(f"{{{CHILD}}}")), 4, "children[1].table' is missing. Add \"table\"."),
        (entry(child('{"table": "pages"}')), 4, "relationship' is missing. Add \"relationship\"."),
        (
            entry(child('{"table": "p",\n"relationship": {"type": "one_to_mny", "variant": "object"}}')),
            5,
            "relationship.type' must be 'one_to_one' or 'one_to_many'",
        ),
        (
            entry(child('{"table": "p",\n"relationship": {"type": "one_to_one"}}')),
            5,
            "relationship.variant' is missing",
        ),
        (
            entry(child(f'{{"table": "p", {CHILD[:-1]},\n"through_tables": ["a", "b"]}}}}')),
            5,
            "through_tables': list should have at most 1 item",
        ),
        (
            entry(child(f'{{"table": "p", {CHILD[:-1]},\n{ONE_SIDED}}}}}')),
            5,
            "foreign_key': it names 2 columns of the parent and 1 of the child",
        ),
        (
            entry(child(f'{{"table": "p", {CHILD[:-1]},\n{NOT_LISTS}}}}}')),
            5,
            "foreign_key.parent': must be a valid list",
        ),
        (entry(TITLE[:-1] + ",\n7]}"), 4, "columns[3]': must be a valid string"),
        (entry(TITLE + ',\n"transform": {"rename": {"a": 3}}}'), 4, "rename.a': must be a valid string"),
        (entry(TITLE + ',\n"transform": {"concat": {"columns": ["id"]}}}'), 4, "destination' is missing"),
        (entry(TITLE + ',\n"transform": {"upper": {}}}'), 4, "transform.upper'. Known here: concat, mapping"),
        (entry(TITLE + "}").replace('"shop"', '"${SHOP}"'), 1, "a variable that is not set: ${SHOP}"),
        (entry(TITLE + "}", '\n"setting": [],'), 2, "'[1].setting': must be a valid dictionary"),
        (entry(TITLE + "}")[:-1] + ',\n{"nodes": {"table": "a"}}]', 5, "'[2]': it has no name: add"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(HeadraceError) as raised:
        read(tmp_path, text)
    told = str(raised.value).splitlines()
    assert any(
        f"{tmp_path / 'schema.json'}:{line}: " in sentence and said in sentence for sentence in told
    ), told
    assert raised.value.exit_code == 2


def test_every_mistake_is_told_in_the_order_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError) as raised:
        read(tmp_path, '[{"index": "a",\n"nodes": {"table": 7,\n"colums": []}},\n{"index": "b"}]')
    assert [line.split("schema.json:")[1][0] for line in str(raised.value).splitlines()] == ["2", "3", "4"]


def test_what_pgsync_takes_in_several_forms(tmp_path: Path) -> None:
    """One index without a list, names of columns as a text or by table, null for what is absent."""
    keys = '"foreign_key": {"parent": {"books": ["isbn"]}, "child": "book_isbn"}'
    text = entry(
        child(f'{{"table": "pages", "schema": null, {CHILD[:-1]}, {keys}, "through_tables": null}}}}')
    )
    [index] = read(tmp_path, text[1:-1])
    [pages] = index.nodes.children
    assert (pages.name, pages.through) == (TableName("public", "pages"), None)
    assert pages.relationship.foreign_key is not None
    assert pages.relationship.foreign_key.parent == ["isbn"]
    assert pages.relationship.foreign_key.child == ["book_isbn"]


def test_variables_stand_in_the_texts_at_the_top(tmp_path: Path) -> None:
    [index] = read(tmp_path, entry(TITLE + "}").replace('"books",', '"${STAGE}_books",', 1), STAGE="test")
    assert index.name == "test_books"


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", r'"\ud800"', r'["\udfff"]'])
def test_what_no_file_can_hold_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(HeadraceError, match=r"schema\.json: not JSON: ") as raised:
        read(tmp_path, f'[{{"index": "a",\n"setting":\n{{"a":\n{value}}}}}]')
    assert raised.value.exit_code == 2
