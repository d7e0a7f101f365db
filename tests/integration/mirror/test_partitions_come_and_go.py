"""Does a partition that comes, goes or is emptied change the lake by its own rows, and no other?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.config.mirror import Format, MirroredTables
from headrace.mirror import loading
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.snapshot.exporting import positioned_snapshot
from support.followed_mirror import FollowedMirror, Told, run
from support.lake import FORMATS
from support.slots import await_free, prepared_database

SLOT = "mirror_parts"
PARTED = TableName("public", "parted")
_SETUP = (
    "CREATE TABLE parted (id int, day date, name text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    "CREATE TABLE d1 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2026-01-02')",
    "CREATE TABLE d2 PARTITION OF parted FOR VALUES FROM ('2026-01-02') TO ('2026-01-03')",
    "CREATE TABLE d3 PARTITION OF parted FOR VALUES FROM ('2026-01-03') TO ('2026-01-04')",
    "INSERT INTO parted SELECT i, date '2026-01-01' + i % 3, 'n' || i FROM generate_series(0, 29) AS i",
)
_D1 = "FOR VALUES FROM ('2026-01-01') TO ('2026-01-02')"
ALTERED: dict[str, tuple[str, ...]] = {
    "detached": ("ALTER TABLE parted DETACH PARTITION d1",),
    "dropped": ("DROP TABLE d1",),
    "truncated": ("TRUNCATE d1",),
    "truncated and filled": ("TRUNCATE d1", "INSERT INTO parted VALUES (77, '2026-01-01', 'new')"),
    "dropped, made again and filled": (
        "DROP TABLE d1",
        f"CREATE TABLE d1 PARTITION OF parted {_D1}",
        "INSERT INTO parted VALUES (3, '2026-01-01', 'new'), (77, '2026-01-01', 'new')",
    ),
    "attached with rows": (
        "CREATE TABLE d4 (LIKE parted INCLUDING ALL)",
        "INSERT INTO d4 SELECT i, '2026-01-04', 'd4' FROM generate_series(1, 5) AS i",
        "ALTER TABLE parted ATTACH PARTITION d4 FOR VALUES FROM ('2026-01-04') TO ('2026-01-05')",
        "UPDATE parted SET name = 'updated' WHERE day = '2026-01-04' AND id < 3",
    ),
    "written while it was detached": (
        "ALTER TABLE parted DETACH PARTITION d1",
        "UPDATE d1 SET name = 'beside the log'",
        "DELETE FROM d1 WHERE id < 10",
        f"ALTER TABLE parted ATTACH PARTITION d1 {_D1}",
    ),
    "two of them": ("DROP TABLE d1", "ALTER TABLE parted DETACH PARTITION d2"),
}
BUSY = (
    "UPDATE parted SET name = name || '!' WHERE id % 2 = 0",
    "UPDATE parted SET day = day + 1 WHERE id IN (3, 4) AND day < '2026-01-03'",
    "DELETE FROM parted WHERE id IN (6, 7, 8)",
)


@pytest.fixture
def url(database: str) -> Iterator[str]:
    with prepared_database(database, *_SETUP) as prepared:
        yield prepared


def mirror_of(url: str, folder: Path, kind: Format = "delta", **values: Any) -> FollowedMirror:
    part = MirroredTables.model_validate({"tables": ["public.parted"], **values})
    return FollowedMirror.of(url, folder, SLOT, part, kind=kind)


@pytest.mark.long
@pytest.mark.parametrize("values", [{}, {"mode": "history"}, {"soft_delete": True}])
@pytest.mark.parametrize("altered", ALTERED)
def test_a_partition_changes_the_lake_by_its_own_rows(
    altered: str, values: dict[str, Any], url: str, tmp_path: Path
) -> None:
    mirror = mirror_of(url, tmp_path, **values)
    mirror.prepare()
    run(url, BUSY[0], *ALTERED[altered], BUSY[1])
    texts = mirror.follow(before=lambda: run(url, BUSY[2]))
    texts += mirror.follow()
    assert [text for text in texts if text.startswith("reading a part of parted again")]
    assert "loading parted" not in texts
    assert mirror.wrong() == []
    if values.get("mode") == "history":
        versions = pl.read_delta(str(tmp_path / "public" / "parted"))
        doubled = versions.filter(pl.col("_is_current")).group_by("id", "day").len().filter(pl.col("len") > 1)
        assert len(doubled) == 0
        ended = versions.filter(pl.col("_to_lsn").is_not_null())
        assert (ended["_from_lsn"] < ended["_to_lsn"]).all()


@pytest.mark.parametrize("altered", ["dropped, made again and filled", "attached with rows", "truncated"])
def test_iceberg_tables_change_by_a_partitions_rows_too(altered: str, url: str, tmp_path: Path) -> None:
    mirror = mirror_of(url, tmp_path, FORMATS[-1])
    mirror.prepare()
    run(url, BUSY[0], *ALTERED[altered], BUSY[1])
    texts = mirror.follow()
    assert "loading parted" not in texts
    assert mirror.wrong() == []


@pytest.mark.parametrize("first", ["parted", "d1"])
def test_a_table_and_a_partition_that_are_emptied_in_one_batch_keep_what_was_written_behind(
    first: str, url: str, tmp_path: Path
) -> None:
    """The partition has a TOAST table: the catalog does not say that it was emptied, the log alone does."""
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    second = "d1" if first == "parted" else "parted"
    rows = "SELECT i, date '2026-01-01' + i % 3, 'new' FROM generate_series(30, 59) AS i"

    last = "INSERT INTO parted VALUES (77, '2026-01-01', 'last')"
    # One transaction is one batch.
    written = "; ".join([f"TRUNCATE {first}", f"INSERT INTO parted {rows}", f"TRUNCATE {second}", last])
    mirror.follow(before=lambda: run(url, f"DO $$ BEGIN {written}; END $$"))
    assert mirror.wrong() == []


def test_changes_that_commit_while_a_part_is_read_are_applied_once(url: str, tmp_path: Path) -> None:
    """The batch is read, then the partition goes: the part is ahead of changes that come in later batches."""
    mirror = mirror_of(url, tmp_path, mode="history")
    mirror.prepare()
    run(url, "UPDATE parted SET name = 'first' WHERE id < 6")
    between = (
        "UPDATE parted SET name = 'second' WHERE id < 12",
        "ALTER TABLE parted DETACH PARTITION d1",
        "DELETE FROM d1 WHERE id < 10",
        f"ALTER TABLE parted ATTACH PARTITION d1 {_D1}",
        "UPDATE parted SET name = 'third' WHERE id BETWEEN 4 AND 20",
    )
    left = [*between]

    def alter_once() -> None:
        run(url, *left)
        left.clear()

    texts = mirror.follow(between=alter_once)
    assert [text for text in texts if text.startswith("reading a part of parted again")]
    mirror.follow()
    assert mirror.wrong() == []
    versions = pl.read_delta(str(tmp_path / "public" / "parted"))
    assert (versions.group_by("id", "day", "_from_lsn").len()["len"] == 1).all()


def test_a_version_of_a_part_does_not_begin_behind_the_change_that_ends_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = mirror_of(url, tmp_path, mode="history")
    mirror.prepare()
    run(url, "TRUNCATE d1", "INSERT INTO parted VALUES (77, '2026-01-01', 'read')")
    with connect(url) as connection:
        [(read,)] = execute(connection, "SELECT pg_current_wal_flush_lsn()::text")

    @contextlib.contextmanager
    def written_behind(*given: Any) -> Iterator[tuple[int, str]]:
        with positioned_snapshot(*given) as taken:
            run(url, "UPDATE parted SET name = 'behind' WHERE id = 77")
            yield taken

    monkeypatch.setattr(loading, "positioned_snapshot", written_behind)
    mirror.follow()
    # Else the TRUNCATE would come again, and the part would be read again.
    await_free(url, SLOT)
    run(url, f"SELECT pg_replication_slot_advance('{SLOT}', '{read}')")
    mirror.follow()
    versions = pl.read_delta(str(tmp_path / "public" / "parted")).filter(pl.col("id") == 77)
    assert "behind" in versions["name"]
    ended = versions.filter(pl.col("_valid_to").is_not_null())
    assert (ended["_valid_from"] <= ended["_valid_to"]).all()


@pytest.mark.parametrize(
    ("partitions", "gone"),
    [
        (
            (
                "CREATE TABLE t (id int PRIMARY KEY, name text) PARTITION BY HASH (id)",
                "CREATE TABLE h0 PARTITION OF t FOR VALUES WITH (modulus 2, remainder 0)",
                "CREATE TABLE h1 PARTITION OF t FOR VALUES WITH (modulus 2, remainder 1)",
            ),
            "h0",
        ),
        (
            (
                "CREATE TABLE t (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)",
                "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
                "CREATE TABLE others PARTITION OF t DEFAULT",
            ),
            "others",
        ),
        (
            (
                "CREATE TABLE t (id int, k text, name text, PRIMARY KEY (id, k)) PARTITION BY RANGE (k)",
                "CREATE TABLE am PARTITION OF t FOR VALUES FROM ('a') TO ('m')",
                "CREATE TABLE mz PARTITION OF t FOR VALUES FROM ('m') TO ('z')",
            ),
            "am",
        ),
    ],
)
def test_a_table_whose_bounds_do_not_tell_is_loaded(
    partitions: tuple[str, ...], gone: str, url: str, tmp_path: Path
) -> None:
    columns = "id, k, name" if " k " in partitions[0] else "id, name"
    values = "i, chr(97 + i), 'n'" if " k " in partitions[0] else "i, 'n'"
    run(url, *partitions, f"INSERT INTO t ({columns}) SELECT {values} FROM generate_series(0, 19) AS i")
    part = MirroredTables(tables=("public.t",))
    mirror = FollowedMirror.of(url, tmp_path, SLOT, part)
    mirror.prepare()
    run(url, f"ALTER TABLE t DETACH PARTITION {gone}")
    assert "loading t" in mirror.prepare()[2].texts
    assert mirror.wrong() == []


def test_a_detached_partition_that_a_pattern_matches_is_a_table_of_its_own(url: str, tmp_path: Path) -> None:
    mirror = FollowedMirror.of(url, tmp_path, SLOT, MirroredTables(tables=("public.*",)))
    mirror.prepare()
    run(url, "ALTER TABLE parted DETACH PARTITION d1", "INSERT INTO d1 VALUES (99, '2026-01-01', 'apart')")
    assert sorted(mirror.prepare()[1]) == [TableName("public", "d1"), PARTED]
    assert mirror.wrong() == []


@pytest.mark.long
def test_partitions_that_come_and_go_every_day_are_read_alone(url: str, tmp_path: Path) -> None:
    """400 partitions: what is read does not grow with the table."""
    days, rows = 400, 50
    with connect(url) as connection:
        execute(connection, "TRUNCATE parted")
        execute(connection, "DROP TABLE d1, d2, d3")
        for number in range(days):
            day = f"date '2026-01-01' + {number}"
            [(first, last)] = execute(connection, f"SELECT ({day})::text, ({day} + 1)::text")
            bound = f"FOR VALUES FROM ('{first}') TO ('{last}')"
            execute(connection, f"CREATE TABLE p{number} PARTITION OF parted {bound}")
        filled = (
            f"INSERT INTO parted SELECT i, date '2026-01-01' + d, 'n' FROM generate_series(1, {rows}) AS i, "
            f"generate_series(0, {days - 1}) AS d"
        )
        execute(connection, filled)
        execute(connection, "ANALYZE parted")
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    for number in range(2):
        before = rows_read(url)
        new = f"date '2026-01-01' + {days + number}"
        run(
            url,
            f"ALTER TABLE parted DETACH PARTITION p{number}",
            f"DROP TABLE p{number}",
            f"CREATE TABLE q{number} (LIKE parted INCLUDING ALL)",
            f"INSERT INTO q{number} SELECT i, {new}, 'new' FROM generate_series(1, {rows}) AS i",
            f"DO $$ BEGIN EXECUTE format('ALTER TABLE parted ATTACH PARTITION q{number} FOR VALUES FROM "
            f"(%L) TO (%L)', {new}, {new} + 1); END $$",
        )
        told: Told = mirror.prepare()[2]
        assert [text for text in told.texts if text.startswith("reading a part of parted again")]
        assert "loading parted" not in told.texts
        # read for the attachment's check by PostgreSQL, for whether it came with rows, and by the mirror
        assert rows_read(url) - before <= 5 * rows
    assert mirror.wrong() == []


def rows_read(url: str) -> int:
    with connect(url) as connection:
        execute(connection, "SELECT pg_stat_force_next_flush()")
        [(number,)] = execute(
            connection,
            "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables "
            "WHERE relname ~ '^[pq][0-9]'",
        )
    return int(number or 0)


def test_a_key_that_became_another_zero_stays_where_its_part_is_read_again(url: str, tmp_path: Path) -> None:
    """The lake has -0 when the part is read, which has 0 by then: one key to the database."""
    run(
        url,
        "DROP TABLE parted",
        "CREATE TABLE parted (id float8, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        f"CREATE TABLE d1 PARTITION OF parted {_D1}",
        "INSERT INTO parted VALUES ('-0', '2026-01-01')",
    )
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    run(
        url,
        "UPDATE parted SET id = 0",
        "ALTER TABLE parted DETACH PARTITION d1",
        f"ALTER TABLE parted ATTACH PARTITION d1 {_D1}",
    )
    assert [text for text in mirror.follow() if "reading a part" in text]
    assert pl.read_delta(str(tmp_path / "public" / "parted"))["id"].to_list() == [0.0]
    assert mirror.wrong() == []
