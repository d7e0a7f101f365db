"""Does a Spark session's own Delta or Iceberg write what this process writes, position included?

On PySpark 4.0 to 4.2, Iceberg up to 4.1: there is none for a later one (2026-11-29).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyspark
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.utils.config import Config
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import headrace.spark
from headrace import PostgresSource
from headrace.catalog.fingerprint import Fingerprint
from headrace.config.mirror import Format, MirrorConfig, MirroredTables
from headrace.errors import HeadraceError, Kind
from headrace.mirror import into
from headrace.mirror.columns import with_metadata
from headrace.mirror.iceberg.lake import IcebergLake
from headrace.mirror.iceberg.table import IcebergTable
from headrace.mirror.lake import Lake, LakeTable
from headrace.mirror.load_units import LoadUnit
from headrace.mirror.merge_session import MergeSession
from headrace.mirror.merging import Merge
from headrace.mirror.mirrored_lake import MirroredLake
from headrace.mirror.modes import LoadMoment
from headrace.mirror.net_changes import DELETED
from headrace.mirror.python_values import python_rows, python_values
from headrace.mirror.selection import Selection
from headrace.mirror.spark_loading import ExecutorLoader
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import drop_slot
from headrace.reporter import SilentReporter
from headrace.spark.lake_runtimes import DELTA, ICEBERG, LakeRuntime
from headrace.spark.session import local_spark
from integration.datasources.driven import Query
from integration.mirror.test_readers import READERS, compare_readers
from support import stranger
from support.followed_mirror import FollowedMirror, run
from support.lake import lake_at, read_table
from support.slots import prepared_database
from unit.mirror.test_lakes import KEYS

_RUNTIMES: dict[Format, LakeRuntime] = {"delta": DELTA, "iceberg": ICEBERG}
FORMATS = [form for form, runtime in _RUNTIMES.items() if runtime.packages(pyspark.__version__)]
ICEBERG_ALONE = pytest.mark.parametrize("form", sorted({*FORMATS} & {"iceberg"}))
pytestmark = pytest.mark.skipif(not FORMATS, reason="there is neither Delta nor Iceberg for this PySpark")

TABLE = TableName("public", "t")
GUIDE = Path(__file__).parents[3] / "docs/guides/mirror.md"
_SLOT = "mirror_spark"
_SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
SCHEMA = pa.schema([pa.field("k", pa.int64(), metadata={"a": "b"}), pa.field("v", pa.int64())])


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with Delta, and with Iceberg where there is one."""
    given = {"spark.sql.shuffle.partitions": "2"}
    for form in FORMATS:
        given = _RUNTIMES[form].with_settings(given, os.environ)
    with local_spark(master="local[2]", given=given) as one:
        yield one.session


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Format:
    """The lake's format."""
    kind: Format = request.param
    return kind


@pytest.fixture
def lake(spark: SparkSession, form: Format, tmp_path: Path) -> Lake:
    """A lake with a table of ten rows."""
    lake = lake_at(tmp_path / "l ä ke", form, spark)
    batch = pa.RecordBatch.from_pydict({"k": range(10), "v": range(10)}, SCHEMA)
    lake.commit(TABLE, SCHEMA, lake.write(TABLE, SCHEMA, [batch]), (5, 1))
    return lake


def opened(lake: Lake) -> LakeTable:
    table = lake.open(TABLE)
    assert table is not None
    return table


def merge(table: LakeTable, key: int, value: int, position: tuple[int, int]) -> None:
    table.merge(pa.table({"k": [key], "v": [value], DELETED: [False]}), ["k"], position)


