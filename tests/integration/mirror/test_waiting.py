"""Does a table that cannot be written wait alone, and is it right once it can be?"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.config.mirror import Format, MirrorConfig, MirroredTables
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.mirror import files, load_units, verify, waiting
from headrace.mirror.formats import open_lake
from headrace.mirror.loading import LoadStoppedError
from headrace.mirror.mirrored_lake import MirroredLake
from headrace.mirror.positions import PositionsTable, TablePosition
from headrace.mirror.run import MirrorRun
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from headrace.reporter import SilentReporter
from headrace.snapshot.planning import plan_tables
from headrace.spark.session import local_spark
from support import stranger
from support.followed_mirror import FollowedMirror, Told, run, run_mirror
from support.lake import FORMATS, MAIN_FORMAT, read_table

SLOT = "mirror_waiting"
A, B, STAGING = (TableName("public", name) for name in ("a", "b", "staging"))
SETUP = (
    "CREATE TABLE a (id int PRIMARY KEY, v int)",
    "CREATE TABLE b (id int PRIMARY KEY, price numeric(10, 2), sizes int[])",
    "INSERT INTO a VALUES (1, 1)",
    "INSERT INTO b VALUES (1, 1.5, '{1,2}')",
)


def config_of(folder: Path, *parts: MirroredTables, kind: Format = "delta") -> MirrorConfig:
    tables = parts or (MirroredTables(tables=("public.*",)),)
    return MirrorConfig(location=str(folder), format=kind, slot=SLOT, publication=SLOT, tables=tables)


def prepared(url: str, config: MirrorConfig) -> tuple[MirroredLake, list[TableName], Told]:
    return FollowedMirror(url, config).prepare()


def rows_are_right(mirror: MirroredLake) -> dict[str, bool]:
    return {found.table.name: found.is_right for found in mirror.comparer().compare()}


def test_tables_that_patterns_match_and_that_cannot_be_followed_are_left_out_and_named_once(
    url: str, tmp_path: Path
) -> None:
    run(
        url,
        "CREATE TABLE staging AS SELECT 1 AS n",
        "CREATE TABLE owned (id int PRIMARY KEY)",
        "ALTER EXTENSION plpgsql ADD TABLE owned",
        "CREATE UNLOGGED TABLE quick (id int PRIMARY KEY)",
    )
    mirror, tables, told = prepared(url, config_of(tmp_path))
    assert tables == [A, B]
    assert [text for text in told.texts if "left out: staging (it has no primary key" in text]
    assert len([text for text in told.texts if "left out" in text]) == 1
    assert not mirror.is_altered()
    plan = mirror.plan()
    found = {table.name: why.partition(":")[0] for table, why in plan.left_out.items()}
    assert found == {
        "staging": "it has no primary key; the mirror takes it in once it has one, or (unless the mode is "
        "history) once you run ALTER TABLE … REPLICA IDENTITY FULL",
        "owned": "an extension owns it",
        "quick": "it is unlogged",
    }
    assert plan.waiting == {}

    run(url, "ALTER TABLE staging ADD PRIMARY KEY (n)")
    assert mirror.is_altered()
    mirror.set_up()
    assert set(mirror.prepare()) == {A, B, STAGING}
    run(url, "ALTER EXTENSION plpgsql DROP TABLE owned")


def test_tables_that_a_part_excludes_belong_to_a_later_one_or_to_none(url: str, tmp_path: Path) -> None:
    run(url, "CREATE TABLE tmp_a (id int PRIMARY KEY)", "CREATE TABLE tmp_b (id int PRIMARY KEY)")
    part = MirroredTables(tables=("public.*",), exclude=("public.tmp_*",))
    history = MirroredTables(tables=("public.tmp_b",), mode="history")
    mirror, tables, _ = prepared(url, config_of(tmp_path, part, history))
    assert tables == [A, B, TableName("public", "tmp_b")]
    assert mirror.plan().tables[-1].mode == "history"
    run(url, "CREATE TABLE tmp_c (id int PRIMARY KEY)")
    assert not mirror.is_altered()


def test_a_table_of_changes_that_cannot_be_published_is_left_out_too(url: str, tmp_path: Path) -> None:
    run(url, "CREATE TABLE staging AS SELECT 1 AS n")
    part = MirroredTables(tables=("public.*",), mode="changes")
    mirror, tables, _ = prepared(url, config_of(tmp_path, part))
    assert tables == [A, B]
    assert not mirror.is_altered()
    run(url, "ALTER TABLE staging REPLICA IDENTITY FULL")
    assert mirror.is_altered()


def test_a_named_table_that_cannot_be_followed_is_refused(url: str, tmp_path: Path) -> None:
    run(url, "CREATE TABLE staging AS SELECT 1 AS n")
    part = MirroredTables(tables=("public.a", "public.staging"))
    with pytest.raises(HeadraceError, match="the table staging has no key") as refused:
        prepared(url, config_of(tmp_path, part))
    assert refused.value.kind is Kind.REPLICA_IDENTITY
    assert not (tmp_path / "public").exists()


def test_a_table_whose_child_is_not_mirrored_waits_alone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has a child's rows under the child's name: they would be missing."""
    monkeypatch.setattr(waiting, "_FIRST_SECONDS", 0.0)
    config = config_of(tmp_path)
    prepared(url, config)
    run(url, "CREATE TABLE child () INHERITS (b)", "INSERT INTO child VALUES (2)")
    mirror, tables, told = prepared(url, config)
    assert tables == [A]
    assert [text for text in told.texts if "the table b waits: child inherits from b" in text]
    run(url, "ALTER TABLE child ADD PRIMARY KEY (id)")
    assert mirror.is_altered()
    mirror.set_up()
    assert set(mirror.prepare()) == {A, B, TableName("public", "child")}
    assert rows_are_right(mirror) == {"a": True, "b": True, "child": True}


