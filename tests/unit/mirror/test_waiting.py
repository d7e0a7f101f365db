"""Does a table wait for what concerns it alone, and longer each time that it was tried in vain?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.catalog.fingerprint import Fingerprint, TablePrint
from headrace.catalog.types import RowType
from headrace.config.mirror import MirroredTables
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.mirror.tables import MirroredTable
from headrace.mirror.waiting import WaitingTables
from headrace.model.names import TableName
from headrace.postgres.lock_holders import LockedError
from headrace.reporter import SilentReporter
from support.followed_mirror import Told

TABLE = MirroredTable(
    relation=1,
    row_type=RowType(TableName("public", "t"), (), {}),
    key=("id",),
    columns=(),
    numbers={},
    defaults={},
    part=MirroredTables(tables=("public.t",)),
)
OTHER = replace(TABLE, row_type=RowType(TableName("public", "u"), (), {}))


def fail_alone(tables: WaitingTables, error: Exception) -> None:
    with tables.alone(TABLE):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        HeadraceError(Kind.VALUE, "no lake has it"),
        HeadraceError(Kind.PRIVILEGE, "permission denied"),
        LockedError(Kind.CONNECTION, "t is locked by pid 1"),
        TypeError("no such type"),
    ],
)
def test_what_is_wrong_with_a_table_lets_it_wait(error: Exception) -> None:
    told = Told()
    tables = WaitingTables(told)
    fail_alone(tables, error)
    assert TABLE.name in tables
    assert tables.is_held(TABLE.name)
    [text] = told.texts
    assert text.startswith("the table t waits: ")
    assert text.endswith("trying again in 10 s")


def test_a_mirror_that_runs_once_promises_no_other_try() -> None:
    told = Told()
    tables = WaitingTables(told)
    tables.tries_again = False
    tables.add(HeadraceError(Kind.VALUE, "no lake has it", "Change it."), TABLE)
    assert told.texts == ["the table t waits: no lake has it. Change it. The others go on"]


@pytest.mark.parametrize("kind", [Kind.CONNECTION, Kind.SINK_UNREACHABLE, Kind.DISK, Kind.SLOT_LOST])
def test_what_concerns_all_tables_is_raised(kind: Kind) -> None:
    tables = WaitingTables(SilentReporter())
    with pytest.raises(HeadraceError):
        fail_alone(tables, HeadraceError(kind, "it is gone"))
    assert tables.error() is None


def test_a_table_waits_twice_as_long_each_time_and_at_once_where_it_was_altered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("headrace.mirror.waiting.time.monotonic", lambda: now)
    tables = WaitingTables(SilentReporter())
    error = HeadraceError(Kind.VALUE, "no lake has it")
    pauses, due = [], []
    for _ in range(9):
        tables.add(error, TABLE)
        pause = tables.tables[TABLE.name].pause
        now += pause - 1
        tables.add(error, TABLE)  # it is looked at in between, and not tried
        due.append(tables.is_due)
        now += 1
        due.append(tables.is_due)
        pauses.append(pause)
    assert due == [False, True] * 9
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]

    tables.add(error, TABLE)
    tables.try_altered({TABLE.name: replace(TABLE)})
    assert tables.is_held(TABLE.name)
    for altered in (
        replace(TABLE, catalog=Fingerprint({TABLE.name: TablePrint(2, {}, {})})),
        replace(TABLE, key=()),
    ):
        tables.try_altered({TABLE.name: altered})
        assert not tables.is_held(TABLE.name)
    tables.add(error, TABLE)
    assert tables.tables[TABLE.name].pause == 10
    tables.remove(TABLE.name)
    assert tables.error() is None


def test_a_table_whose_tries_take_long_waits_a_multiple_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody follows the others while one is read for hours."""
    now = 0.0
    monkeypatch.setattr("headrace.mirror.waiting.time.monotonic", lambda: now)
    tables = WaitingTables(SilentReporter())

    def fail_after(seconds: float) -> None:
        nonlocal now
        with tables.alone(TABLE):
            now += seconds
            raise HeadraceError(Kind.VALUE, "no lake has it")

    for took, pause in ((3600.0, 14400.0), (3600.0, 14400.0), (1.0, 600.0)):
        fail_after(took)
        assert tables.tables[TABLE.name].pause == pause
        now += pause


def test_the_error_names_each_table_that_waits() -> None:
    tables = WaitingTables(SilentReporter())
    tables.add(HeadraceError(Kind.VALUE, "no lake has it", "Change it."), OTHER)
    error = tables.error()
    assert error is not None
    assert str(error) == "[HEADRACE_VALUE] the table u was not written: no lake has it. Change it."
    tables.add(HeadraceError(Kind.BINDING, "a column is gone"), TABLE)
    error = tables.error()
    assert isinstance(error, ErrorGroup)
    assert [one.kind for one in error.errors] == [Kind.BINDING, Kind.VALUE]
    assert error.exit_code == 2


def test_a_table_may_begin_to_wait_while_others_are_looked_at() -> None:
    """Tables are written in one thread, and looked at in another."""
    tables = WaitingTables(SilentReporter())
    tables.add(HeadraceError(Kind.VALUE, "no lake has it"), TABLE)

    class Adding(dict[TableName, MirroredTable]):
        def __contains__(self, name: object) -> bool:
            tables.add(HeadraceError(Kind.VALUE, "no lake has it"), OTHER)
            return super().__contains__(name)

    tables.try_altered(Adding({TABLE.name: TABLE}))
    assert {*tables.tables} == {TABLE.name, OTHER.name}
