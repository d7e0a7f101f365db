"""Does a fault leave a mirror right, or say so?"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace.capture import LogOrigin, Offset
from headrace.config.mirror import Format, MirrorConfig, MirroredTables, Mode
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError, Kind
from headrace.mirror import run
from headrace.mirror.lake import LakeTable
from headrace.mirror.mirrored_lake import MirroredLake
from headrace.mirror.net_changes import DELETED
from headrace.mirror.positions import PositionsTable
from headrace.mirror.run import MirrorRun
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.locks import SlotLock
from headrace.postgres.slot import drop_slot, read_slot
from headrace.reporter import SilentReporter
from headrace.spark.session import local_spark
from support import followed_mirror, stranger
from support.lake import FORMATS

SLOT = "mirror_faults"
TABLE = TableName("public", "t")
_SMALL_DISK = """
import json, subprocess, sys, threading
from headrace.config.mirror import MirrorConfig, MirroredTables
from headrace.errors import HeadraceError
from headrace.mirror.lake import reaching
from headrace.mirror.mirrored_lake import MirroredLake
from headrace.reporter import SilentReporter

url, folder = sys.argv[1:]
config = MirrorConfig(
    location=folder, slot="mirror_faults", publication="mirror_faults",
    tables=(MirroredTables(tables=("public.*",)),),
)
mirror = MirroredLake(url, config, SilentReporter(), threading.Event())
mirror.set_up()
found = []
for size in ("1m", "64m"):
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)
    try:
        with reaching(mirror.lake):
            mirror.prepare()
        found.append("loaded")
    except HeadraceError as error:
        found.append(error.kind.name)
