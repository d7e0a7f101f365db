"""Does each thing that may be true of a table lead to one action, and the more pressing one first?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
import pytest

from headrace.catalog.fingerprint import ColumnPrint, Fingerprint, PartPrint, TablePrint
from headrace.catalog.types import RowType
from headrace.config.mirror import MirroredTables
from headrace.errors import Kind
from headrace.mirror.drift import TableDrift
from headrace.mirror.lake import LakeTable
from headrace.mirror.partition_bounds import Bound
from headrace.mirror.positions import TablePosition
from headrace.mirror.tables import MirroredTable
from headrace.mirror.units import Alter, Apply, Load, ObservedTable, ReadParts, Wait, decide, has_other_names
from headrace.model.names import TableName
from headrace.model.types import ArrowForm, Json
from headrace.model.value_type import ValueType

NAME = TableName("public", "t")
_INT = ValueType("int4", ArrowForm.INTEGER, Json.NUMBER, pa.int32())
_TEXT = ValueType("text", ArrowForm.TEXT, Json.STRING, pa.string())


def catalog_of(numbers: dict[str, int], touched: int = 1) -> Fingerprint:
    columns = {
        name: ColumnPrint(number, 23, -1, "integer", "", touched if number > 1 else 1)
        for name, number in numbers.items()
    }
    return Fingerprint({NAME: TablePrint(1, columns, {}, highest=max(numbers.values()))})


def table_of(*columns: str, **options: object) -> MirroredTable:
    numbers = {name: number for number, name in enumerate(("id", *columns), 1)}
    kinds = {name: _INT if name == "id" else _TEXT for name in numbers}
    table = MirroredTable(
        relation=1,
        row_type=RowType(NAME, (), kinds),
        key=("id",),
        columns=tuple(numbers),
        numbers=numbers,
        defaults={},
        part=MirroredTables(tables=("public.t",)),
        catalog=catalog_of(numbers),
    )
    return with_options(table, **options)


def with_options(table: MirroredTable, **options: object) -> MirroredTable:
    """A table of which the file says something."""
    return replace(table, part=table.part.model_copy(update=options))


def with_file(table: MirroredTable, file: int) -> MirroredTable:
    now = replace(table.catalog.tables[NAME], parts={1: PartPrint(NAME, "d", None, file, "p")})
    return replace(table, catalog=Fingerprint({NAME: now}))


T = table_of("a", "b")
NOTED = TablePosition(3, 100, 1, catalog=T.catalog)


@dataclass(frozen=True)
class Lake:
    """What a decision asks of the lake's table."""

    schema: pa.Schema = T.lake_schema
    position: tuple[int, int] | None = (99, 0)
    uri: str = "lake/public/t"


LIVE = ObservedTable(NOTED, cast("LakeTable", Lake()))
WRITTEN = replace(LIVE, other_commit="WRITE, version 4")


@pytest.mark.parametrize(
    ("table", "observed", "why"),
    [
        (T, replace(LIVE, noted=None, lake=None), None),
        (T, replace(LIVE, noted=None), None),
        (T, replace(LIVE, lake=None), None),
        (replace(T, relation=2), LIVE, "dropped and created again"),
        (replace(T, relation=2), WRITTEN, "dropped and created again"),
        (T, WRITTEN, "another program has written the lake's table t (WRITE, version 4)"),
        (T, replace(LIVE, is_sent=False), "the publication has not sent the table t all the time"),
        (
            T,
            replace(LIVE, waits="a value did not fit"),
            "the lake lacks changes of t, because the table waited: a value did not fit",
        ),
        (with_options(T, where="id > 1"), LIVE, "where"),
        (T, replace(LIVE, drift=TableDrift("a label was renamed")), "a label was renamed"),
        (table_of("a", "c"), replace(LIVE, noted=replace(NOTED, altered=101)), "altered again before"),
        (
            with_file(T, 2),
            replace(LIVE, noted=replace(NOTED, altered=101, catalog=with_file(T, 1).catalog)),
            "again",
        ),
        (replace(table_of("a", "b", "c"), key=("a",)), LIVE, "columns of t were altered, or the file"),
        (
            replace(table_of("a", "c"), key=(), has_full_identity=True),
            LIVE,
            "columns of t were altered, or the file",
        ),
    ],
)
def test_what_the_lake_does_not_have_is_read(table: MirroredTable, observed: ObservedTable, why: str) -> None:
    action = decide(table, observed)
    assert isinstance(action, Load)
    assert action.why is None if why is None else why in str(action.why)


