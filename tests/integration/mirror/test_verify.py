"""Does a comparison of lake and database find what differs, that alone, and repair it?"""

from __future__ import annotations

import re
import shutil
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.config.mirror import MirrorConfig, MirroredTables
from headrace.errors import HeadraceError
from headrace.mirror import verify
from headrace.mirror.lake import known_position
from headrace.mirror.mirrored_lake import MirroredLake
from headrace.mirror.net_changes import DELETED
from headrace.mirror.positions import PositionsTable
from headrace.mirror.verify import LakeComparer, TableComparison
from headrace.mirror.versions import IS_CURRENT
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.locks import SlotLock
from headrace.postgres.slot import drop_slot
from headrace.reporter import SilentReporter
from support import stranger
from support.followed_mirror import FollowedMirror
from support.lake import MAIN_FORMAT

SLOT = "mirror_verify"
WIDE = TableName("public", "wide")
_CREATE = """
CREATE TABLE {} (id int, part text, amount numeric(12,2), precise numeric, made timestamptz, plain timestamp,
                 day date, good bool, score float8, small real, tags text[], doc jsonb, raw bytea,
                 PRIMARY KEY (id, part))
"""
_FILL = """
INSERT INTO {}
SELECT i, 'p' || i % 3, i / 7.0, i / 3.0, now(), now(), now(), i % 2 = 0,
       CASE WHEN i % 5 = 0 THEN 'NaN' ELSE i / 9.0 END, i / 11.0, ARRAY['a', NULL, i::text],
       jsonb_build_object('i', i), decode(md5(i::text), 'hex')
FROM generate_series(1, 3000) AS i
"""


@pytest.fixture(params=MAIN_FORMAT)
def config(tmp_path: Path, request: pytest.FixtureRequest) -> MirrorConfig:
    parts = (
        MirroredTables(tables=("public.versions",), mode="history"),
        MirroredTables(tables=("public.events",), mode="changes"),
        MirroredTables(tables=("public.wide",), exclude_columns=("doc",), where="id > 5"),
    )
    location = str(tmp_path / "lake")
    return MirrorConfig(location=location, format=request.param, slot=SLOT, publication=SLOT, tables=parts)


@pytest.fixture
def mirror(database: str, config: MirrorConfig) -> Iterator[MirroredLake]:
    with connect(database) as connection:
        for table in ("wide", "versions", "events"):
            execute(connection, _CREATE.format(table))
            execute(connection, _FILL.format(table))
        execute(connection, "INSERT INTO wide (id, part) VALUES (-1, 'n'), (9999, 'n')")
        mirror = MirroredLake(database, config, SilentReporter(), threading.Event())
        mirror.set_up()
        mirror.prepare()
        yield mirror
        drop_slot(connection, SLOT, timeout=60)


def let_stranger_delete(mirror: MirroredLake, table: TableName) -> None:
    """Let somebody else delete a row of a lake's table."""
    lake = mirror.lake.open(table)
    assert lake is not None
    stranger.delete(lake, "id = 20")


def test_equal_tables_are_right(mirror: MirroredLake) -> None:
    found = compare(mirror)
    assert found["events"].compared is False
    assert [(found[name].rows, found[name].wrong, found[name].is_right) for name in ("versions", "wide")] == [
        (3000, 0, True),
        (2996, 0, True),
    ]


@pytest.mark.parametrize("name", ["wide", "versions"])
def test_each_kind_of_difference_is_named_and_repaired(mirror: MirroredLake, name: str) -> None:
    lake = mirror.lake.open(TableName("public", name))
    assert lake is not None
    keys = pa.table({"id": pa.array([7, 8], pa.int32()), "part": ["p1", "p2"]})
    gone = keys.append_column(DELETED, pa.array([True, True]))
    lake.merge(gone, ["id", "part"], known_position(lake))
    lake = mirror.lake.open(TableName("public", name))
    assert lake is not None
    more = pa.table({"id": pa.array([77777], pa.int32()), "part": ["x"], DELETED: [False]})
    if name == "versions":
        more = more.append_column(IS_CURRENT, pa.array([True]))
    lake.merge(more, ["id", "part"], known_position(lake))
    lake = mirror.lake.open(TableName("public", name))
    assert lake is not None
    stranger.set_value(lake, "id = 20 AND part = 'p2'", "score", 0.25)

    found = compare(mirror)[name]
    assert (found.missing, found.surplus) == ([(7, "p1"), (8, "p2")], [(77777, "x")])
    assert found.different == [(20, "p2")]
    assert not found.is_right

    repaired = compare(mirror, repair=True)[name]
    assert (repaired.wrong, repaired.repaired, repaired.is_right) == (4, 4, True)
    assert compare(mirror)[name].wrong == 0
    mirror.prepare()
    assert compare(mirror)[name].is_right