def test_a_lock_on_a_table_of_which_some_rows_are_mirrored_delays_it_alone(url: str, tmp_path: Path) -> None:
    part = MirroredTables(tables=("public.b",), where="id > 0")
    config = config_of(tmp_path, part, MirroredTables(tables=("public.a",)))
    prepared(url, config)
    with connect(url, autocommit=False) as holder:
        execute(holder, "LOCK TABLE b IN ACCESS EXCLUSIVE MODE")
        mirror, tables, told = prepared(url, config)
        assert tables == [A]
    assert [text for text in told.texts if "the table b waits" in text and "b is locked by" in text]
    assert mirror.waiting.reason(B)


def test_a_named_table_that_is_made_again_without_its_key_waits_for_it(url: str, tmp_path: Path) -> None:
    """As a restored dump does it: keys come after the rows."""
    mirror, *_ = prepared(url, config_of(tmp_path, MirroredTables(tables=("public.a", "public.b"))))
    run(url, "DROP TABLE b")
    mirror.set_up()
    assert mirror.prepare() == [A]
    run(url, "CREATE TABLE b AS SELECT 5 AS id, 2.5::numeric(10, 2) AS price, '{3}'::int[] AS sizes")
    assert mirror.is_altered()
    mirror.set_up()
    assert mirror.prepare() == [A]
    assert "the table b has no key" in str(mirror.waiting.error())
    run(url, "ALTER TABLE b ADD PRIMARY KEY (id)")
    assert mirror.is_altered()
    mirror.set_up()
    assert set(mirror.prepare()) == {A, B}
    assert rows_are_right(mirror) == {"a": True, "b": True}


def test_a_table_that_is_made_again_without_a_column_that_the_file_names_is_read_again(
    url: str, tmp_path: Path
) -> None:
    config = config_of(tmp_path, MirroredTables(tables=("public.b",), exclude_columns=("sizes",)), OTHERS)
    mirror, *_ = prepared(url, config)
    run(url, "DROP TABLE b")
    assert mirror.prepare() == [A]
    run(url, "CREATE TABLE b (id int PRIMARY KEY, price numeric(10, 2))", "INSERT INTO b VALUES (5, 2.5)")
    mirror.plan()
    mirror.set_up()
    assert set(mirror.prepare()) == {A, B}
    assert rows_are_right(mirror) == {"a": True, "b": True}


@pytest.mark.parametrize(
    "made", ["CREATE VIEW staging AS SELECT 1 AS n", "CREATE UNLOGGED TABLE staging (id int PRIMARY KEY)"]
)
def test_what_the_file_names_and_the_log_does_not_have_is_left_out(
    made: str, url: str, tmp_path: Path
) -> None:
    run(url, made)
    part = MirroredTables(tables=("public.a", "public.staging"))
    _, tables, said = prepared(url, config_of(tmp_path, part))
    assert tables == [A]
    assert [text for text in said.texts if text.startswith("left out: staging (the log has no table")]


def test_a_partitioned_table_without_a_key_that_the_file_names_is_refused(url: str, tmp_path: Path) -> None:
    run(url, "CREATE TABLE staging (LIKE a) PARTITION BY LIST (id)")
    part = MirroredTables(tables=("public.a", "public.staging"))
    with pytest.raises(HeadraceError, match="the table staging has no key"):
        prepared(url, config_of(tmp_path, part))


@pytest.mark.parametrize(
    ("bad", "mend"),
    [
        ("INSERT INTO b (id, price) VALUES (2, 'NaN')", "UPDATE b SET price = 3 WHERE id = 2"),
        ("UPDATE b SET sizes = '{{1,2},{3,4}}'", "UPDATE b SET sizes = '{1,2,3,4}'"),
    ],
)
@pytest.mark.parametrize("kind", MAIN_FORMAT)
def test_a_value_that_no_lake_has_lets_its_table_wait_and_the_others_go_on(
    bad: str, mend: str, kind: Format, url: str, tmp_path: Path
) -> None:
    mirror = FollowedMirror(url, config_of(tmp_path, kind=kind))
    mirror.prepare()
    run(url, bad, "INSERT INTO a VALUES (2, 2)")
    [told] = [text for text in mirror.follow() if "waits" in text]
    assert "the table b waits" in told
    assert "trying again in 10 s" in told
    follower, tables, _ = mirror.prepare()
    assert tables == [A]
    positions = PositionsTable(follower.lake, SLOT).read().tables
    assert (positions[A].waits_for, positions[B].waits_for is None) == (None, False)
    assert positions[A].complete > positions[B].complete
    assert rows_are_right(follower) == {"a": True, "b": False}

    run(url, mend)
    assert "loading b" in mirror.prepare()[2].texts
    mirror.follow()
    assert mirror.wrong() == []