found += [comparison.is_right for comparison in mirror.comparer().compare()]
print(json.dumps(found))
"""


SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, name text)",
    "INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 100000) AS i",
)


def mirror_of(
    url: str,
    folder: Path,
    *,
    excluded: tuple[str, ...] = (),
    mode: Mode = "current",
    kind: Format = "delta",
    kind_of: type[MirroredLake] = MirroredLake,
    sets_up: bool = True,
) -> MirroredLake:
    parts = (MirroredTables(tables=("public.*",), exclude_columns=excluded, mode=mode),)
    config = MirrorConfig(location=str(folder), format=kind, slot=SLOT, publication=SLOT, tables=parts)
    mirror = kind_of(url, config, SilentReporter(), threading.Event())
    if sets_up:
        mirror.set_up()
    return mirror


def test_a_slot_that_was_dropped_and_made_again_is_a_gap_until_everything_is_read_anew(
    url: str, tmp_path: Path
) -> None:
    mirror_of(url, tmp_path).prepare()
    with connect(url) as connection:
        drop_slot(connection, SLOT, timeout=60)
        execute(connection, "DELETE FROM t WHERE id % 2 = 0")
    with pytest.raises(HeadraceError, match="headrace mirror --reload") as refused:
        mirror_of(url, tmp_path)
    assert refused.value.kind is Kind.SLOT_UNKNOWN
    with connect(url) as connection:
        assert read_slot(connection, SLOT) is None, "a new one would look like one that another program moved"
        execute(connection, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", (SLOT,))
    mirror = mirror_of(url, tmp_path)
    with pytest.raises(HeadraceError, match="headrace mirror --reload"):
        mirror.prepare()
    mirror.notes.forget()
    mirror.prepare()
    [comparison] = mirror.comparer().compare()
    assert (comparison.rows, comparison.is_right) == (50_000, True)


def test_a_lake_that_is_older_than_a_querys_checkpoint_is_told(url: str, tmp_path: Path) -> None:
    """Where the slot is not confirmed up to there yet, the log alone does not tell."""
    now = "SELECT pg_current_wal_flush_lsn() - '0/0'"
    with connect(url) as connection:
        [(before,)] = execute(connection, now)
        mirror = mirror_of(url, tmp_path)
        mirror.prepare()
        execute(connection, "DELETE FROM t")
        [(behind,)] = execute(connection, now)
    mirror.notes.check_reached(Offset(int(before)).to_json())
    with pytest.raises(HeadraceError, match="table t lacks changes that the query's checkpoint") as raised:
        mirror.notes.check_reached(Offset(int(behind)).to_json())
    assert raised.value.kind is Kind.CONTINUITY


@pytest.mark.parametrize("mode", ["current", "history"])
def test_a_column_that_comes_to_be_mirrored_has_the_values_that_it_has(
    url: str, tmp_path: Path, mode: Mode
) -> None:
    mirror_of(url, tmp_path, excluded=("name",), mode=mode).prepare()
    mirror = mirror_of(url, tmp_path, mode=mode)
    mirror.prepare()
    [comparison] = mirror.comparer().compare()
    assert (comparison.rows, comparison.is_right) == (100_000, True)


def test_old_rows_of_partitions_get_the_default_of_an_added_column(url: str, tmp_path: Path) -> None:
    with connect(url) as connection:
        execute(connection, "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        execute(connection, "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (100)")
        execute(connection, "CREATE TABLE high (note int, id int NOT NULL)")
        execute(connection, "ALTER TABLE high DROP COLUMN note")  # its columns have other numbers
        execute(connection, "ALTER TABLE parted ATTACH PARTITION high FOR VALUES FROM (100) TO (200)")
        execute(connection, "INSERT INTO parted SELECT generate_series(0, 199)")
        mirror_of(url, tmp_path).prepare()
        execute(connection, "ALTER TABLE parted ADD COLUMN more text DEFAULT 'of old', ADD COLUMN none int")
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    found = {comparison.table.name: comparison for comparison in mirror.comparer().compare()}
    assert (found["parted"].rows, found["parted"].wrong, found["parted"].is_right) == (200, 0, True)


def test_a_folder_of_another_mode_or_program_is_left_alone(url: str, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "public" / "t", pa.table({"theirs": [1]}))
    assert "is a table that no mirror wrote" in waiting(mirror_of(url, tmp_path))
    shutil.rmtree(tmp_path / "public")
    mirror_of(url, tmp_path, mode="history").prepare()
    other = mirror_of(url, tmp_path)
    assert "was not written in the mode 'current'" in waiting(other)
    other.notes.forget()
    assert "was not written in the mode 'current'" in waiting(other), "also where all is read anew"


def waiting(mirror: MirroredLake) -> str:
    """Why tables wait behind a start; empty: none does."""
    mirror.prepare()
    return str(mirror.waiting.error() or "")


def test_what_was_written_while_a_table_was_not_published_is_read_at_the_next_start(
    url: str, tmp_path: Path
) -> None:
    mirror_of(url, tmp_path).prepare()
    with connect(url) as connection:
        execute(connection, f"ALTER PUBLICATION {SLOT} DROP TABLE t")
        execute(connection, "DELETE FROM t WHERE id % 2 = 0")
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    [comparison] = mirror.comparer().compare()
    assert (comparison.rows, comparison.wrong, comparison.is_right) == (50_000, 0, True)


def test_a_lake_belongs_to_one_slot(url: str, tmp_path: Path) -> None:
    mirror_of(url, tmp_path).prepare()
    other = MirrorConfig(
        location=str(tmp_path),
        slot=f"{SLOT}_other",
        publication=SLOT,
        tables=(MirroredTables(tables=("public.*",)),),
    )
    mirror = MirroredLake(url, other, SilentReporter(), threading.Event())
    for start in (mirror.set_up, mirror.prepare, mirror.notes.forget):
        with pytest.raises(HeadraceError, match=f"the mirror of another slot, {SLOT}") as refused:
            start()
        assert refused.value.kind is Kind.CONFIG
    with connect(url) as connection:
        assert read_slot(connection, other.slot) is None


def test_a_full_disk_ends_a_load_and_room_lets_it_go_on(url: str, tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = f"mount -t tmpfs -o size=1m tmpfs {folder}"
    if unshare is None or subprocess.run([unshare, "-rm", "sh", "-c", mount], check=False).returncode:
        pytest.skip("this system lets a test mount no file system of its own")
    script = tmp_path / "program.py"
    script.write_text(_SMALL_DISK)
    done = subprocess.run(
        [
            unshare,
            "-rm",
            "sh",
            "-c",
            f'{mount} && exec "$@"',
            "sh",
            sys.executable,
            str(script),
            url,
            str(folder),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [Kind.DISK.name, "loaded", True]


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_that_was_put_back_from_a_copy_is_read_again(url: str, tmp_path: Path, kind: Format) -> None:
    mirror_of(url, tmp_path, kind=kind).prepare()
    shutil.copytree(tmp_path / "public" / "t", tmp_path / "copy")
    with connect(url) as connection:
        execute(connection, "ALTER TABLE t ADD COLUMN more int DEFAULT 7")
    mirror_of(url, tmp_path, kind=kind).prepare()
    shutil.rmtree(tmp_path / "public" / "t")
    (tmp_path / "copy").rename(tmp_path / "public" / "t")
    why = str(mirror_of(url, tmp_path, kind=kind).plan().tables[0].why)
    assert re.search(r"\((version|snapshot) \d+ is in the place of \d+\)", why)
    mirror = mirror_of(url, tmp_path, kind=kind)
    mirror.prepare()
    assert [one.is_right for one in mirror.comparer().compare()] == [True]


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_that_a_killed_batch_wrote_alone_is_joined_as_it_was_before(
    url: str, tmp_path: Path, kind: Format
) -> None:
    mirror = mirror_of(url, tmp_path, kind=kind)
    mirror.prepare()
    before = noted_versions(mirror)
    lake = mirror.lake.open(TABLE)
    assert lake is not None
    with connect(url) as connection:
        execute(connection, "UPDATE t SET name = 'new' WHERE id = 1")
        [(end,)] = execute(connection, "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")
    rows = pa.table({"id": pa.array([1], pa.int32()), "name": ["new"], DELETED: [False]})
    lake.merge(rows, ["id"], (end - 1, 1))

    mirror = mirror_of(url, tmp_path, kind=kind)
    mirror.prepare()
    assert noted_versions(mirror) == before
    mirror.write(pa.table({}), Offset(end - 1).to_json() | LogOrigin("", 1, 0).to_json(), [])
    [position] = PositionsTable(mirror.lake, SLOT).read().tables.values()
    assert (position.version, position.complete < end - 1) == (before[TABLE], True)
    later = Offset(end).to_json() | LogOrigin("", 1, 0).to_json()
    mirror.write(pa.table({}), later, [])
    written = mirror.lake.open(TABLE)
    assert written is not None
    assert noted_versions(mirror) == {TABLE: written.version} != before


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
def test_a_log_that_lacks_what_a_killed_batch_wrote_alone_is_a_gap(
    url: str, tmp_path: Path, kind: Format
) -> None:
    """As after a failover: changes up to that position would be taken for written."""
    mirror = mirror_of(url, tmp_path, kind=kind)
    mirror.prepare()
    lake = mirror.lake.open(TABLE)
    assert lake is not None
    with connect(url) as connection:
        [(end,)] = execute(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
    rows = pa.table({"id": pa.array([1], pa.int32()), "name": ["of the old primary"], DELETED: [False]})
    lake.merge(rows, ["id"], (end + (1 << 30), 1))
    with pytest.raises(HeadraceError, match="restored to an earlier time") as refused:
        mirror_of(url, tmp_path, kind=kind).prepare()
    assert "--reload" in refused.value.remedy
    again = mirror_of(url, tmp_path, kind=kind)
    again.notes.forget()
    again.prepare()
    [comparison] = mirror.comparer().compare()
    assert comparison.is_right


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
def test_files_that_are_joined_during_a_merge_let_it_be_made_anew(
    url: str, tmp_path: Path, kind: Format
) -> None:
    mirror = mirror_of(url, tmp_path, kind=kind)
    mirror.prepare()
    rows = pa.table({"id": pa.array([1], pa.int32()), "name": ["new"], DELETED: [False]})
    for change, expected in ((stranger.rewrite, Kind.SINK_BUSY), (delete_two, Kind.CONTINUITY)):
        lake, other = mirror.lake.open(TABLE), mirror.lake.open(TABLE)
        assert lake is not None
        assert other is not None
        change(other)
        with pytest.raises(HeadraceError, match="another program has") as refused:
            lake.merge(rows, ["id"], (2**60, 1))
        assert refused.value.kind is expected


def delete_two(table: LakeTable) -> None:
    stranger.delete(table, "id = 2")


def noted_versions(mirror: MirroredLake) -> dict[TableName, int]:
    known = PositionsTable(mirror.lake, SLOT).read()
    return {name: position.version for name, position in known.tables.items()}


@pytest.mark.long
def test_two_mirrors_of_a_slot_take_turns_also_while_nobody_reads_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_OTHER_ENDS_WITHIN", 0.3)
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    with local_spark() as spark, SlotLock(url, SLOT):
        with pytest.raises(HeadraceError) as refused:
            followed_mirror.run_mirror(mirror, spark)
        assert refused.value.kind is Kind.SLOT_IN_USE
        with pytest.raises(HeadraceError, match="Stop it, and repair then"):
            list(mirror.comparer().compare(repair=True))


class Disturbed(MirroredLake):
    """A mirror whose table leaves the publication for a while, right behind its load."""

    def prepare(self) -> list[TableName]:
        tables = super().prepare()
        followed_mirror.run(
            self.url,
            f"ALTER PUBLICATION {SLOT} DROP TABLE t",
            "UPDATE t SET name = 'unpublished' WHERE id = 1",
            f"ALTER PUBLICATION {SLOT} ADD TABLE t",
            "UPDATE t SET name = 'published' WHERE id = 2",
        )
        return tables


@pytest.mark.long
def test_what_was_written_while_a_table_left_the_publication_behind_its_load_is_not_lost(
    url: str, tmp_path: Path
) -> None:
    with local_spark() as spark:
        with pytest.raises(HeadraceError, match=r"has lost the table public\.t for a while") as refused:
            followed_mirror.run_mirror(mirror_of(url, tmp_path, kind_of=Disturbed), spark)
        assert refused.value.kind is Kind.PUBLICATION, "which a mirror that goes on tries again"
        mirror = mirror_of(url, tmp_path)
        followed_mirror.run_mirror(mirror, spark)
    assert [one.is_right for one in mirror.comparer().compare()] == [True]


@pytest.mark.long
def test_one_run_reads_up_to_the_end_of_the_log_where_a_query_of_spark_is_one_batch(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before PySpark 4.2 each run wrote the same first batch, and the slot stayed where it was."""
    monkeypatch.setattr(run, "passes_position", lambda _: False)
    monkeypatch.setattr(run, "_BATCH_BYTES", 1 << 10)
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    with connect(url) as connection:
        for number in range(3):
            [(last,)] = execute(connection, "SELECT pg_current_wal_lsn() - '0/0'")
            execute(connection, f"UPDATE t SET name = 'again' WHERE id % 3 = {number} AND id < 100")
        with local_spark() as spark:
            followed_mirror.run_mirror(mirror, spark)
        facts = read_slot(connection, SLOT)
    assert facts is not None
    assert facts.confirmed_flush is not None
    assert facts.confirmed_flush > last
    assert [one.is_right for one in mirror.comparer().compare()] == [True]