def again(mirror: MirroredLake) -> MirroredLake:
    """The next process."""
    return MirroredLake(mirror.url, mirror.config, SilentReporter(), threading.Event())


@pytest.mark.long
def test_a_table_that_another_program_wrote_is_read_again(
    mirror: MirroredLake, config: MirrorConfig, database: str
) -> None:
    lake = mirror.lake.open(WIDE)
    assert lake is not None
    stranger.rewrite(lake)
    mirror.prepare()
    let_stranger_delete(mirror, WIDE)
    with connect(database) as connection:  # what waits in the log does not keep a repair from its work
        execute(connection, "UPDATE wide SET good = NOT good WHERE id = 30")
    repaired = compare(mirror, repair=True)["wide"]
    assert (repaired.undecided, repaired.is_right) == (0, True)
    for _ in range(2):
        assert not [text for text in FollowedMirror(database, config).prepare()[2].texts if "loading" in text]
        assert compare(mirror)["wide"].is_right


@pytest.mark.parametrize("name", ["wide", "versions", pytest.param("events", marks=pytest.mark.long)])
def test_a_table_that_was_put_back_from_an_older_copy_is_read_again_unless_it_has_a_past(
    mirror: MirroredLake, config: MirrorConfig, database: str, name: str, tmp_path: Path
) -> None:
    table = TableName("public", name)
    folder = Path(mirror.lake.path(table))
    shutil.copytree(folder, tmp_path / "copy")
    with connect(database) as connection:
        for score in (1, 2):  # the first is in the database no more
            execute(connection, f"UPDATE {name} SET score = {score} WHERE id = 20")
            FollowedMirror(database, config).follow()
        confirm_noted(connection, again(mirror))
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)

    _, _, told = FollowedMirror(database, config).prepare()
    assert [text for text in told.texts if f"has written the lake's table {name} (" in text]
    if name != "wide":
        for _ in range(2):
            mirror = again(mirror)
            mirror.prepare()
            waits = rf"has written the lake's table {name} .*mirror verify public.{name} --repair"
            assert re.search(waits, str(mirror.waiting.error()))
        [repaired] = again(mirror).comparer().compare([table], repair=True)
        assert (repaired.read_again, repaired.is_right) == (True, True)
    mirror = again(mirror)
    mirror.prepare()
    assert mirror.waiting.error() is None
    assert compare(mirror)[name].is_right


def test_a_repair_says_of_other_tables_nothing_that_they_lack(mirror: MirroredLake) -> None:
    """One is behind the stream that goes on from where it was, and a start has written nothing of it yet."""
    versions = TableName("public", "versions")
    behind = replace(mirror.notes.positions.tables[versions], complete=8)
    mirror.notes.positions = replace(
        mirror.notes.positions, tables={**mirror.notes.positions.tables, versions: behind}
    )
    mirror.notes.table.write(mirror.notes.positions)
    let_stranger_delete(mirror, WIDE)
    [repaired] = again(mirror).comparer().compare([WIDE], repair=True)
    assert repaired.is_right
    assert mirror.notes.table.read().tables[versions] == behind


def test_a_table_that_left_the_publication_behind_a_repair_is_read_again(mirror: MirroredLake) -> None:
    table = TableName("public", "versions")
    let_stranger_delete(mirror, table)
    mirror.prepare()
    mirror.prepare()
    assert mirror.waiting.is_held(table), "so the stream goes on without it"
    [repaired] = mirror.comparer().compare([table], repair=True)
    assert repaired.is_right
    with connect(mirror.url) as connection:
        execute(connection, f"ALTER PUBLICATION {SLOT} DROP TABLE versions")
        execute(connection, "DELETE FROM versions WHERE id = 30")
        execute(connection, f"ALTER PUBLICATION {SLOT} ADD TABLE versions")
    again(mirror).prepare()
    [found] = mirror.comparer().compare([table])
    assert found.is_right


def test_a_repaired_table_waits_no_more(mirror: MirroredLake) -> None:
    """Also where the mirror's own process repairs it."""
    table = TableName("public", "versions")
    let_stranger_delete(mirror, table)
    mirror.prepare()
    assert mirror.waiting.error() is not None
    [repaired] = mirror.comparer().compare([table], repair=True)
    assert repaired.is_right
    assert mirror.waiting.error() is None
    noted, lake = mirror.notes.table.read().tables[table], mirror.lake.open(table)
    assert lake is not None
    assert (noted.waits_for, noted.version) == (None, lake.version)


