"""Does a lake's table get the columns that the database's has, with the values that are known?"""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.mirror.alterations import altered_rows, plan_alteration
from headrace.mirror.columns import NULLED, fitted
from headrace.mirror.modes import MODES


def schema(*columns: tuple[int, str, str, pa.DataType], key: str = "id") -> pa.Schema:
    fields = [("1", key, "int4", pa.int32()), *((str(number), *rest) for number, *rest in columns)]
    return pa.schema(
        [
            pa.field(
                name,
                kind,
                metadata={
                    "headrace.column": number,
                    "headrace.type": type_,
                    **({"headrace.key": "0"} if name == key else {}),
                },
            )
            for number, name, type_, kind in fields
        ]
    )


TEXT = ("text", pa.string())
OLD = schema((2, "a", *TEXT), (3, "b", *TEXT))


@pytest.mark.parametrize(
    ("new", "needs_load"),
    [
        (schema((2, "a", *TEXT), (3, "c", *TEXT)), False),
        (schema((2, "a", *TEXT)), False),
        (schema((2, "a", *TEXT), (3, "b", *TEXT), (4, "c", "int4", pa.int32())), False),
        (schema((2, "a", *TEXT), (4, "c", *TEXT)), False),
        (schema((2, "a", "varchar(10)", pa.string()), (3, "b", *TEXT)), False),
        (schema((2, "a", "int4", pa.int32()), (3, "b", *TEXT)), True),
        (schema((2, "a", "inet", pa.string()), (3, "b", *TEXT)), True),
        (schema((2, "a", *TEXT), (3, "b", *TEXT), key="number"), False),
    ],
)
def test_a_table_is_read_anew_only_where_names_or_values_do_not_tell(
    new: pa.Schema, needs_load: bool
) -> None:
    planned = plan_alteration(OLD, new, keeps=False, highest=3)
    assert planned.needs_load == needs_load


@pytest.mark.parametrize("mode", ["current", "history", "changes"])
@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ((10, 2), (12, 2), True),
        ((10, 2), (12, 4), True),
        ((10, 2), None, True),
        ((10, 2), (10, 1), False),
        ((10, 2), (12, 1), False),
        ((10, 2), (10, 4), False),
        ((10, 2), (9, 2), False),
    ],
)
@pytest.mark.parametrize("nulled", [False, True])
def test_numbers_with_fewer_digits_are_read_and_old_ones_stay_in_a_column_of_their_own(
    old: tuple[int, int], new: tuple[int, int] | None, fits: bool, nulled: bool, mode: str
) -> None:
    """A value that was NULL because it did not fit may fit by now."""
    before, after = (
        with_nulled(schema((2, "a", *numeric(digits)), (3, "b", *TEXT)), nulled=nulled)
        for digits in (old, new)
    )
    rules = MODES[mode]
    before, after = (pa.schema([*one, *rules.fields]) for one in (before, after))
    planned = plan_alteration(before, after, keeps=rules.keeps, highest=3)
    assert planned.needs_load == (nulled or not fits)
    row = pa.RecordBatch.from_pydict(
        {"id": [1], "a": ["12345678.25"]}, pa.schema([("id", pa.int32()), ("a", pa.string())])
    )
    [found] = altered_rows([fitted(row, before)], planned, lambda _: pa.scalar(None), rules)
    values = {name: str(value) for name, value in found.to_pylist()[0].items() if name.startswith("a")}
    if fits:
        assert values["a"].rstrip("0") == "12345678.25"
    else:
        assert values == {"a": "None"} | ({"a_2": "12345678.25"} if rules.keeps else {})


def numeric(digits: tuple[int, int] | None) -> tuple[str, pa.DataType]:
    return ("numeric", pa.string()) if digits is None else (f"numeric{digits}", pa.decimal128(*digits))


def with_nulled(given: pa.Schema, *, nulled: bool) -> pa.Schema:
    field = given.field("a")
    marked = field.with_metadata(field.metadata | ({NULLED: b"true"} if nulled else {}))
    return given.set(given.get_field_index("a"), marked)


def test_a_key_of_other_columns_needs_a_load() -> None:
    other = pa.schema(
        [
            OLD.field("id").with_metadata({"headrace.column": "1", "headrace.type": "int4"}),
            OLD.field("a").with_metadata(OLD.field("a").metadata | {b"headrace.key": b"0"}),
            OLD.field("b"),
        ]
    )
    assert plan_alteration(OLD, other, keeps=False, highest=3).needs_load


def test_changes_name_what_they_left_out_by_its_new_name() -> None:
    mode = MODES["changes"]
    old, new = (pa.schema([*part, *mode.fields]) for part in (OLD, schema((2, "a", *TEXT), (3, "c", *TEXT))))
    row = {"id": 1, "a": "x", "_change_type": "update_postimage", "_unchanged": ["b"]}
    batch = pa.RecordBatch.from_pylist([row, {"id": 2, "b": "kept"}], old)
    planned = plan_alteration(old, new, keeps=True, highest=3)
    [found] = altered_rows([batch], planned, lambda _: pa.scalar(None), mode)
    assert found.select(["id", "c", "_unchanged"]).to_pylist() == [
        {"id": 1, "c": None, "_unchanged": ["c"]},
        {"id": 2, "c": "kept", "_unchanged": None},
    ]


def test_a_dropped_column_stays_where_history_is_kept_and_gives_its_name_to_a_new_one() -> None:
    mode = MODES["history"]
    old = pa.schema([*OLD, *mode.fields])
    without_b = pa.schema([*schema((2, "a", *TEXT)), *mode.fields])
    dropped = plan_alteration(old, without_b, keeps=True, highest=3)
    assert dropped.schema.names == [*without_b.names, "b"]
    again = pa.schema([*schema((2, "a", *TEXT), (4, "b", "int4", pa.int32())), *mode.fields])
    added = plan_alteration(dropped.schema, again, keeps=True, highest=3)
    assert added.schema.names == [*again.names, "b_3"]
    batch = pa.RecordBatch.from_pylist([{"id": 1, "b": "old", "_is_current": True}], dropped.schema)
    [found] = altered_rows([batch], added, lambda _: pa.scalar(7, pa.int32()), mode)
    assert found.select(["b", "b_3"]).to_pylist() == [{"b": 7, "b_3": "old"}]