class Dropping(MirroredLake):
    """A mirror of which somebody drops a table at each start, right behind its load."""

    def prepare(self) -> list[TableName]:
        tables = super().prepare()
        followed_mirror.run(self.url, "DROP TABLE IF EXISTS gone")
        return tables


class Renaming(MirroredLake):
    """A mirror of which somebody renames a table that is followed, and goes on writing to it."""

    def prepare(self) -> list[TableName]:
        tables = super().prepare()
        followed_mirror.run(self.url, "INSERT INTO gone VALUES (1)")
        return tables

    def write(self, *given: Any) -> None:
        super().write(*given)
        renamed = "DO $$ BEGIN ALTER TABLE gone RENAME TO went; INSERT INTO went VALUES (2); END $$"
        followed_mirror.run(self.url, renamed)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "told"), [(Dropping, "there is no table"), (Renaming, "the table gone was renamed to went")]
)
def test_a_table_that_is_dropped_or_renamed_does_not_end_a_mirror(
    kind: type[MirroredLake], told: str, url: str, tmp_path: Path
) -> None:
    followed_mirror.run(url, "CREATE TABLE gone (id int PRIMARY KEY)")
    report = UntilWarned()
    parts = (MirroredTables(tables=("public.*",)),)
    config = MirrorConfig(location=str(tmp_path), slot=SLOT, publication=SLOT, tables=parts, interval="100ms")
    with local_spark() as spark:
        MirrorRun(kind(url, config, report, report.stopping), report, report.stopping).run(spark)
        mirror = mirror_of(url, tmp_path)
        followed_mirror.run_mirror(mirror, spark)
    assert told in report.text
    assert "trying again" in report.text
    assert all(one.is_right for one in mirror.comparer().compare())


