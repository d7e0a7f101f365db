"""Is every mistake of a mirror's options told at once, with table and column?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.catalog.fingerprint import ColumnPrint, TablePrint
from headrace.catalog.types import RowType
from headrace.config.mirror import MirroredTables
from headrace.config.secret import Secret
from headrace.errors import ErrorGroup, Kind
from headrace.mirror.masks import Masks
from headrace.mirror.table_checks import find_namesakes, find_problem, find_renamed, find_unknown_columns
from headrace.mirror.tables import MirroredTable
from headrace.model.names import TableName
from headrace.model.value_type import Attribute, DatabaseType, resolve

_TYPES = {
    oid: DatabaseType(oid, "pg_catalog", name, "base")
    for oid, name in {23: "int4", 25: "text", 701: "float8", 1082: "date", 1184: "timestamptz"}.items()
}


def table(
    masks: dict[str, Any], *partition_by: str, options: dict[str, Any] | None = None, **values: Any
) -> MirroredTable:
    """A table users (id, name, score, born, seen, _seen_day), whose key is id."""
    columns = {"id": 23, "name": 25, "score": 701, "born": 1082, "seen": 1184, "_seen_day": 25}
    attributes = tuple(Attribute(name, oid) for name, oid in columns.items())
    made = MirroredTable(
        relation=1,
        row_type=RowType(
            TableName("public", "users"), attributes, {one.name: resolve(one, _TYPES) for one in attributes}
        ),
        key=("id",),
        columns=tuple(columns),
        numbers={name: number for number, name in enumerate(columns, 1)},
        defaults={},
        masks=Masks(masks, Secret("salt")),
        part=MirroredTables(tables=("public.users",)).model_copy(
            update={"partition_by": partition_by, **(options or {})}
        ),
    )
    return replace(made, **values)


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (table({"id": "sha256", "score": "null"}, "day(seen)", columns=("id", "seen", "score")), []),
        (table({}, "id", "name", "month(born)", "hour(seen)", options={"soft_delete": True}), []),
        (table({}, "day(_commit_timestamp)", "_change_type", options={"mode": "changes"}), []),
        (
            table({"email": "redact", "id": "null"}, "x", "day(y)"),
            [
                'masks of [[mirror.tables]]: the table users has no mirrored column "email"',
                "masks: the column id of users belongs to the key",
                'partition_by of [[mirror.tables]]: the table users has no mirrored column "x"',
                'partition_by of [[mirror.tables]]: the table users has no mirrored column "y"',
            ],
        ),
        (
            table({"born": "redact"}, "born", "score", "hour(name)", "seen", "day(seen)"),
            [
                "column born of users is masked",
                "column score of users has a type that allows no partitions",
                "column name of users has a type that allows its name",
                "seen of users has a type that allows year, month",
                "users has a column _seen_day: the partitions need this name",
            ],
        ),
        (
            table({}, "_is_current", options={"mode": "history"}),
            ['users has no mirrored column "_is_current"'],
        ),
        (
            table({}, options={"on_value": {"id": "null", "score": "null"}}),
            ["column id of users belongs to the key, which cannot be NULL"],
        ),
        (table({}, options={"on_value": {"id": "null"}, "mode": "changes"}), []),
        (table({}, "id", columns=("id",)), ["all columns of users would be partitions"]),
        (
            table({}, options={"soft_delete": True}, key=(), has_full_identity=True),
            ["users has no key: soft_delete needs one"],
        ),
    ],
)
def test_every_mistake_is_told(given: MirroredTable, problems: list[str]) -> None:
    problem = find_problem(given)
    errors = problem.errors if isinstance(problem, ErrorGroup) else filter(None, [problem])
    found = [error.cause for error in errors]
    assert len(found) == len(problems), found
    assert all(problem in cause for problem, cause in zip(problems, found, strict=True)), found


def renamed(made: MirroredTable, name: str) -> MirroredTable:
    """A table whose second column, name, is called otherwise; mirrored unless the file leaves it out."""
    attributes = tuple(
        replace(one, name=name) if one.name == "name" else one for one in made.row_type.attributes
    )
    names = tuple(one.name for one in attributes)
    return replace(
        made,
        row_type=RowType(made.name, attributes, {one.name: resolve(one, _TYPES) for one in attributes}),
        numbers={one: number for number, one in enumerate(names, 1)},
        columns=tuple(one for one in names if not made.part.leaves_out(one)),
    )


def noted(table: MirroredTable) -> TablePrint:
    """The table's columns as the lake's notes have them."""
    columns = {name: ColumnPrint(number, 25, -1, "", "", 1) for name, number in table.numbers.items()}
    return TablePrint(1, columns, {})


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (table({"name": "redact"}), "Write other in place of name into masks"),
        (
            table({}, options={"columns": ("id", "name")}, columns=("id", "name")),
            "Write other in place of name into columns",
        ),
        (
            table(
                {},
                options={"exclude_columns": ("name",)},
                columns=("id", "score", "born", "seen", "_seen_day"),
            ),
            "Write other in place of name into exclude_columns",
        ),
    ],
)
def test_a_column_that_the_file_names_may_not_be_renamed(before: MirroredTable, told: str) -> None:
    assert find_renamed(before, noted(before)) is None
    error = find_renamed(renamed(before, "other"), noted(before))
    assert error is not None
    assert (error.kind, told in error.remedy) == (Kind.BINDING, True)
    assert "column name of users, which the file names, is called other now" in error.cause


def test_a_column_that_the_file_does_not_name_may_be_renamed_and_added() -> None:
    before = table(
        {"score": "null"},
        options={"exclude_columns": ("born",)},
        columns=("id", "name", "score", "seen", "_seen_day"),
    )
    assert find_renamed(renamed(before, "other"), noted(before)) is None
    masked = replace(before, masks=Masks({"name": "redact"}, Secret("salt")))
    other = renamed(masked, "other")
    remasked = replace(other, masks=Masks({"other": "redact"}, Secret("salt")))
    dropped = replace(other, numbers={**other.numbers, "other": 7})
    assert find_renamed(remasked, noted(masked)) is None
    assert find_renamed(dropped, noted(masked)) is None


def test_tables_whose_folders_differ_in_case_alone_are_told() -> None:
    """The one that the lake has keeps its folder; bytes of other letters do not differ so."""
    names = [
        TableName(*text.split(".")) for text in ("a.t", "A.t", "a.T", "a.u", "b.t", "a.\u00e4", "a.\u00c4")
    ]
    lower, schema, upper, *_ = names
    assert [*find_namesakes(names, [])] == [upper, lower]
    found = find_namesakes(names, [lower])
    assert [*found] == [schema, upper]
    assert 'tables "A".t and a.t differ in case alone' in found[schema].cause
    assert find_namesakes(names[3:], []) == {}


@pytest.mark.parametrize("option", ["columns", "exclude_columns"])
def test_a_column_that_no_table_of_a_part_has_is_found_with_the_parts_tables(option: str) -> None:
    users, other = TableName("public", "users"), TableName("public", "other")
    tables = {users: table({}, options={option: ("id", "email")}), other: table({})}
    [(error, part)] = find_unknown_columns(tables)
    assert 'has a column "email"' in error.cause
    assert part == [tables[users].name]
    assert [*find_unknown_columns({other: table({})})] == []


@pytest.mark.parametrize("without_key", [False, True])
def test_a_default_that_does_not_fit_is_null_where_the_file_says_so(without_key: bool) -> None:
    columns = ("born",) if without_key else ("id", "born")
    given = table({}, columns=columns, defaults={"born": "infinity"}, options={"on_value": {"born": "null"}})
    born = given.row_type.columns["born"]
    read = RowType(given.name, given.row_type.attributes, {**given.row_type.columns, "born": born.as_text})
    assert replace(given, row_type=read, lake_types={"born": born}).default("born").as_py() is None


@pytest.mark.parametrize(("key", "offers_null"), [(("id",), True), (("id", "born"), False)])
def test_a_value_that_does_not_fit_may_be_null_only_outside_of_the_key(
    key: tuple[str, ...], offers_null: bool
) -> None:
    texts = pa.RecordBatch.from_pydict({"id": ["1"], "born": ["900000-01-01"]})
    error = table({}, key=key, columns=("id", "born")).explain_unfit(texts)
    assert error is not None
    assert ('on_value = { born = "null" }' in error.remedy) == offers_null
    assert 'types = { born = "text" }' in error.remedy