def test_a_table_that_was_taken_out_of_the_file_is_left_out(mirror: MirroredLake) -> None:
    """Also one that a pattern matches, and `exclude` takes out."""
    _, *others = mirror.config.tables
    rest = MirroredTables(tables=("public.*",), exclude=("public.versions",))
    for parts in (others, [*others, rest]):
        other = with_parts(mirror, *parts)
        found = compare(other)
        assert [(name, found[name].is_right) for name in found] == [("events", True), ("wide", True)]
        with pytest.raises(HeadraceError, match="no table versions that the file mirrors"):
            list(other.comparer().compare([TableName("public", "versions")]))


def test_an_adoption_reads_no_table_that_was_taken_out_of_the_file(mirror: MirroredLake) -> None:
    other = with_parts(mirror, *mirror.config.tables[1:])
    with pytest.raises(HeadraceError, match="nothing to adopt"), other.plan_adoption():
        pass


@pytest.mark.parametrize("repair", [False, True])
def test_a_table_that_the_file_wants_in_another_mode_waits(mirror: MirroredLake, repair: bool) -> None:
    versions, events, wide = mirror.config.tables
    parts = [
        MirroredTables(tables=versions.tables),
        MirroredTables(tables=events.tables, soft_delete=True),
        MirroredTables(tables=wide.tables, mode="history", exclude_columns=("doc",), where="id > 5"),
    ]
    found = compare(with_parts(mirror, *parts), repair=repair)
    assert [*found] == ["events", "versions", "wide"]
    for name, one in found.items():
        assert f"the lake's table {name} was not written in the mode" in str(one.waits_for)
        assert (one.wrong, one.read_again, one.is_right) == (0, False, False)
    assert all(found.is_right for found in compare(mirror).values())


def with_parts(mirror: MirroredLake, *parts: MirroredTables) -> MirroredLake:
    """The same lake under a changed file."""
    config = mirror.config.model_copy(update={"tables": parts})
    return MirroredLake(mirror.url, config, SilentReporter(), threading.Event())


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
def test_many_changes_on_their_way_take_little_memory(database: str, tmp_path: Path, key: str) -> None:
    """Beside what it takes to read the rows."""
    with connect(database) as connection:
        execute(connection, f"CREATE TABLE many (id int {key}, v text)")
        execute(connection, "ALTER TABLE many REPLICA IDENTITY FULL")
        execute(
            connection, "INSERT INTO many SELECT i, repeat(md5(i::text), 3) FROM generate_series(1, 20000) i"
        )
        part = MirroredTables(tables=("public.many",))
        mirror, *_ = FollowedMirror.of(database, tmp_path, SLOT, part).prepare()
        right, reading = traced(mirror)
        assert right.is_right
        execute(connection, "UPDATE many SET v = v || '!'")
        found, comparing = traced(mirror)
        drop_slot(connection, SLOT, timeout=60)
    assert found.undecided == (20_000 if key else 40_000)
    assert comparing - reading < 4 << 20


def traced(mirror: MirroredLake) -> tuple[TableComparison, int]:
    """What a comparison of the only table found, and how many bytes of Python's it took at most."""
    tracemalloc.start()
    try:
        [found] = mirror.comparer().compare()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_rows_without_a_key_are_told_apart_by_all_that_they_show(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LakeComparer, "_await_complete", lambda *_: True)
    with connect(database) as connection:
        execute(connection, "CREATE TABLE equals (n float8, v text)")
        execute(connection, "ALTER TABLE equals REPLICA IDENTITY FULL")
        execute(connection, "INSERT INTO equals SELECT i % 4, 'v' FROM generate_series(1, 16) i")
        part = MirroredTables(tables=("public.equals",))
        mirror, *_ = FollowedMirror.of(database, tmp_path, SLOT, part).prepare()
        for change in (
            "DELETE FROM equals WHERE n = 1",
            "DELETE FROM equals WHERE ctid = '(0,2)'",
            "INSERT INTO equals VALUES ('-0', 'v'), ('-0', 'v'), (2, NULL), (3, 'v')",
        ):
            execute(connection, change)
        [found] = mirror.comparer().compare()
        drop_slot(connection, SLOT, timeout=60)
    assert found.surplus == [("{'n': 1.0, 'v': 'v'}",)]
    assert found.missing == [("{'n': -0.0, 'v': 'v'}",), ("{'n': 2.0, 'v': None}",)]
    assert found.different == [("{'n': 2.0, 'v': 'v'}",), ("{'n': 3.0, 'v': 'v'}",)]