class UntilWarned(SilentReporter):
    """Stops a mirror at its first warning."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.text = ""

    def warning(self, text: str) -> None:
        self.text = text
        self.stopping.set()


def test_a_table_that_is_created_behind_the_publishing_is_loaded_once_it_is_published(
    url: str, tmp_path: Path
) -> None:
    mirror = mirror_of(url, tmp_path)
    followed_mirror.run(url, "CREATE TABLE late (id int PRIMARY KEY)", "INSERT INTO late VALUES (1)")
    assert mirror.prepare() == [TABLE]
    followed_mirror.run(url, "INSERT INTO late VALUES (2)")
    assert mirror.is_altered()
    mirror.set_up()
    assert {*mirror.prepare()} == {TableName("public", "late"), TABLE}
    assert not mirror.is_altered()
    assert all(one.is_right for one in mirror.comparer().compare())


@pytest.mark.long
def test_a_new_table_that_somebody_writes_to_does_not_end_a_mirror(url: str, tmp_path: Path) -> None:
    mirror_of(url, tmp_path).prepare()
    followed_mirror.run(url, "CREATE TABLE filling (id int PRIMARY KEY)")
    report = UntilWarned()
    parts = (MirroredTables(tables=("public.*",)),)
    config = MirrorConfig(location=str(tmp_path), slot=SLOT, publication=SLOT, tables=parts)
    with connect(url, autocommit=False) as writer, local_spark() as spark:
        execute(writer, "INSERT INTO filling VALUES (1)")
        mirrored = MirroredLake(url, config, report, report.stopping)
        MirrorRun(mirrored, report, report.stopping).run(spark)
    assert "no lock within 5 s" in report.text
    assert "trying again" in report.text


def check_reload_mends(url: str, folder: Path, kind: Kind, *, shows: bool = True) -> None:
    """A mirror ends with an error of this kind, which names `--reload`; that mends the table.

    Check and verify end so as well, where the server shows what is wrong.
    """
    with local_spark() as spark:
        for ask in (
            lambda mirror: followed_mirror.run_mirror(mirror, spark),
            *((MirroredLake.plan, lambda mirror: [*mirror.comparer().compare()]) if shows else ()),
        ):
            with pytest.raises(HeadraceError, match=r"[Rr]un `headrace mirror --reload`") as refused:
                ask(mirror_of(url, folder, sets_up=False))
            assert refused.value.kind is kind
            assert "teardown" not in refused.value.remedy
            assert "Without a deployment" not in refused.value.remedy
        mirror = mirror_of(url, folder, sets_up=False)
        followed_mirror.run_mirror(mirror, spark, reload=True)
    assert [one.is_right for one in mirror.comparer().compare()] == [True]


@pytest.mark.long
def test_a_lost_slot_is_made_again_by_a_reload(
    make_server: Callable[..., EmbeddedPostgres], tmp_path: Path
) -> None:
    url = make_server(max_slot_wal_keep_size="1MB").create_database("shop")
    followed_mirror.run(url, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror_of(url, tmp_path).prepare()
    for _ in range(3):
        followed_mirror.run(url, "SELECT pg_logical_emit_message(false, '', repeat('x', 1000000))")
        followed_mirror.run(url, "SELECT pg_switch_wal()", "CHECKPOINT")
    check_reload_mends(url, tmp_path, Kind.SLOT_LOST)


@pytest.mark.long
def test_log_that_was_removed_behind_the_servers_back_is_told_with_what_to_run(
    make_server: Callable[..., EmbeddedPostgres], tmp_path: Path
) -> None:
    """The server shows the slot as sound."""
    url = make_server().create_database("shop")
    followed_mirror.run(url, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror_of(url, tmp_path).prepare()
    followed_mirror.run(url, "SELECT pg_switch_wal()")
    followed_mirror.run(url, "INSERT INTO t VALUES (2)")
    with connect(url) as connection:
        [(name, folder)] = execute(
            connection, "SELECT pg_walfile_name(pg_current_wal_lsn()), current_setting('data_directory')"
        )
        execute(connection, "SELECT pg_switch_wal()")
        execute(connection, "CHECKPOINT")
        (Path(folder) / "pg_wal" / name).unlink()
    check_reload_mends(url, tmp_path, Kind.SLOT_LOST, shows=False)


@pytest.mark.long
def test_a_slot_without_its_publication_is_told_with_what_to_run(url: str, tmp_path: Path) -> None:
    mirror_of(url, tmp_path).prepare()
    followed_mirror.run(url, f"DROP PUBLICATION {SLOT}")
    check_reload_mends(url, tmp_path, Kind.PUBLICATION)


def test_positions_that_another_mirror_wrote_are_not_overwritten(url: str, tmp_path: Path) -> None:
    mirror, other = mirror_of(url, tmp_path), mirror_of(url, tmp_path)
    mirror.prepare()
    other.prepare()
    origin = LogOrigin("", 1, 0).to_json()
    mirror.write(pa.table({}), Offset(2**40).to_json() | origin, [])
    with pytest.raises(HeadraceError, match="another mirror has written headrace_positions") as refused:
        other.write(pa.table({}), Offset(2**30).to_json() | origin, [])
    assert refused.value.kind is Kind.CONTINUITY


def test_columns_with_names_of_the_mirrors_are_refused(url: str, tmp_path: Path) -> None:
    with connect(url) as connection:
        execute(connection, "CREATE TABLE strange (id int PRIMARY KEY, __headrace_deleted text)")
    found = waiting(mirror_of(url, tmp_path))
    assert (
        "column __headrace_deleted of strange cannot be mirrored: names that begin with __headrace_" in found
    )


def test_columns_that_differ_in_case_alone_are_refused(url: str, tmp_path: Path) -> None:
    with connect(url) as connection:
        execute(connection, 'ALTER TABLE t ADD COLUMN "Name" int')
    assert "column Name of t cannot be mirrored: name differs from it in case alone" in waiting(
        mirror_of(url, tmp_path)
    )
    mirror_of(url, tmp_path, excluded=("Name",)).prepare()
