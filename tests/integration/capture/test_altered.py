"""Tables are altered while they are followed: what is in the log of each shape, and where it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.capture import ChangeStream, Offset
from headrace.capture.signals import SignalFiles
from headrace.catalog import read_catalog
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.needs import IndexNeeds, Needs, stream_needs
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import Op
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession
from integration.capture.following import EVERYTHING, Source, eventually, next_batch, take

LINE, EVENT = TableName("public", "line"), TableName("public", "event")
DDL = (
    "CREATE TABLE line (id int PRIMARY KEY, shop_id int NOT NULL, qty int, note text)",
    "ALTER TABLE line REPLICA IDENTITY FULL",
    "CREATE TABLE event (id int, day int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    "CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM (10) TO (20)",
)
USAGE = {LINE: frozenset({"id", "shop_id", "qty"}), EVENT: frozenset({"id", "day"})}
CARRIED = {LINE: frozenset({"id", "shop_id"}), EVENT: frozenset({"id", "day"})}


@pytest.fixture
def start(source: Source) -> Offset:
    source.sql(*DDL)
    return source.publish()


def needs(source: Source, usage: Mapping[TableName, frozenset[str]] = USAGE) -> Needs:
    """As a run that begins now asks for; it has built its indexes just now."""
    with ReadSession(source.url) as session:
        found = read_fingerprint(session, usage, source.publication)
        catalog = read_catalog(session, usage)
    carried = {name: columns & usage[name] for name, columns in CARRIED.items()}
    return stream_needs([IndexNeeds(usage, found.as_of)], carried, found, catalog)


def refused(stream: ChangeStream, start: Offset) -> HeadraceError:
    def follow() -> None:
        end = start
        while True:
            end = next_batch(stream, end, EVERYTHING)

    with pytest.raises(HeadraceError) as caught:
        follow()
    return caught.value


FATAL = {
    "ALTER TABLE line DROP qty": (Kind.SCHEMA_CHANGED, "no column qty in the log, it has: id, shop_id, note"),
    "ALTER TABLE line RENAME qty TO amount": (Kind.SCHEMA_CHANGED, "it has: id, shop_id, amount, note"),
    "ALTER TABLE line ALTER qty TYPE numeric(5,1)": (Kind.SCHEMA_CHANGED, "was integer, and is numeric(5,1)"),
}
WEAKENED = [
    "ALTER TABLE line REPLICA IDENTITY DEFAULT",
    "ALTER TABLE line REPLICA IDENTITY USING INDEX line_id",
]


@pytest.mark.parametrize(("altering", "ending"), FATAL.items(), ids=FATAL)
def test_what_is_needed_is_altered_while_it_is_followed(
    source: Source, start: Offset, altering: str, ending: tuple[Kind, str]
) -> None:
    """The rows before it are taken, none after it."""
    stream = source.stream(start, documents=needs(source))
    source.sql("INSERT INTO line VALUES (1, 1, 1, 'n')")
    changes, end = take(stream, start, 1)
    assert changes[0].after == {"id": "1", "shop_id": "1", "qty": "1", "note": "n"}
    source.sql(*altering.split(";"), "INSERT INTO line VALUES (2, 1)")
    error = refused(stream, end)
    assert error.kind is ending[0]
    assert ending[1] in str(error)
    assert error.tables == {"line"}


@pytest.mark.parametrize("altering", WEAKENED)
@pytest.mark.parametrize(
    "change", ["UPDATE line SET shop_id = 2 WHERE id = 1", "DELETE FROM line WHERE id = 1"]
)
def test_without_its_replica_identity_a_table_is_followed_as_far_as_no_old_row_is_needed(
    source: Source, start: Offset, altering: str, change: str
) -> None:
    source.sql("CREATE UNIQUE INDEX line_id ON line (id)")
    stream = source.stream(start, documents=needs(source))
    source.sql(
        "INSERT INTO line VALUES (1, 1, 1)", altering, "INSERT INTO line VALUES (2, 1)", "TRUNCATE line"
    )
    source.sql("INSERT INTO line VALUES (1, 1)")
    changes, end = take(stream, start, 4)
    assert [change.op for change in changes] == [Op.INSERT, Op.INSERT, Op.TRUNCATE, Op.INSERT]
    source.sql(change)
    error = refused(stream, end)
    assert error.kind is Kind.REPLICA_IDENTITY
    assert "the log of the table line does not carry the old value of shop_id" in str(error)
    assert error.tables == {"line"}


def test_a_new_partition_without_the_identity_concerns_the_table_that_documents_name(
    source: Source, start: Offset
) -> None:
    documents = needs(source, USAGE)
    stream = source.stream(start, documents=documents)
    source.sql(
        "CREATE TABLE event_3 (day int NOT NULL, id int NOT NULL)",
        "CREATE UNIQUE INDEX event_3_id ON event_3 (id)",
        "ALTER TABLE event_3 REPLICA IDENTITY USING INDEX event_3_id",
        "ALTER TABLE event ATTACH PARTITION event_3 FOR VALUES FROM (20) TO (30)",
        "INSERT INTO event VALUES (1, 21)",
    )
    changes, end = take(stream, start, 1)
    assert (changes[0].table.name, changes[0].after) == ("event", {"id": "1", "day": "21"})
    source.sql("UPDATE event SET day = 22 WHERE id = 1")
    error = refused(stream, end)
    assert error.kind is Kind.REPLICA_IDENTITY
    assert "event_3" in error.cause
    assert error.tables == {"event"}


HARMLESS = [
    "ALTER TABLE line DROP note",
    "ALTER TABLE line RENAME note TO remark",
    "ALTER TABLE line ALTER note TYPE varchar(9)",
    "ALTER TABLE line ADD more int DEFAULT 7",
    "ALTER TABLE line ADD UNIQUE (shop_id, id)",
]


@pytest.mark.parametrize("altering", HARMLESS)
def test_unused_columns_come_go_and_change(source: Source, start: Offset, altering: str) -> None:
    stream = source.stream(start, documents=needs(source))
    source.sql("INSERT INTO line VALUES (1, 1, 1)", altering, "INSERT INTO line VALUES (2, 1, 1)")
    changes, _ = take(stream, start, 2)
    assert [(change.after or {})["id"] for change in changes] == ["1", "2"]


@pytest.mark.parametrize("altering", FATAL)
def test_old_shapes_come_behind_an_alteration_while_nothing_ran(
    source: Source, start: Offset, altering: str
) -> None:
    """The run that begins then has read those rows when it built its documents: they do no harm."""
    source.sql("INSERT INTO line VALUES (1, 1, 1, 'n')", *altering.split(";"))
    quantity = {"amount"} if "amount" in altering else set() if "DROP qty" in altering else {"qty"}
    if "IDENTITY" in altering:
        source.sql("INSERT INTO line VALUES (2, 1, 1)", "ALTER TABLE line REPLICA IDENTITY FULL")
    usage = USAGE | {LINE: frozenset({"id", "shop_id"} | quantity)}
    stream = source.stream(start, documents=needs(source, usage))
    source.sql("INSERT INTO line VALUES (3, 1)", "DELETE FROM line WHERE id = 3")
    rows = 4 if "IDENTITY" in altering else 3
    changes, end = take(stream, start, rows)
    assert (changes[0].after or {}).get("qty") == (None if "TYPE" in altering else "1")
    assert changes[-1].before is not None
    assert changes[-1].before["shop_id"] == "1"
    source.sql("ALTER TABLE line RENAME shop_id TO shop", "INSERT INTO line VALUES (4, 1)")
    assert refused(stream, end).kind is Kind.SCHEMA_CHANGED


def test_a_column_that_was_renamed_there_and_back_is_noticed(source: Source, start: Offset) -> None:
    """The catalog is as it was: only the log knows."""
    documents = needs(source)
    source.sql(
        "ALTER TABLE line RENAME shop_id TO shop",
        "INSERT INTO line VALUES (1, 1)",
        "ALTER TABLE line RENAME shop TO shop_id",
    )
    assert refused(source.stream(start, documents=documents), start).kind is Kind.SCHEMA_CHANGED


CALLED_OTHERWISE = {
    "line": (
        "ALTER TABLE line RENAME TO x",
        "ALTER TABLE x RENAME TO line",
        "INSERT INTO x VALUES (2, 1, 1)",
    ),
    "schema": (
        "ALTER TABLE line SET SCHEMA other",
        "ALTER TABLE other.line SET SCHEMA public",
        "INSERT INTO other.line VALUES (2, 1, 1)",
    ),
    "schema's name": (
        "ALTER SCHEMA public RENAME TO x",
        "ALTER SCHEMA x RENAME TO public",
        "INSERT INTO x.line VALUES (2, 1, 1)",
    ),
    "root": ("ALTER TABLE event RENAME TO x", "ALTER TABLE x RENAME TO event", "INSERT INTO x VALUES (2, 1)"),
}


@pytest.mark.long
@pytest.mark.parametrize("for_documents", [True, False], ids=["documents", "changes"])
@pytest.mark.parametrize("case", CALLED_OTHERWISE)
@pytest.mark.parametrize("at_once", [True, False], ids=["one transaction", "several"])
def test_rows_of_a_table_that_was_called_otherwise_for_a_while(
    source: Source, start: Offset, *, for_documents: bool, case: str, at_once: bool
) -> None:
    """Its name is back when they are read."""
    source.sql("CREATE SCHEMA other")
    needed = needs(source)
    away, back, write = CALLED_OTHERWISE[case]
    if at_once:
        source.transaction(away, write, back)
    else:
        source.sql(away, write, back)
    table = "event" if case == "root" else "line"
    source.sql(f"INSERT INTO {table} VALUES (3, 1)")
    followed = {} if for_documents else {"tables": frozenset({LINE, EVENT})}
    stream = source.stream(start, documents=needed if for_documents else None, **followed)
    changes, _ = take(stream, start, 2)
    assert [change.table for change in changes] == [TableName("public", table)] * 2


def test_documents_get_rows_that_are_read_while_their_table_is_called_otherwise(
    source: Source, start: Offset
) -> None:
    """Who asks for changes of a name has that table no more, and is told so."""
    stream = source.stream(start, documents=needs(source))
    source.sql("ALTER TABLE line RENAME TO x", "INSERT INTO x VALUES (2, 1, 1)")
    source.sql("ALTER TABLE event RENAME TO y", "INSERT INTO y VALUES (2, 1)", "TRUNCATE x")
    assert names(source, stream, start, 3)[0] == ["c line", "c event", "t line"]


def test_changes_with_an_origin_come_too(source: Source, start: Offset) -> None:
    """Whoever replicates into the database marks what it writes so; `origin = none` would leave it out."""
    stream = source.stream(start, documents=needs(source))
    source.sql("SELECT pg_replication_origin_create('elsewhere')")
    try:
        source.sql(
            "SELECT pg_replication_origin_session_setup('elsewhere')",
            "INSERT INTO line VALUES (1, 1, 1)",
            "SELECT pg_replication_origin_session_reset()",  # the end of a session comes later
        )
        source.transaction(
            "SET LOCAL session_replication_role = replica", "INSERT INTO line VALUES (2, 1, 1)"
        )
        assert names(source, stream, start, 2)[0] == ["c line", "c line"]
    finally:
        source.sql("SELECT pg_replication_origin_drop('elsewhere')")


def names(source: Source, stream: ChangeStream, start: Offset, rows: int) -> tuple[list[str], Offset]:
    changes, end = take(stream, start, rows)
    return [f"{change.op} {change.table.name}" for change in changes], end


@pytest.mark.parametrize("for_documents", [True, False], ids=["documents", "changes"])
def test_leaves_come_go_and_move_while_they_are_followed(
    source: Source, start: Offset, for_documents: bool
) -> None:
    stream = source.stream(start, documents=needs(source) if for_documents else None)
    source.sql(
        "INSERT INTO event VALUES (1, 1), (2, 11)",
        "UPDATE event SET day = 12 WHERE id = 1",
        "ALTER TABLE event_1 RENAME TO first",
        "CREATE TABLE event_3 PARTITION OF event FOR VALUES FROM (20) TO (30)",
        "INSERT INTO event VALUES (3, 21)",
    )
    found, end = names(source, stream, start, 5)
    assert found == ["c event", "c event", "d event", "c event", "c event"]
    source.sql("TRUNCATE event_3")
    assert names(source, stream, end, 1)[0] == ["t event" if for_documents else "t event_3"]
    end = next_batch(stream, end)
    source.sql("TRUNCATE event")
    found, end = names(source, stream, end, 1)
    assert found == ["t event"], "all leaves at once are the table"
    source.sql("ALTER TABLE event DETACH PARTITION event_2", "INSERT INTO event_2 VALUES (4, 11)")
    found, end = names(source, stream, end, 1)
    assert found == ["c event" if for_documents else "c event_2"]
    source.sql(
        "ALTER TABLE event ATTACH PARTITION event_2 FOR VALUES FROM (10) TO (20)",
        "INSERT INTO event VALUES (5, 11)",
    )
    assert names(source, stream, end, 1)[0] == ["c event"]


def test_rows_of_a_leaf_that_is_gone_when_they_are_read(source: Source, start: Offset) -> None:
    """What it stood for nobody knows any more; what is left of the table is right."""
    source.sql("INSERT INTO event VALUES (1, 1), (2, 11)", "DROP TABLE event_1", "DELETE FROM event")
    stream = source.stream(start, documents=needs(source))
    found, _ = names(source, stream, start, 3)
    assert found == ["c event_1", "c event", "d event"]


def test_a_leaf_that_no_snapshot_shows_yet(source: Source, start: Offset) -> None:
    """A commit that waits for a synchronous standby is in the log, its new leaf not in the catalog."""
    stream = source.stream(start, documents=needs(source))
    with ThreadPoolExecutor(1) as thread, source.commits_held_back():
        waiting = thread.submit(
            source.transaction,
            "CREATE TABLE event_3 PARTITION OF event FOR VALUES FROM (20) TO (30)",
            "INSERT INTO event VALUES (1, 21)",
        )
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        eventually(lambda: source.number(waits))
        assert stream.next_offset(start, EVERYTHING, 1) == start
    waiting.result()
    assert names(source, stream, start, 1)[0] == ["c event"]


@contextlib.contextmanager
def describing_invisibly(source: Source, stream: ChangeStream) -> Iterator[None]:
    """Alter a table and write to it, in a commit that waits for a standby until the context is left."""
    with ThreadPoolExecutor(1) as thread, source.commits_held_back():
        waiting = thread.submit(
            source.transaction, "ALTER TABLE line ADD COLUMN more text", "INSERT INTO line VALUES (1, 1, 1)"
        )
        eventually(lambda: stream._reader.is_waiting)
        yield
    waiting.result()


@pytest.mark.long
def test_a_description_that_no_snapshot_shows_yet_is_awaited_on_the_same_connection(
    source: Source, start: Offset, tmp_path: Path
) -> None:
    """For as long as the commit waits; the connection was closed every five seconds."""
    signals = SignalFiles(tmp_path)
    signals.set_confirm_limit(start.lsn)
    stream = source.stream(start, signals=signals)
    reader = eventually(source.walsender)
    with describing_invisibly(source, stream):
        end = time.monotonic() + 12
        while time.monotonic() < end:
            stream.next_offset(start, EVERYTHING, 0.25)
            assert source.walsender() == reader
            assert signals.reader_error() is None
        before = stream._buffer.cut(start, EVERYTHING)
        eventually(lambda: stream.next_offset(before or start, EVERYTHING, 0.1) and signals.is_invisible())
    take(stream, start, source.number("SELECT count(*) FROM line"))
    assert source.walsender() == reader
    assert not signals.is_invisible()


def test_a_stream_is_closed_at_once_while_it_awaits_a_description(source: Source, start: Offset) -> None:
    stream = source.stream(start)
    with describing_invisibly(source, stream):
        stream.close()
        assert not stream._reader._thread.is_alive()


def without_publication(source: Source) -> None:
    """Changes that nobody will ever be sent, and one after them."""
    source.sql("DROP PUBLICATION headrace", "INSERT INTO line VALUES (2, 1, 1)")
    source.sql("CREATE PUBLICATION headrace FOR ALL TABLES", "INSERT INTO line VALUES (3, 1, 1)")


def test_what_was_changed_without_the_publication_is_not_left_out_in_silence(
    source: Source, start: Offset
) -> None:
    """Before PostgreSQL 18 the server ends the stream there; since, it goes on and warns."""
    stream = source.stream(start)
    source.sql("INSERT INTO line VALUES (1, 1, 1)")
    (change,), end = take(stream, start, 1)
    assert change.after is not None
    without_publication(source)
    stream.confirm(end)
    for one in (stream, source.stream(end)):
        error = refused(one, end)
        assert (change.after["id"], error.kind) == ("1", Kind.PUBLICATION)
        one.close()
    assert source.confirmed() <= end.lsn