def stored(lake: Lake) -> dict[Any, Any]:
    """The rows by key, each of which must be there once."""
    rows = [row for batch in opened(lake).rows() for row in python_rows(batch)]
    found = {row["k"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def append(location: str, form: Format) -> None:
    """Write a row as another program does; also in a worker, which cannot import the tests."""
    rows = pa.table({"k": [99], "v": [99]})
    if form == "delta":
        write_deltalake(f"{location}/{TABLE.schema}/{TABLE.name}", rows, mode="append")
    else:
        found = IcebergLake(location).open(TABLE)
        assert found is not None
        found.table.append(rows)


def test_a_session_that_was_used_stays_as_it_was(spark: SparkSession, lake: Lake, form: Format) -> None:
    spark.conf.set("fs.my.key", "mine")  # an object store's
    spark.conf.set("spark.sql.ansi.enabled", "false")
    conf = MergeSession(spark, {}).spark.conf
    assert [conf.get(name) for name in ("fs.my.key", "spark.sql.ansi.enabled")] == ["mine", "false"]
    lake = lake_at(lake.location, form, spark)
    merge(opened(lake), 1, 100, (6, 0))
    before = spark.conf.getAll  # Delta's first use has set two
    merge(opened(lake), 1, 101, (6, 1))
    assert spark.conf.getAll == before
    assert SparkSession.getActiveSession() is spark
    assert not spark.catalog.tableExists("headrace_rows")


@pytest.mark.parametrize("kind", KEYS)
def test_rows_are_changed_deleted_and_inserted_by_keys_of_any_type(
    kind: str, form: Format, spark: SparkSession, tmp_path: Path
) -> None:
    if (kind, form) == ("far day", "delta"):
        pytest.skip("deltalake: no such statistics")
    key_type, given = KEYS[kind]
    keys = python_values(pa.array(given, key_type))
    schema = pa.schema([pa.field("k", key_type), pa.field("v", pa.int64())])
    lake = lake_at(tmp_path, form, spark)
    files = []
    for value, key in enumerate(keys[:-1]):
        batch = pa.RecordBatch.from_pydict({"k": [key], "v": [value]}, schema)
        files += lake.write(TABLE, schema, [batch])
    lake.commit(TABLE, schema, files, (1, 0))
    values = [100 + number for number in range(len(keys))]
    deleted = [number % 2 == 1 and number < len(keys) - 1 for number in range(len(keys))]
    rows = pa.table({"k": pa.array(keys, key_type), "v": pa.array(values), DELETED: deleted})
    opened(lake).merge(rows, ["k"], (2, 0))
    assert stored(lake) == {
        key: value for key, value, gone in zip(keys, values, deleted, strict=True) if not gone
    }
    assert opened(lake).position == (2, 0)


def test_columns_may_have_any_name_and_keep_their_metadata(
    form: Format, spark: SparkSession, tmp_path: Path
) -> None:
    names = ["we ird", "a.b", "x,;{}()=", "`tick`", "${k}", 'quo"te', "Ünïcode", "select"]
    schema = pa.schema([pa.field(name, pa.string(), metadata={"a": name}) for name in names])
    lake = lake_at(tmp_path, form, spark)
    batch = pa.RecordBatch.from_pydict({name: ["1", "2"] for name in names}, schema)
    lake.commit(TABLE, schema, lake.write(TABLE, schema, [batch]), (1, 0))
    rows = pa.table({**{name: ["2", "3"] for name in names}, DELETED: [False, False]})
    opened(lake).merge(rows, names[:2], (2, 0))
    found = sorted(tuple(row.values()) for part in opened(lake).rows() for row in part.to_pylist())
    assert found == [("1",) * len(names), ("2",) * len(names), ("3",) * len(names)]
    assert opened(lake).schema == schema


def test_two_parts_of_a_transaction_are_two_commits(lake: Lake) -> None:
    """Their positions have one address, by which Spark would take the second for the first."""
    merge(opened(lake), 1, 100, (7, 1))
    merge(opened(lake), 1, 200, (7, 2))
    assert opened(lake).position == (7, 2)
    assert stored(lake)[1] == 200


@pytest.mark.parametrize("form", ["delta"])
def test_the_position_outlives_the_log_of_its_commit(lake: Lake) -> None:
    merge(opened(lake), 1, 100, (7, 1))
    table = DeltaTable(lake.path(TABLE))
    table.create_checkpoint()
    for file in Path(lake.path(TABLE), "_delta_log").glob("*.json"):
        file.unlink()
    assert opened(lake).position == (7, 1)


def test_a_killed_mirror_finds_the_position_of_a_sessions_commit(
    lake: Lake, form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed right after that commit, and files were joined then; a second engine goes on."""

    class Killed(BaseException):
        """Ends the mirror."""

    def reach(name: str) -> None:
        if name == "mirror_committed":
            raise Killed

    monkeypatch.setattr("headrace.mirror.lake.reach", reach)
    before = opened(lake).version
    with pytest.raises(Killed):
        merge(opened(lake), 1, 100, (8, 3))
    monkeypatch.undo()
    local = lake_at(lake.location, form)
    opened(local).join_files(1 << 20)
    assert opened(lake).position == (8, 3)
    assert opened(lake).find_other_commit(before) is None
    merge(opened(local), 1, 101, (8, 2))  # a position is what the last commit says, though it be lower
    assert opened(local).position == opened(lake).position == (8, 2)
    merge(opened(lake), 1, 102, (8, 4))
    assert opened(local).position == (8, 4)
    assert stored(lake)[1] == 102


@pytest.mark.parametrize("form", ["delta"])
def test_a_log_that_lost_the_position_says_none(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.mirror.delta_spark.keep_position", lambda *_: None)
    merge(opened(lake), 1, 100, (8, 3))
    table = DeltaTable(lake.path(TABLE))
    table.create_checkpoint()
    (Path(lake.path(TABLE)) / "_delta_log" / f"{table.version():020}.json").unlink()
    assert opened(lake).position is None


def test_a_second_writer_is_refused(lake: Lake, form: Format) -> None:
    table = opened(lake)
    append(lake.location, form)
    with pytest.raises(HeadraceError) as raised:
        merge(table, 1, 100, (9, 0))
    assert raised.value.kind is Kind.CONTINUITY
    other = opened(lake).find_other_commit(table.version)
    assert re.fullmatch({"delta": "WRITE, version 1", "iceberg": r"append, snapshot \d+"}[form], str(other))


def test_a_commit_while_a_session_merges_is_told(
    lake: Lake, form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are read only after another program has written the table."""
    location, done, rows_of = lake.location, Path(lake.location, "done"), MergeSession._rows

    @contextlib.contextmanager
    def interrupted(session: MergeSession, columns: StructType, rows: pa.Table) -> Iterator[None]:
        def interrupt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with contextlib.suppress(FileExistsError):
                done.touch(exist_ok=False)
                append(location, form)
            yield from batches

        with rows_of(session, columns, rows):
            frame = session.spark.table("headrace_rows")
            frame.mapInArrow(interrupt, frame.schema).createOrReplaceTempView("headrace_rows")
            yield

    # A worker cannot import the tests.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    monkeypatch.setattr(MergeSession, "_rows", interrupted)
    told = {"delta": r"MAX_COMMIT_RETRIES|CONCURRENT", "iceberg": "another program has written"}[form]
    with pytest.raises(HeadraceError, match=told) as raised:
        merge(opened(lake), 1, 100, (9, 0))
    assert raised.value.kind is Kind.CONTINUITY
    assert opened(lake).position == (5, 1)
    assert stored(lake) == {**{key: key for key in range(10)}, 99: 99}


def iceberg(lake: Lake) -> IcebergTable:
    table = opened(lake)
    assert isinstance(table, IcebergTable)
    return table


@ICEBERG_ALONE
def test_files_that_another_joins_meanwhile_are_no_second_writer(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged = MergeSession.merge

    def joined(session: MergeSession, target: str, columns: StructType, merge: Merge) -> Exception | None:
        stranger.rewrite(opened(lake))
        return merged(session, target, columns, merge)

    before = opened(lake).version
    monkeypatch.setattr(MergeSession, "merge", joined)
    merge(opened(lake), 1, 100, (6, 0))
    assert opened(lake).position == (6, 0)
    assert opened(lake).find_other_commit(before) is None
    assert stored(lake) == {**{key: key for key in range(10)}, 1: 100}


@ICEBERG_ALONE
def test_the_position_outlives_another_programs_upkeep(lake: Lake) -> None:
    merge(opened(lake), 1, 100, (6, 0))
    ended = [snapshot.snapshot_id for snapshot in iceberg(lake).table.metadata.snapshots]
    stranger.rewrite(opened(lake))
    iceberg(lake).table.maintenance.expire_snapshots().by_ids(ended).commit()
    assert opened(lake).position == (6, 0)


@ICEBERG_ALONE
@pytest.mark.parametrize("setting", ["write.merge.mode=merge-on-read", "write.format.default=orc"])
def test_a_table_of_other_files_is_merged_by_this_process(lake: Lake, setting: str) -> None:
    with iceberg(lake).table.transaction() as change:
        change.set_properties(dict([setting.split("=")]))
    merge(opened(lake), 1, 100, (6, 0))
    assert opened(lake).position == (6, 0)
    assert stored(lake) == {**{key: key for key in range(10)}, 1: 100}


@ICEBERG_ALONE
def test_retries_that_somebody_allowed_are_refused(lake: Lake) -> None:
    with iceberg(lake).table.transaction() as change:
        change.set_properties({"commit.retry.num-retries": "4"})
    with pytest.raises(HeadraceError, match="is not 0 any more"):
        merge(opened(lake), 1, 100, (6, 0))


@ICEBERG_ALONE
def test_a_day_that_is_no_partition_is_refused(form: Format, spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("k", pa.int64()), with_metadata(pa.field("d", pa.date32()), partition="0:day")]
    )
    lake = lake_at(tmp_path, form, spark)
    batch = pa.RecordBatch.from_pydict({"k": [1], "d": [dt.date(2026, 1, 1)]}, schema)
    lake.commit(TABLE, schema, lake.write(TABLE, schema, [batch]), (5, 1))
    rows = pa.table({"k": [1], "d": pa.array([10**7], pa.int32()).cast(pa.date32()), DELETED: [False]})
    with pytest.raises(HeadraceError) as raised:
        opened(lake).merge(rows, ["k"], (6, 0))
    assert raised.value.kind is Kind.VALUE


@ICEBERG_ALONE
def test_names_within_columns_outlive_a_program_that_writes_them_otherwise(
    form: Format, spark: SparkSession, tmp_path: Path
) -> None:
    """Java's writer has `unit_x20price` in a file for `unit price`."""
    odd = pa.struct([("unit price", pa.int64()), ("1st", pa.list_(pa.struct([("a$b", pa.string())])))])
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", odd)])
    values: list[Any] = [{"unit price": 1, "1st": [{"a$b": "x"}, None]}, None, {"unit price": 3, "1st": None}]
    lake = lake_at(tmp_path, form, spark)
    batch = pa.RecordBatch.from_pydict({"k": range(3), "v": values}, schema)
    lake.commit(TABLE, schema, lake.write(TABLE, schema, [batch]), (5, 1))
    opened(lake).merge(pa.table({"k": [0], "v": pa.array(values[:1], odd), DELETED: [False]}), ["k"], (6, 0))
    session = spark.newSession()
    for name, value in iceberg_folder(tmp_path).items():
        session.conf.set(name, value)
    session.sql("UPDATE headrace.public.t SET k = k + 10")
    found = [row for part in opened(lake).rows() for row in part.to_pylist()]
    assert sorted(found, key=lambda row: row["k"]) == [
        {"k": key + 10, "v": value} for key, value in enumerate(values)
    ]


def test_files_are_joined_and_the_position_stays(lake: Lake) -> None:
    first = opened(lake).version
    for number in range(5):
        batch = pa.RecordBatch.from_pydict({"k": [100 + number], "v": [0]}, SCHEMA)
        lake.commit(TABLE, SCHEMA, lake.write(TABLE, SCHEMA, [batch]), (10, number), adds=True)
    merge(opened(lake), 1, 100, (11, 0))
    before = stored(lake)
    assert opened(lake).join_files(1 << 20) == (6, 1)
    assert opened(lake).position == (11, 0)
    assert opened(lake).find_other_commit(first) is None
    assert stored(lake) == before


def test_a_query_of_ones_own_writes_by_its_sessions_delta(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """The history of two changes, then one after a new start of the query."""
    source = PostgresSource(
        url=database,
        slot=_SLOT,
        publication=_SLOT,
        tables="public.t",
        envelope="changes",
        unchanged_toast="mark",
        starting_offsets="earliest",
    )
    headrace.spark.register(spark)
    with connect(database) as connection:
        execute(connection, "CREATE TABLE t (id int PRIMARY KEY, name text)")
        execute(connection, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        for statement in ("UPDATE t SET name = 'c' WHERE id = 1", "DELETE FROM t WHERE id = 2"):
            written = into(tmp_path / "lake", source, tmp_path / "log", mode="history", engine="spark")
            stream = source.stream(spark).writeStream.option("checkpointLocation", f"{tmp_path}/log")
            query = stream.foreachBatch(written).start()
            query.processAllAvailable()
            execute(connection, statement)
            query.processAllAvailable()
            query.stop()
        Query.until_true(lambda: not execute(connection, f"{_SLOTS} AND active"))
        drop_slot(connection, _SLOT, timeout=60)
    frame = pl.read_delta(f"{tmp_path}/lake/public/t")
    assert sorted(frame.select("id", "name", "_is_current").rows()) == [
        (1, "a", False),
        (1, "c", True),
        (2, "b", False),
    ]
    operations = [one["operation"] for one in DeltaTable(f"{tmp_path}/lake/public/t").history()]
    assert operations.count("MERGE") == 2


def test_executors_load_tables_and_pass_on_what_the_database_says(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    with connect(database) as connection:
        execute(connection, "CREATE TABLE t (id int PRIMARY KEY, name text)")
        execute(connection, "INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 50000) AS i")
        parts = (MirroredTables(tables=("public.*",)),)
        config = MirrorConfig(
            location=str(tmp_path), engine="spark", slot=_SLOT, publication=_SLOT, tables=parts
        )
        mirror = MirroredLake(database, config, SilentReporter(), threading.Event())
        try:
            mirror.set_up()
            mirror.use(spark)
            before = jobs(spark)
            mirror.prepare()
            assert jobs(spark) - before
            assert [one.is_right for one in mirror.comparer().compare()] == [True]
            with ReadSession(database) as session:
                table = Selection(config).read(session, [TABLE])[TABLE]
        finally:
            drop_slot(connection, _SLOT, timeout=60)
    moment = LoadMoment(1, dt.datetime.now(dt.UTC))
    plain = replace(table, catalog=Fingerprint({}))
    unit = LoadUnit("postgresql://127.0.0.1:1/none", "no", plain, table.lake_schema, moment, ())
    with pytest.raises(HeadraceError) as raised:
        list(ExecutorLoader(spark)(mirror.lake, iter([unit])))
    assert raised.value.kind is Kind.CONNECTION


def test_a_damaged_table_waits_alone(
    form: Format, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """One whose rows are lost, while changes are merged; one that has no folder, while it is loaded."""
    with prepared_database(
        database,
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in "abc"),
        *(f"INSERT INTO {name} VALUES (1, 1)" for name in "abc"),
    ):
        parts = (MirroredTables(tables=("public.*",)),)
        config = MirrorConfig(
            location=str(tmp_path), format=form, engine="spark", slot=_SLOT, publication=_SLOT, tables=parts
        )
        mirror = FollowedMirror(database, config, session=spark)
        mirror.prepare()
        for path in (tmp_path / "public" / "b").rglob("*.parquet"):
            path.unlink()
        shutil.rmtree(tmp_path / "public" / "c")
        (tmp_path / "public" / "c").write_text("no folder")
        run(database, *(f"INSERT INTO {name} VALUES (2, 2)" for name in "abc"))
        run(database, *(f"UPDATE {name} SET v = 3 WHERE id = 1" for name in "abc"))
        told = mirror.follow()
        assert sorted(text.split(":")[0] for text in told if " waits: " in text) == [
            "the table b waits",
            "the table c waits",
        ]
        assert all(
            "cannot be read or written, and others can: " in text for text in told if " waits: " in text
        )
        assert sorted(read_table(tmp_path / "public" / "a", form).rows()) == [(1, 3), (2, 2)]
        (tmp_path / "public" / "c").unlink()
        mirror.prepare()
        mirror.follow()
        assert mirror.wrong() == []


def test_each_reader_finds_what_a_session_has_merged(
    form: Format, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    config = MirrorConfig(
        location=str(tmp_path),
        format=form,
        engine="spark",
        slot=_SLOT,
        publication=_SLOT,
        tables=(MirroredTables(tables=("public.*",)),),
    )

    def by_spark(path: Path) -> pa.Table:
        if form == "delta":
            return spark.read.format("delta").load(str(path)).toArrow()
        session = spark.newSession()
        for name, value in iceberg_folder(tmp_path).items():
            session.conf.set(name, value)
        return session.table(f"headrace.public.`{path.name}`").toArrow()

    compare_readers(database, config, {**READERS[form], "Spark": by_spark}, spark)


def iceberg_folder(folder: Path) -> dict[str, str]:
    """The settings by which Spark reads a lake in a folder, as the guide says."""
    [block] = re.findall(r"```\n(spark\.sql\.catalog\.headrace=.*?)```", GUIDE.read_text(), re.DOTALL)
    pairs = (line.split("=", 1) for line in block.replace("/srv/lake", str(folder)).splitlines())
    # The session is one of Headrace's own, whose local file system does not tell its name.
    own = {"fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem", "fs.file.impl.disable.cache": "true"}
    return dict(pairs) | {f"spark.sql.catalog.headrace.hadoop.{name}": value for name, value in own.items()}


def jobs(spark: SparkSession) -> set[int]:
    """The jobs without a group that the session still knows; it forgets old ones."""
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_a_session_without_delta_is_told_the_package_and_the_settings(spark: SparkSession) -> None:
    bare = spark.newSession()
    bare.conf.unset("spark.sql.catalog.spark_catalog")
    package = f"spark.jars.packages=io.delta:delta-spark_{spark.version[:3]}_2.13:4.4.0"
    with pytest.raises(HeadraceError, match=re.escape(package)) as raised:
        DELTA.check(bare)
    assert raised.value.kind is Kind.DEPENDENCY


@pytest.mark.skipif("iceberg" not in FORMATS, reason="there is no Iceberg for this PySpark")
def test_a_named_catalog_is_the_sessions_of_that_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, warehouse = tmp_path / "catalog.db", f"file://{tmp_path}/warehouse"
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{file}")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", warehouse)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read when it is imported
    with pytest.raises(HeadraceError, match=r"spark\.sql\.catalog\.shop=org\.apache\.iceberg") as raised:
        IcebergLake("catalog:shop", session=spark)
    assert raised.value.kind is Kind.DEPENDENCY
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.shop", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in {"type": "jdbc", "uri": f"jdbc:sqlite:{file}", "warehouse": warehouse}.items():
        session.conf.set(f"spark.sql.catalog.shop.{name}", value)
    lake = IcebergLake("catalog:shop", session=session)
    batch = pa.RecordBatch.from_pydict({"k": range(3), "v": range(3)}, SCHEMA)
    lake.commit(TABLE, SCHEMA, lake.write(TABLE, SCHEMA, [batch]), (5, 1))
    merge(opened(lake), 1, 100, (6, 0))
    assert stored(lake) == {0: 0, 1: 100, 2: 2}
    assert opened(lake).position == (6, 0)