@pytest.mark.parametrize(
    ("table", "observed", "kind", "told"),
    [
        (replace(T, key=()), LIVE, Kind.REPLICA_IDENTITY, "has no key"),
        (replace(T, key=()), replace(LIVE, noted=None, lake=None), Kind.REPLICA_IDENTITY, "has no key"),
        (T, replace(LIVE, lake=cast("LakeTable", Lake(position=None))), Kind.CONFIG, "no mirror wrote"),
        (with_options(T, mode="history"), LIVE, Kind.CONFIG, "was not written in the mode 'history'"),
        (with_options(T, mode="history"), replace(LIVE, noted=None), Kind.CONFIG, "mode 'history'"),
        (table_of("a", "c", exclude_columns=("b",)), LIVE, Kind.BINDING, "is called c now"),
        (
            table_of("a", "c", exclude_columns=("b",)),
            replace(LIVE, waits="it was renamed", is_sent=False),
            Kind.BINDING,
            "is called c now",
        ),
    ],
)
def test_what_nobody_but_its_owner_can_mend_waits(
    table: MirroredTable, observed: ObservedTable, kind: Kind, told: str
) -> None:
    if table.part.exclude_columns:  # its column b, which the file leaves out, is called c by now
        without = replace(T, columns=("id", "a"))
        observed = replace(observed, lake=cast("LakeTable", Lake(without.lake_schema)))
    action = decide(table, observed)
    assert isinstance(action, Wait)
    assert action.error.kind is kind
    assert told in action.error.cause
    assert action.error.remedy


def test_a_table_for_which_the_log_was_kept_goes_on_where_it_was() -> None:
    waited = replace(LIVE, waits="a value did not fit", is_kept=True)
    assert decide(T, waited) == Apply()
    assert isinstance(decide(T, replace(waited, drift=TableDrift("a label was renamed"))), Load)


def test_what_the_lake_has_is_altered_in_place() -> None:
    assert decide(T, LIVE) == Apply()
    renamed = decide(table_of("a", "c"), LIVE)
    assert isinstance(renamed, Alter)
    assert str(renamed.alteration) == "b → c"
    assert has_other_names(table_of("a", "c"), NOTED)
    added = decide(table_of("a", "b", "c"), LIVE)
    assert isinstance(added, Alter)
    assert str(added.alteration) == "+c"
    action = decide(with_options(T, partition_by=("a",)), LIVE)
    assert isinstance(action, Alter)


def test_columns_that_were_touched_are_told_to_whoever_reads_the_log() -> None:
    """Two of them may have swapped names, and swapped them back."""
    touched = replace(T, catalog=catalog_of(dict(T.numbers), touched=7))
    assert decide(touched, LIVE) == Apply()
    assert has_other_names(touched, NOTED)
    assert not has_other_names(T, NOTED)


BOUNDS = (Bound(1, "range", ("0", "10")),)
GONE = TableDrift("the partition low of t went with its rows", frozenset({5}))
PARTED = replace(LIVE, noted=replace(NOTED, leaves={5: BOUNDS, 6: None}), drift=GONE)


def test_a_partition_whose_bounds_tell_its_rows_is_read_alone() -> None:
    assert decide(T, PARTED) == ReadParts((BOUNDS,), GONE.why)


@pytest.mark.parametrize(
    ("table", "observed"),
    [
        (T, replace(PARTED, drift=TableDrift("by hash", frozenset({5, 6})))),
        (T, replace(PARTED, drift=TableDrift("nobody knows it", frozenset({7})))),
        (T, replace(PARTED, drift=TableDrift("values were computed anew"))),
        (table_of("a", "c"), PARTED),
        (with_options(T, partition_by=("a",)), PARTED),
        (with_options(T, where="id > 1"), PARTED),
    ],
)
def test_where_more_than_a_partition_changed_the_table_is_loaded(
    table: MirroredTable, observed: ObservedTable
) -> None:
    assert isinstance(decide(table, observed), Load)


def test_a_table_of_changes_is_loaded_where_a_partition_went() -> None:
    table = with_options(T, mode="changes")
    lake = cast("LakeTable", Lake(table.lake_schema))
    assert isinstance(decide(table, replace(PARTED, lake=lake)), Load)