KEPT = MirroredTables(tables=("public.b",), mode="history", on_error="wait")
OTHERS = MirroredTables(tables=("public.*",))


def versions_of_b(folder: Path) -> list[tuple[int, str | None]]:
    rows = pl.read_delta(str(folder / "public" / "b")).sort("_from_lsn", "id")
    return [
        (number, None if price is None else str(price)) for number, price in rows["id", "price"].iter_rows()
    ]


def test_a_table_for_which_the_slot_keeps_the_log_misses_nothing(url: str, tmp_path: Path) -> None:
    mirror = FollowedMirror(url, config_of(tmp_path, KEPT, OTHERS))
    mirror.prepare()
    run(
        url,
        "INSERT INTO b VALUES (2, 'NaN')",
        "INSERT INTO a VALUES (2, 2)",
        "UPDATE b SET price = 5 WHERE id = 1",
    )
    assert [text for text in mirror.follow() if "the table b waits" in text]
    run(url, "UPDATE b SET price = 6 WHERE id = 1")
    mirror.follow()
    behind = PositionsTable(open_lake(config_of(tmp_path, KEPT, OTHERS)), SLOT).read().tables
    assert mirror.limits[-1] == behind[B].complete < behind[A].complete
    part = MirroredTables.model_validate(KEPT.model_dump() | {"on_value": {"price": "null"}})
    mended = FollowedMirror(url, config_of(tmp_path, part, OTHERS))
    texts = mended.follow()
    assert "the table b goes on from where it was: the slot has kept the log" in texts
    assert not [text for text in texts if text.startswith("loading")]
    assert versions_of_b(tmp_path) == [(1, "1.50"), (2, None), (1, "5.00"), (1, "6.00")]
    assert mended.wrong() == []
    assert mended.limits[-1] == (1 << 64) - 1


MISSED = (
    f"ALTER PUBLICATION {SLOT} DROP TABLE b",
    "UPDATE b SET price = 9",
    f"ALTER PUBLICATION {SLOT} ADD TABLE b",
)


def test_a_table_that_its_publication_lost_is_loaded_even_if_its_first_load_fails(
    url: str, tmp_path: Path
) -> None:
    """The slot has kept the log for it, but what was written without the publication is not in there."""
    config = config_of(tmp_path, KEPT, OTHERS)
    prepared(url, config)
    run(url, *MISSED)
    with connect(url, autocommit=False) as holder:
        report = Interrupting(lambda: execute(holder, "LOCK TABLE b IN ACCESS EXCLUSIVE MODE"))
        mirror = MirroredLake(url, config, report, threading.Event())
        mirror.set_up()
        assert mirror.prepare() == [A]
    follower = FollowedMirror(url, config)
    assert "loading b" in follower.follow()
    assert follower.wrong() == []


def test_a_table_that_its_publication_lost_while_it_waited_is_loaded(url: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, KEPT, OTHERS)
    mirror = FollowedMirror(url, config)
    mirror.prepare()
    run(url, "INSERT INTO b VALUES (2, 'NaN')")
    assert [text for text in mirror.follow() if "the table b waits" in text]
    run(url, *MISSED)
    assert "loading b" in mirror.follow()
    assert mirror.wrong() == []


@pytest.mark.long
def test_a_table_that_fails_again_has_no_more_of_the_log_than_before(url: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, KEPT, OTHERS)
    mirror = FollowedMirror(url, config)
    mirror.prepare()
    run(url, "INSERT INTO b VALUES (2, 'NaN')", "UPDATE b SET price = 5 WHERE id = 1")
    mirror.follow()
    behind = positions_of(config)[B].complete
    for number in range(2):
        run(url, f"INSERT INTO a VALUES ({number + 10}, 2)", "UPDATE b SET price = price + 1 WHERE id = 1")
        again = FollowedMirror(url, config)
        assert [text for text in again.follow() if "the table b waits" in text]
        assert positions_of(config)[B].complete == again.limits[-1] == behind
    part = MirroredTables.model_validate(KEPT.model_dump() | {"on_value": {"price": "null"}})
    texts = FollowedMirror(url, config_of(tmp_path, part, OTHERS)).follow()
    assert not [text for text in texts if text.startswith("loading")]
    prices = [(1, "1.50"), (2, None), (1, "5.00"), (1, "6.00"), (1, "7.00")]
    assert versions_of_b(tmp_path) == prices