def test_of_many_wrong_rows_some_keys_are_kept_and_all_are_counted(
    mirror: MirroredLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_MOST_KEYS", 3)
    lake = mirror.lake.open(WIDE)
    assert lake is not None
    ids = range(6, 2006)
    gone = pa.table({"id": pa.array(ids, pa.int32()), "part": [f"p{i % 3}" for i in ids]})
    gone = gone.append_column(DELETED, pa.repeat(True, len(gone)))  # noqa: FBT003 - a value
    lake.merge(gone, ["id", "part"], known_position(lake))
    found = compare(mirror)["wide"]
    assert found.counts == {"missing": 2000, "surplus": 0, "different": 0}
    assert (found.wrong, len(found.missing)) == (2000, 3)
    repaired = compare(mirror, repair=True)["wide"]
    assert (repaired.repaired, repaired.is_right) == (2000, True)


def test_a_change_that_is_not_written_yet_is_no_difference(mirror: MirroredLake, database: str) -> None:
    with connect(database) as connection:
        execute(connection, "UPDATE wide SET good = NOT good WHERE id = 30")
    found = compare(mirror)["wide"]
    assert (found.wrong, found.undecided, found.is_right) == (0, 1, False)


@pytest.mark.long
def test_a_mirror_that_does_not_read_the_slot_right_now_runs(
    mirror: MirroredLake, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_WAIT_SECONDS", 3.0)
    with connect(database) as connection, SlotLock(database, SLOT):
        execute(connection, "UPDATE wide SET good = NOT good WHERE id = 30")
        began = time.monotonic()
        assert compare(mirror)["wide"].undecided == 1
    assert time.monotonic() - began >= 3.0, "it was not waited for"


def test_a_row_that_came_and_went_on_its_way_is_no_difference(
    mirror: MirroredLake, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lake gets to know of it when it is gone, from one batch."""
    with connect(database) as connection:
        execute(connection, "INSERT INTO wide (id, part) VALUES (55555, 'x')")

        def let_it_go(*_: object) -> bool:
            execute(connection, "DELETE FROM wide WHERE id = 55555")
            return True

        monkeypatch.setattr(LakeComparer, "_await_complete", let_it_go)
        found = compare(mirror)["wide"]
    assert (found.missing, found.is_right) == ([], True)


@pytest.mark.long
def test_a_table_that_is_altered_beside_a_running_mirror_is_compared_once_the_mirror_has_followed(
    mirror: MirroredLake, database: str
) -> None:
    with connect(database) as connection:
        execute(connection, "ALTER TABLE wide ADD later int DEFAULT 7")
        found = compare(mirror)
        assert "does not have the columns of the database's yet" in str(found["wide"].waits_for)
        assert found["versions"].is_right, "the others are compared"
        with SlotLock(database, SLOT):  # as a mirror that runs has it
            following = threading.Timer(1.0, mirror.prepare)
            following.start()
            found = compare(again(mirror))
            following.join()
    assert found["wide"].is_right


def test_an_unknown_table_is_refused_by_name(mirror: MirroredLake) -> None:
    with pytest.raises(HeadraceError, match=r"the lake has no table wrong"):
        list(mirror.comparer().compare([TableName("public", "wrong")]))


def confirm_noted(connection: Connection, mirror: MirroredLake) -> None:
    """Confirm what the lake has, once the server has noticed that nobody reads the slot any more."""
    end = time.monotonic() + 30
    active = "SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active"
    while execute(connection, active, (SLOT,)):
        assert time.monotonic() < end, "the slot is read"
        time.sleep(0.05)
    stream = PositionsTable(mirror.lake, SLOT).read().stream
    assert stream is not None
    execute(connection, "SELECT pg_replication_slot_advance($1, $2::pg_lsn)", (SLOT, stream["lsn"]))


def compare(mirror: MirroredLake, *, repair: bool = False) -> dict[str, TableComparison]:
    return {found.table.name: found for found in mirror.comparer().compare(repair=repair)}


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"no Parquet file")])
def test_a_table_whose_files_cannot_be_read_is_not_compared_and_the_others_are(
    mirror: MirroredLake, damage: Callable[[Path], object]
) -> None:
    for path in Path(mirror.lake.path(WIDE)).rglob("*.parquet"):
        damage(path)
    found = compare(mirror)
    assert "wide cannot be read or written" in str(found["wide"].waits_for)
    assert (found["versions"].rows, found["versions"].is_right) == (3000, True)
