"""Is a lake right where REPLICA IDENTITY was another one for a while, and is what it was again?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.capture.envelope import ENVELOPE_SCHEMA, enveloped
from headrace.config.mirror import MirrorConfig, MirroredTables
from headrace.mirror.run import MirrorRun
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from headrace.reporter import SilentReporter

SLOT = "mirror_identities"
_SETUP = (
    "CREATE TABLE a (id int PRIMARY KEY, u int NOT NULL UNIQUE, v text)",
    "INSERT INTO a SELECT i, i, 'v' FROM generate_series(1, 20) AS i",
    "CREATE TABLE versions (LIKE a INCLUDING ALL)",
    "CREATE TABLE changed (LIKE a INCLUDING ALL)",
    "CREATE TABLE heap (LIKE a INCLUDING ALL)",
    "ALTER TABLE heap DROP CONSTRAINT heap_pkey, REPLICA IDENTITY FULL",
    "INSERT INTO versions SELECT * FROM a",
    "INSERT INTO changed SELECT * FROM a",
    "INSERT INTO heap SELECT * FROM a",
)
_OTHER = "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_u_key"
_FULL = "ALTER TABLE {0} REPLICA IDENTITY FULL"
_MOVED = (
    "UPDATE {0} SET id = id + 100 WHERE id = 1",
    "DELETE FROM {0} WHERE id = 2",
    "UPDATE {0} SET v = 'same key' WHERE id = 3",
)


class Told(SilentReporter):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def info(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def url(database: str) -> Iterator[str]:
    run(database, *_SETUP)
    yield database
    with connect(database) as connection:
        drop_slot(connection, SLOT)


@pytest.mark.parametrize("statement", _MOVED[:2])
def test_tables_are_read_anew_whose_keys_the_log_did_not_have(
    statement: str, url: str, tmp_path: Path
) -> None:
    prepared(url, tmp_path)
    for table in ("a", "versions", "changed", "heap"):
        run(url, *(text.format(table) for text in (_OTHER, statement, _FULL)))
    run(url, *(f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT" for table in ("a", "versions")))
    for times in range(2):  # the slot is not confirmed, as after a kill: the log is read from its beginning
        told = follow(url, tmp_path)
        assert len([text for text in told if "REPLICA IDENTITY was altered" in text]) == (0 if times else 4)
        assert_right(url, tmp_path)


def test_a_table_whose_keys_the_log_has_is_not_read_anew(url: str, tmp_path: Path) -> None:
    prepared(url, tmp_path)
    run(
        url,
        _FULL.format("a"),
        _MOVED[0].format("a"),
        "ALTER TABLE a REPLICA IDENTITY USING INDEX a_pkey",
        _MOVED[1].format("a"),
        "ALTER TABLE a REPLICA IDENTITY NOTHING",
        "INSERT INTO a VALUES (300, 300, 'nothing')",
        _OTHER.format("a"),
        "INSERT INTO a VALUES (400, 400, 'other')",
        "ALTER TABLE a REPLICA IDENTITY DEFAULT",
        _MOVED[2].format("a"),
        "ALTER TABLE a RENAME id TO key",
        "UPDATE a SET key = 500 WHERE key = 400",
    )
    assert not [text for text in follow(url, tmp_path) if "loading" in text]
    assert_right(url, tmp_path)


def prepared(url: str, folder: Path) -> tuple[MirrorRun, list[TableName], Told]:
    """A mirror that has its tables, and follows their alterations."""
    parts = (
        MirroredTables(tables=("public.versions",), mode="history"),
        MirroredTables(tables=("public.changed",), mode="changes"),
        MirroredTables(tables=("public.*",)),
    )
    config = MirrorConfig(location=str(folder), slot=SLOT, publication=SLOT, tables=parts)
    told = Told()
    mirror = MirrorRun(url, config, told, threading.Event())
    mirror.set_up()
    return mirror, mirror.prepare(), told


def follow(url: str, folder: Path) -> list[str]:
    """Write what the log has behind the slot's position; return what the mirror said."""
    mirror, tables, told = prepared(url, folder)
    confirmed, end = positions(url)
    start = Offset(confirmed)
    stream = ChangeStream(StreamSettings(url, SLOT, SLOT, idle_seconds=0.1), start)
    stream.open()
    try:
        while start.lsn < end:
            behind = stream.next_offset(start, Limit(1 << 20), 1.0)
            changes = pa.Table.from_batches(stream.changes(start, behind), CHANGES_SCHEMA).combine_chunks()
            rows = [enveloped(batch, {}, "db", {}) for batch in changes.to_batches()]
            assert stream.origin is not None
            offset = behind.to_json() | stream.origin.to_json()
            mirror.write(pa.Table.from_batches(rows, ENVELOPE_SCHEMA), offset, tables)
            start = behind
    finally:
        stream.close()
    return told.texts


def positions(url: str) -> tuple[int, int]:
    """Where the slot is confirmed, and where the log ends (bytes)."""
    with connect(url) as connection:
        [(confirmed, end)] = execute(
            connection,
            "SELECT (confirmed_flush_lsn - '0/0')::bigint, (pg_current_wal_flush_lsn() - '0/0')::bigint "
            "FROM pg_replication_slots WHERE slot_name = $1",
            (SLOT,),
        )
    return confirmed, end


def assert_right(url: str, folder: Path) -> None:
    mirror, *_ = prepared(url, folder)
    assert [one.table.name for one in mirror.comparer().compare() if not one.is_right] == []
    with connect(url) as connection:
        expected = execute(connection, "SELECT id, u, v FROM changed")
    assert sorted(replayed(pl.read_delta(str(folder / "public" / "changed")))) == sorted(expected)


def replayed(frame: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    """The rows that the changes make, one after the other."""
    rows: dict[int, tuple[Any, ...]] = {}
    for row in frame.sort("_commit_lsn", "_commit_seq").iter_rows(named=True):
        match row["_change_type"]:
            case "truncate":
                rows.clear()
            case "delete":
                rows.pop(row["id"], None)
            case _:
                rows[row["id"]] = (row["id"], row["u"], row["v"])
    yield from rows.values()


def run(url: str, *statements: str) -> None:
    with connect(url) as connection:
        for statement in statements:
            execute(connection, statement)