def test_a_table_that_is_altered_in_the_batch_in_which_it_begins_to_wait_goes_on(
    url: str, tmp_path: Path
) -> None:
    mirror = FollowedMirror(url, config_of(tmp_path, KEPT, OTHERS))
    mirror.prepare()
    run(url, "INSERT INTO b VALUES (2, 'NaN')", "UPDATE b SET price = 5 WHERE id = 1")
    alter = "ALTER TABLE b ADD IF NOT EXISTS note text"
    told = mirror.follow(between=lambda: run(url, alter))
    assert [text for text in told if "the table b waits" in text]
    part = MirroredTables.model_validate(KEPT.model_dump() | {"on_value": {"price": "null"}})
    texts = FollowedMirror(url, config_of(tmp_path, part, OTHERS)).follow()
    assert not [text for text in texts if text.startswith("loading")]
    assert versions_of_b(tmp_path) == [(1, "1.50"), (2, None), (1, "5.00")]


def test_a_slot_keeps_no_more_log_for_a_waiting_table_than_the_budget(url: str, tmp_path: Path) -> None:
    mirror = FollowedMirror(url, config_of(tmp_path, KEPT, OTHERS), wal_budget=1 << 20)
    mirror.prepare()
    run(url, "INSERT INTO b VALUES (2, 'NaN')")
    mirror.follow()
    assert mirror.limits[-1] < 1 << 63
    run(
        url, "SELECT pg_logical_emit_message(false, 'x', repeat('x', 2 << 20))", "INSERT INTO a VALUES (7, 7)"
    )
    mirror.follow()
    assert mirror.limits[-1] == (1 << 64) - 1


@pytest.mark.long
def test_the_slot_of_a_running_mirror_is_not_confirmed_behind_what_a_waiting_table_lacks(
    url: str, tmp_path: Path
) -> None:
    config = config_of(tmp_path, KEPT, OTHERS).model_copy(update={"interval": "100ms"})
    stopping = threading.Event()
    mirror = MirroredLake(url, config, SilentReporter(), stopping)
    with local_spark() as spark:
        following = threading.Thread(target=MirrorRun(mirror, SilentReporter(), stopping).run, args=(spark,))
        following.start()
        try:
            until(lambda: len(positions_of(config)) == 2)
            run(url, "INSERT INTO b VALUES (2, 'NaN')")
            until(lambda: positions_of(config)[B].waits_for is not None)
            kept = positions_of(config)[B].complete
            for number in range(3, 8):
                run(url, f"INSERT INTO a VALUES ({number}, 0)")
                until(lambda: number in pl.read_delta(str(tmp_path / "public" / "a"))["id"])  # noqa: B023
            assert confirmed(url) <= kept < positions_of(config)[A].complete
        finally:
            stopping.set()
            following.join()
        assert confirmed(url) <= kept
        run(url, "DELETE FROM b WHERE id = 2")
        part = MirroredTables.model_validate(KEPT.model_dump() | {"on_value": {"price": "null"}})
        again = MirroredLake(url, config_of(tmp_path, part, OTHERS), SilentReporter(), threading.Event())
        run_mirror(again, spark)
    assert versions_of_b(tmp_path) == [(1, "1.50"), (2, None)]
    assert rows_are_right(again) == {"a": True, "b": True}
    assert confirmed(url) > kept


def positions_of(config: MirrorConfig) -> Mapping[TableName, TablePosition]:
    return PositionsTable(open_lake(config), SLOT).read().tables


def confirmed(url: str) -> int:
    with connect(url) as connection:
        sql = "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = $1"
        [(position,)] = execute(connection, sql, (SLOT,))
    return int(position)


def until(holds: Callable[[], bool]) -> None:
    """Return as soon as something holds."""
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_table_that_waits_goes_on_as_soon_as_it_is_altered(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_FIRST_SECONDS", 600.0)
    run(url, "CREATE TABLE staging (id int PRIMARY KEY, name int)")
    mirror, *_ = prepared(url, config_of(tmp_path))
    run(url, 'ALTER TABLE staging ADD COLUMN "Name" int', "INSERT INTO staging VALUES (1, 1, 1)")
    assert mirror.is_altered()
    assert mirror.prepare() == [A, B]
    assert "column Name of staging cannot be mirrored: name differs from it" in str(mirror.waiting.error())
    assert [str(table) for table in mirror.plan().waiting] == ["staging"]
    assert not mirror.is_altered()
    run(url, 'ALTER TABLE staging RENAME COLUMN "Name" TO other')
    assert mirror.is_altered()
    assert set(mirror.prepare()) == {A, B, STAGING}
    assert mirror.waiting.error() is None
    assert all(rows_are_right(mirror).values())


def test_the_only_table_of_a_mirror_waits_and_goes_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_FIRST_SECONDS", 600.0)
    mirror, tables, _ = prepared(url, config_of(tmp_path, MirroredTables(tables=("public.b",))))
    assert tables == [B]
    run(url, "ALTER TABLE b DROP CONSTRAINT b_pkey")
    mirror.set_up()
    assert mirror.prepare() == []
    assert "the table b has no key" in str(mirror.waiting.error())
    assert not mirror.is_altered()
    run(url, "ALTER TABLE b ADD PRIMARY KEY (id)", "INSERT INTO b VALUES (5, 5, NULL)")
    assert mirror.is_altered()
    mirror.set_up()
    assert mirror.prepare() == [B]
    assert rows_are_right(mirror) == {"b": True}


def test_a_table_that_the_role_does_not_own_waits(url: str, tmp_path: Path) -> None:
    owner = f"mirror_waiting_{url.rpartition('_')[2].partition('?')[0]}"
    other = url.replace("//postgres:", f"//{owner}:", 1)
    run(
        url,
        f"CREATE ROLE {owner} LOGIN REPLICATION PASSWORD 'x'",
        f"GRANT ALL ON DATABASE {url.rpartition('/')[2].partition('?')[0]} TO {owner}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {owner}",
        f"ALTER TABLE a OWNER TO {owner}",
    )
    before, _, rest = other.partition(f"//{owner}:")
    other = f"{before}//{owner}:x@{rest.partition('@')[2]}"
    try:
        mirror, tables, told = prepared(other, config_of(tmp_path))
        assert tables == [A]
        assert [text for text in told.texts if "the table b waits" in text and "owner" in text]
        assert mirror.waiting.error() is not None
    finally:
        run(url, f"DROP PUBLICATION IF EXISTS {SLOT}", f"REASSIGN OWNED BY {owner} TO postgres")
        run(url, f"DROP OWNED BY {owner}", f"DROP ROLE {owner}")


def test_a_lock_on_a_partition_keeps_no_table_that_is_loaded_from_being_written(
    url: str, tmp_path: Path
) -> None:
    run(
        url,
        "CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10)",
    )
    mirror = FollowedMirror(url, config_of(tmp_path))
    follower, *_ = mirror.prepare()
    run(url, "INSERT INTO parted VALUES (1, 1)", "INSERT INTO a VALUES (2, 2)")
    with connect(url, autocommit=False) as holder:
        execute(holder, "LOCK TABLE low IN ACCESS EXCLUSIVE MODE")
        assert not follower.is_altered()
        assert [text for text in mirror.follow() if "waits" in text] == []
    assert mirror.wrong() == []


def test_a_new_table_for_whose_snapshot_no_slot_is_free_waits_alone(
    make_server: Callable[..., EmbeddedPostgres], tmp_path: Path
) -> None:
    url = make_server(max_replication_slots="2").create_database("shop")
    run(url, *SETUP)
    mirror = FollowedMirror(url, config_of(tmp_path))
    assert mirror.prepare()[1] == [A, B]
    run(url, "CREATE TABLE staging (id int PRIMARY KEY)", "INSERT INTO a VALUES (2, 2)")
    run(url, "SELECT pg_create_physical_replication_slot('other')")
    [told] = [text for text in mirror.follow() if "the table staging waits" in text]
    assert "max_replication_slots" in told
    assert 2 in pl.read_delta(str(tmp_path / "public" / "a"))["id"]
    run(url, "SELECT pg_drop_replication_slot('other')")
    assert set(mirror.prepare()[1]) == {A, B, STAGING}


@pytest.mark.long
def test_a_new_table_that_is_locked_waits_alone(url: str, tmp_path: Path) -> None:
    prepared(url, config_of(tmp_path, MirroredTables(tables=("public.a",))))
    mirror = FollowedMirror(url, config_of(tmp_path))
    with connect(url, autocommit=False) as holder:
        execute(holder, "LOCK TABLE b IN ACCESS EXCLUSIVE MODE")
        _, tables, told = mirror.prepare()
        assert tables == [A]
        assert [text for text in told.texts if "the table b waits: no lock within 5 s" in text]
    assert mirror.waiting() == ""
    assert mirror.wrong() == []


class Interrupting(SilentReporter):
    """Runs statements once, when the load of a table begins: the snapshot is taken by then."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._then = then
        self.texts: list[str] = []

    def info(self, text: str) -> None:
        if text == "loading b" and text not in self.texts:
            self._then()
        self.texts.append(text)

    def warning(self, text: str) -> None:
        self.texts.append(text)


def test_a_table_that_is_locked_when_it_is_loaded_waits_and_says_for_whom(url: str, tmp_path: Path) -> None:
    with connect(url, autocommit=False, application_name="maintenance") as holder:
        report = Interrupting(lambda: execute(holder, "LOCK TABLE b IN ACCESS EXCLUSIVE MODE"))
        mirror = MirroredLake(url, config_of(tmp_path), report, threading.Event())
        mirror.set_up()
        assert mirror.prepare() == [A]
    [told] = [text for text in report.texts if "the table b waits" in text]
    assert "b is locked by pid" in told
    assert "maintenance" in told
    assert set(mirror_again(mirror).prepare()) == {A, B}
    assert all(rows_are_right(mirror).values())


def test_a_load_ends_between_two_tables_when_it_is_stopped(url: str, tmp_path: Path) -> None:
    stopping = threading.Event()
    mirror = MirroredLake(url, config_of(tmp_path), Interrupting(stopping.set), stopping)
    mirror.set_up()
    with pytest.raises(LoadStoppedError):
        mirror.prepare()
    assert [*PositionsTable(mirror.lake, SLOT).read().tables] == [A]
    assert set(mirror_again(mirror).prepare()) == {A, B}
    assert all(rows_are_right(mirror).values())


def test_a_table_that_is_truncated_while_it_is_loaded_waits_and_is_read_again(
    url: str, tmp_path: Path
) -> None:
    report = Interrupting(lambda: run(url, "TRUNCATE b", "INSERT INTO b VALUES (7, 7, NULL)"))
    mirror = MirroredLake(url, config_of(tmp_path), report, threading.Event())
    mirror.set_up()
    assert set(mirror.prepare()) == {A}
    assert "the table b was truncated, or rewritten, while it was read" in str(mirror.waiting.error())
    again, *_ = prepared(url, config_of(tmp_path))
    assert again.waiting.error() is None
    assert all(rows_are_right(again).values())


def test_a_table_that_is_truncated_while_it_is_compared_is_compared_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, *_ = prepared(url, config_of(tmp_path))
    looks: list[Any] = []

    def truncate_first(session: Any, tables: Any, **values: Any) -> Any:
        looks.append(tables)
        planned = plan_tables(session, tables, **values)
        if len(looks) == 1:
            run(url, "TRUNCATE b", "INSERT INTO b VALUES (1, 1.5, '{1,2}')")
        return planned

    monkeypatch.setattr(verify, "plan_tables", truncate_first)
    [found] = mirror.comparer().compare([B])
    assert (found.rows, found.wrong) == (1, 0)


def test_a_table_that_is_locked_while_it_is_compared_is_named_and_the_others_are_compared(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, *_ = prepared(url, config_of(tmp_path))
    with connect(url, autocommit=False) as holder:
        execute(holder, "SET idle_in_transaction_session_timeout = '20s'")

        def lock_first(session: Any, tables: Any, **values: Any) -> Any:
            if tables == [A]:
                execute(holder, "LOCK TABLE a IN ACCESS EXCLUSIVE MODE")
            return plan_tables(session, tables, **values)

        monkeypatch.setattr(verify, "plan_tables", lock_first)
        comparer = mirror.comparer()
        [locked] = comparer.compare([A])
        holder.rollback()  # for an open transaction the next snapshot would wait
        [other] = comparer.compare([B])
    assert "a is locked by pid" in str(locked.waits_for)
    assert other.is_right


def test_a_check_tells_that_the_slot_or_the_publication_of_a_lake_is_gone(url: str, tmp_path: Path) -> None:
    mirror, *_ = prepared(url, config_of(tmp_path))
    assert mirror.plan().slot is None
    run(url, f"DROP PUBLICATION {SLOT}")
    with pytest.raises(HeadraceError) as refused:
        mirror.plan()
    assert refused.value.kind is Kind.PUBLICATION
    run(url, f"CREATE PUBLICATION {SLOT} FOR TABLE a, b")
    with connect(url) as connection:
        drop_slot(connection, SLOT, timeout=60)
    with pytest.raises(HeadraceError, match="headrace mirror --reload") as refused:
        mirror.plan()
    assert refused.value.kind is Kind.SLOT_UNKNOWN


def test_a_check_tells_which_tables_will_wait(url: str, tmp_path: Path) -> None:
    mirror, *_ = prepared(url, config_of(tmp_path))
    lake = mirror.lake.open(A)
    assert lake is not None
    stranger.delete(lake, "id = 1")
    run(url, "CREATE TABLE staging (id int PRIMARY KEY, __headrace_x int)")
    plan = MirroredLake(url, config_of(tmp_path), SilentReporter(), threading.Event()).plan()
    assert {str(name): error.kind for name, error in plan.waiting.items()} == {"staging": Kind.BINDING}
    assert "another program has written the lake's table a" in str(plan.tables[0].why)


@pytest.mark.long
def test_once_writes_the_others_and_ends_with_what_waits(url: str, tmp_path: Path) -> None:
    run(url, "INSERT INTO b (id, price) VALUES (2, 'NaN')", "CREATE TABLE c (id int PRIMARY KEY, d date)")
    mirror = MirroredLake(url, config_of(tmp_path), SilentReporter(), threading.Event())
    with local_spark() as spark:
        with pytest.raises(HeadraceError, match="the table b was not written") as refused:
            run_mirror(mirror, spark)
        assert not isinstance(refused.value, ErrorGroup)
        run(url, "INSERT INTO a VALUES (3, 3)", "INSERT INTO c VALUES (1, '900000-01-01')")
        with pytest.raises(ErrorGroup, match="the table c was not written"):
            run_mirror(mirror_again(mirror), spark)
        assert rows_are_right(mirror) == {"a": True, "b": False, "c": False}
        run(url, "DELETE FROM b WHERE id = 2", "DELETE FROM c")
        run_mirror(mirror_again(mirror), spark)
        # A mirror that goes on has one query after the other, and their checkpoints are in memory.
        assert len([*spark.scratch.rglob("offsets")]) <= 2
    assert rows_are_right(mirror) == {"a": True, "b": True, "c": True}


def mirror_again(mirror: MirroredLake) -> MirroredLake:
    """The next process."""
    return MirroredLake(mirror.url, mirror.config, SilentReporter(), threading.Event())


def test_a_table_that_cannot_go_on_is_not_followed_when_its_pause_ends_before_the_others_are_ready(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another table may be written anew meanwhile, which takes longer than the pause."""
    monkeypatch.setattr(waiting, "_FIRST_SECONDS", 0.0)
    config = config_of(tmp_path, MirroredTables(tables=("public.b",), mode="history"), OTHERS)
    mirror, *_ = prepared(url, config)
    lake = mirror.lake.open(B)
    assert lake is not None
    stranger.delete(lake, "id = 1")
    mirror, tables, _ = prepared(url, config)
    assert tables == [A]
    assert "another program has written the lake's table b" in str(mirror.waiting.error())
    assert positions_of(config)[B].waits_for is not None
    assert mirror.prepare() == [A]


def do_at_first_commit(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Do something as soon as the first table of a batch is written: the others are looked at by then."""
    reached: list[str] = []

    def reach(name: str) -> None:
        if name == "mirror_committed" and not reached:
            reached.append(name)
            then()

    monkeypatch.setattr("headrace.mirror.lake.reach", reach)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_another_program_writes_while_a_batch_is_written_is_found_by_the_next_look(
    kind: Format, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(url, "INSERT INTO a VALUES (8, 8)", "INSERT INTO b VALUES (8, 8)")
    config = config_of(tmp_path, kind=kind)
    mirror = FollowedMirror(url, config)
    mirror.prepare()
    before = positions_of(config)

    def delete() -> None:
        for name in (A, B):
            lake = open_lake(config).open(name)
            assert lake is not None
            stranger.delete(lake, "id = 8")

    # In one transaction: between two batches it would be found already.
    run(url, "WITH one AS (INSERT INTO a VALUES (2, 2)) INSERT INTO b VALUES (2, 2)")
    do_at_first_commit(monkeypatch, delete)
    mirror.follow()
    assert {name: noted.version for name, noted in positions_of(config).items()} == {
        name: noted.version for name, noted in before.items()
    }
    told = mirror.prepare()[2].texts
    for name in ("a", "b"):
        assert [text for text in told if f"another program has written the lake's table {name} (" in text]
    assert mirror.wrong() == []


def test_a_row_that_went_while_its_large_value_stays_is_no_row_without_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        url,
        "CREATE TABLE docs (id int PRIMARY KEY, body text, status text)",
        "ALTER TABLE docs ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO docs VALUES (1, repeat('x', 5000)), (2, repeat('y', 5000))",
    )
    config = config_of(tmp_path)
    mirror = FollowedMirror(url, config)
    mirror.prepare()

    def delete() -> None:
        lake = open_lake(config).open(TableName("public", "docs"))
        assert lake is not None
        stranger.delete(lake, "id = 1")

    # In one transaction: between two batches it would be found already.
    run(url, "WITH one AS (INSERT INTO a VALUES (2, 2)) UPDATE docs SET status = 'new'")
    do_at_first_commit(monkeypatch, delete)
    [told] = [text for text in mirror.follow() if "the table docs waits" in text]
    assert "lacks an updated row" in told
    mirror.prepare()
    mirror.follow()
    assert mirror.wrong() == []


def test_tables_that_differ_in_case_alone_do_not_overwrite_each_other(url: str, tmp_path: Path) -> None:
    run(url, 'CREATE TABLE "A" (id int PRIMARY KEY)', 'INSERT INTO "A" VALUES (9)')
    mirror, tables, _ = prepared(url, config_of(tmp_path / "all"))
    assert [table.name for table in tables] == ["A", "b"]
    assert 'the tables a and "A" differ in case alone' in str(mirror.waiting.error())
    part = MirroredTables(tables=("public.a", "public.b"))
    with connect(url) as connection:
        drop_slot(connection, SLOT, timeout=60)
    _, tables, _ = prepared(url, config_of(tmp_path / "one", part))
    assert tables == [A, B]


def data_files(config: MirrorConfig, name: TableName) -> list[Path]:
    return sorted(Path(open_lake(config).path(name)).rglob("*.parquet"))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_load_that_fails_leaves_no_files(
    kind: Format, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows are written before the bad one is read.
    monkeypatch.setattr(load_units, "_BATCH_BYTES", 1 << 16)
    monkeypatch.setattr(files, "_GROUP_BYTES", 1 << 16)
    run(
        url,
        "CREATE TABLE staging (id int PRIMARY KEY, text text, price numeric(10, 2))",
        "INSERT INTO staging SELECT i, repeat(md5(i::text), 20), 1 FROM generate_series(1, 10000) i",
        "INSERT INTO staging VALUES (-1, '', 'NaN')",
    )
    config = config_of(tmp_path, kind=kind).model_copy(update={"file_size": 1 << 20})
    mirror = FollowedMirror(url, config)
    _, tables, told = mirror.prepare()
    assert set(tables) == {A, B}
    assert [text for text in told.texts if "the table staging waits" in text]
    assert data_files(config, STAGING) == []
    run(url, "UPDATE staging SET price = 2 WHERE id = -1")
    mirror.prepare()
    assert data_files(config, STAGING) != []
    assert mirror.wrong() == []


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_of_which_the_lake_has_lost_a_file_waits_alone_and_is_loaded_again(
    kind: Format, url: str, tmp_path: Path
) -> None:
    config = config_of(tmp_path, kind=kind)
    mirror = FollowedMirror(url, config)
    mirror.prepare()
    for path in data_files(config, B):
        path.unlink()
    run(url, "INSERT INTO a VALUES (2, 2)", "UPDATE b SET price = 2 WHERE id = 1")
    [told] = [text for text in mirror.follow() if "waits" in text]
    assert told.startswith(
        "the table b waits: the lake's table b cannot be read or written, and others can: "
    )
    assert "Credentials" not in told
    assert 2 in read_table(tmp_path / "public" / "a", kind)["id"]
    mirror.prepare()
    mirror.follow()
    assert mirror.wrong() == []


def test_a_table_that_another_program_has_given_a_newer_protocol_waits_alone(
    url: str, tmp_path: Path
) -> None:
    config = config_of(tmp_path, MirroredTables(tables=("public.b",), mode="history"), OTHERS)
    mirror = FollowedMirror(url, config)
    mirror.prepare()
    log = tmp_path / "public" / "b" / "_delta_log" / f"{1:020}.json"
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["x"],
        "writerFeatures": ["x"],
    }
    log.write_text(json.dumps({"protocol": protocol}))
    run(url, "INSERT INTO a VALUES (2, 2)", "UPDATE b SET price = 2 WHERE id = 1")
    [told] = [text for text in mirror.follow() if "waits" in text]
    assert "the lake's table b cannot be read or written, and others can" in told
    assert "put it back from a copy" in told
    assert 2 in pl.read_delta(str(tmp_path / "public" / "a"))["id"]


def test_a_table_whose_log_cannot_be_read_waits_alone(url: str, tmp_path: Path) -> None:
    mirror = FollowedMirror(url, config_of(tmp_path))
    mirror.prepare()
    log = tmp_path / "public" / "b" / "_delta_log" / f"{1:020}.json"
    log.write_text("{")
    run(url, "INSERT INTO a VALUES (2, 2)")
    [told] = [text for text in mirror.follow() if "waits" in text]
    assert "the lake's table b cannot be read or written, and others can" in told
    assert 2 in pl.read_delta(str(tmp_path / "public" / "a"))["id"]
    shutil.rmtree(tmp_path / "public" / "b")
    mirror.prepare()
    assert mirror.wrong() == []


@pytest.mark.parametrize("broken", ["*.metadata.json", "*-m0.avro"])
@pytest.mark.parametrize("text", ["", "{}"])
def test_an_iceberg_table_whose_metadata_cannot_be_read_waits_alone(
    broken: str, text: str, url: str, tmp_path: Path
) -> None:
    mirror = FollowedMirror(url, config_of(tmp_path, kind="iceberg"))
    mirror.prepare()
    for path in (tmp_path / "public" / "b").rglob(broken):
        path.write_text(text)
    run(url, "INSERT INTO a VALUES (2, 2)", "UPDATE b SET price = 2")
    [told] = [told for told in mirror.follow() if "waits" in told]
    assert "the lake's table b cannot be read or written, and others can" in told
    assert 2 in read_table(tmp_path / "public" / "a", "iceberg")["id"]
    shutil.rmtree(tmp_path / "public" / "b")
    mirror.prepare()
    assert mirror.wrong() == []


def test_a_folder_that_cannot_be_read_lets_only_its_new_table_wait(url: str, tmp_path: Path) -> None:
    mirror = FollowedMirror(url, config_of(tmp_path))
    mirror.prepare()
    log = tmp_path / "public" / "young" / "_delta_log" / f"{0:020}.json"
    log.parent.mkdir(parents=True)
    log.write_text("{")
    run(url, "CREATE TABLE young (id int PRIMARY KEY)")
    _, tables, told = mirror.prepare()
    assert set(tables) == {A, B}
    [waits] = [text for text in told.texts if "waits" in text]
    assert "the lake's table young cannot be read or written, and others can" in waits
