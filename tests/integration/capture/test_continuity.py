"""Is the log that the stream finds at each connection the one that it has read? (decision 0017)

Other servers, restored ones and promoted standbys are real ones; the address stays, as a name in DNS does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.capture import ChangeStream, LogOrigin, Offset, StreamSettings
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.postgres_files import server_account
from headrace.errors import HeadraceError, Kind, Retry
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import create_slot
from integration.capture.following import Source, eventually, next_batch, table, take
from support.changes import Change
from support.servers import short_lived_server
from support.tcp_proxy import TcpProxy

Make = Callable[..., EmbeddedPostgres]
TABLE = "CREATE TABLE t (id int PRIMARY KEY, n text)"


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with short_lived_server() as one:
        yield one


def filled(server: EmbeddedPostgres, name: str = "shop") -> tuple[Source, Offset]:
    source = Source(server.create_database(name))
    source.sql(TABLE)
    return source, source.publish()


def insert(source: Source, first: int, last: int) -> None:
    source.sql(f"INSERT INTO t SELECT g, 'n' FROM generate_series({first}, {last}) g")


def ids(changes: list[Change]) -> list[str | None]:
    return [(change.after or {})["id"] for change in changes]


@contextmanager
def streaming(source: Source, url: str, start: Offset, **settings: Any) -> Iterator[ChangeStream]:
    stream = ChangeStream(StreamSettings(url, source.slot, source.publication, **settings), start)
    stream.open()
    try:
        yield stream
    finally:
        stream.close()


def refused(stream: ChangeStream, place: Offset, kind: Kind, *words: str) -> HeadraceError:
    """The error that ends the stream at once: waiting would not help.

    Before it there may be positions without changes, from before the fault.
    """
    with pytest.raises(HeadraceError) as caught:
        follow_without_changes(stream, place)
    assert (caught.value.kind, caught.value.retry) == (kind, Retry.NEVER)
    assert [word for word in words if word not in str(caught.value)] == []
    assert re.search("backfill again|backfilled again", caught.value.remedy)
    return caught.value


def follow_without_changes(stream: ChangeStream, place: Offset) -> None:
    """Follow the stream until it ends with an error."""
    while True:
        end = next_batch(stream, place, seconds=30)
        assert not len(table(stream, place, end)), "changes of another log are given out"
        stream.confirm(place := end)


def copied(primary: EmbeddedPostgres, account_of: EmbeddedPostgres, *options: str) -> None:
    """Fill the data directory of `account_of` with a base backup of `primary`."""
    account = server_account()
    subprocess.run(
        [
            account_of._site.binaries / "pg_basebackup",
            *("--pgdata", account_of._site.data, "--dbname", primary.url, "--checkpoint=fast", "--no-sync"),
            *options,
        ],
        check=True,
        cwd="/",
        user=None if account is None else account.pw_uid,
        group=None if account is None else account.pw_gid,
        extra_groups=None if account is None else [],
        env={**os.environ, "HOME": str(account_of._site.folder)},
    )
    account_of._password = primary._password


def test_another_server_at_the_same_address_is_refused(make_server: Make) -> None:
    """Also one with a database, a publication and a slot of the same names."""
    first, second = make_server(), make_server()
    source, start = filled(first)
    other, _ = filled(second)
    second._password, kept = first._password, second._password
    with connect(other.url) as connection:
        execute(connection, f"ALTER ROLE postgres PASSWORD '{second._password}'")
        execute(connection, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", (source.slot,))
    assert kept != second._password
    with TcpProxy.before(source.url) as proxy, streaming(source, proxy.url(source.url), start) as stream:
        insert(source, 1, 3)
        _, place = take(stream, start, 3)
        proxy.lead_to(second.url)
        refused(stream, place, Kind.CONTINUITY, "another database system")


@pytest.mark.long
def test_a_backlog_is_not_read_from_another_server_than_the_one_that_was_recognised(
    make_server: Make,
) -> None:
    """The address leads elsewhere between the check of the log and the sessions that read the backlog."""
    first, second = make_server(), make_server()
    source, start = filled(first)
    other, _ = filled(second)
    with connect(other.url) as connection:
        execute(connection, f"ALTER ROLE postgres PASSWORD '{first._password}'")
        execute(connection, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", (source.slot,))
    second._password = first._password
    other.url = second.database_url("shop")
    insert(source, 1, 1000)
    insert(other, 5001, 7000)
    with TcpProxy.before(source.url) as proxy, connect(source.url, autocommit=False) as locking:
        execute(locking, "LOCK TABLE pg_publication")
        with streaming(source, proxy.url(source.url), start, backlog_bytes=1) as stream:
            eventually(lambda: source.number("SELECT count(*) FROM pg_locks WHERE NOT granted"))
            proxy.lead_to(other.url, cut=False)
            locking.rollback()
            eventually(lambda: stream.origin is not None)
            with pytest.raises(HeadraceError) as caught:
                take(stream, start, 1000)
            assert caught.value.kind is Kind.CONTINUITY


def test_a_checkpoint_of_another_server_is_refused_at_the_first_connection(source: Source) -> None:
    """Nothing but the checkpoint knows; the other server's slot stands before the checkpoint's position."""
    source.sql(TABLE)
    start = source.publish()
    elsewhere = LogOrigin("1", 1, 5)
    stream = source.stream(start, origin=elsewhere)
    refused(stream, start, Kind.CONTINUITY, "another database system")


def test_a_checkpoint_of_a_database_that_was_made_again_is_refused(source: Source) -> None:
    source.sql(TABLE)
    start = source.publish()
    stream = source.stream(start)
    origin = eventually(lambda: stream.origin)
    stream.close()
    before = LogOrigin(origin.system, origin.timeline, origin.database + 1)
    refused(source.stream(start, origin=before), start, Kind.CONTINUITY, "dropped and recreated")


def test_a_slot_that_is_dropped_while_it_is_followed_is_named(source: Source) -> None:
    source.sql(TABLE)
    start = source.publish()
    with TcpProxy.before(source.url) as proxy, streaming(source, proxy.url(source.url), start) as stream:
        insert(source, 1, 3)
        _, place = take(stream, start, 3)
        proxy.refuse()
        eventually(lambda: source.walsender() is None)
        source.query("SELECT pg_drop_replication_slot($1)", source.slot)
        proxy.resume()
        refused(stream, place, Kind.SLOT_UNKNOWN, "it was dropped")


def test_a_slot_that_is_recreated_or_moved_by_a_stranger_is_told_apart(source: Source) -> None:
    source.sql(TABLE)
    start = source.publish()
    for words, statements in {
        "another program has moved it": ("SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())",),
        "it was recreated": (
            "SELECT pg_drop_replication_slot($1)",
            "SELECT pg_create_logical_replication_slot($1, 'pgoutput')",
        ),
    }.items():
        with TcpProxy.before(source.url) as proxy, streaming(source, proxy.url(source.url), start) as stream:
            first = source.number("SELECT count(*) FROM t")
            with connect(source.url, autocommit=False) as other:
                # While it is open the slot keeps the log from here on, wherever else it is moved to.
                execute(other, "INSERT INTO t VALUES (0, 'never committed')")
                insert(source, first + 1, first + 3)
                _, place = take(stream, start, 3)
                proxy.refuse()
                eventually(lambda: source.walsender() is None)
                insert(source, first + 4, first + 6)
                if "moved" not in words:
                    other.rollback()  # a slot is made only when it has ended
                for statement in statements:
                    source.query(statement, source.slot)
                other.rollback()
            proxy.resume()
            refused(stream, place, Kind.CONTINUITY, words, "the changes between are lost")
        start = Offset(source.confirmed())


def test_a_database_that_is_restored_from_a_copy_is_refused(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """Stop, copy, go on, put back: its slot stands before the stream's position, as after any crash."""
    source, start = filled(server)
    with TcpProxy.before(source.url) as proxy, streaming(source, proxy.url(source.url), start) as stream:
        insert(source, 1, 3)
        _, place = take(stream, start, 3)
        server.stop()
        data, copy = server._site.data, server._site.folder / "copy"
        subprocess.run(["cp", "-a", data, copy], check=True)
        server.start()
        insert(source, 4, 2000)
        _, place = take(stream, place, 1997)
        proxy.refuse()
        server.stop("immediate")
        shutil.rmtree(data)
        copy.rename(data)
        server.start()
        proxy.resume()
        refused(stream, place, Kind.OTHER_LOG, "restored to an earlier time")


def test_what_was_not_taken_from_a_log_that_is_no_more_does_not_hide_its_end(
    server: EmbeddedPostgres,
) -> None:
    """On the restored server the transactions of these changes never become visible."""
    source, start = filled(server)
    with TcpProxy.before(source.url) as proxy, streaming(source, proxy.url(source.url), start) as stream:
        with put_back(server):
            for first in range(1, 500, 10):
                insert(source, first, first + 9)
            everything = Offset(end_of_log(source))
            eventually(lambda: len(set(stream._buffer.xids(start, everything))) == 50)
            proxy.refuse()
        proxy.resume()
        refused(stream, start, Kind.OTHER_LOG, "restored to an earlier time")


@contextmanager
def put_back(server: EmbeddedPostgres) -> Iterator[None]:
    """The storage as it was at the beginning, at the end; the server runs, and before and after."""
    server.stop()
    data, copy = server._site.data, server._site.folder / "copy"
    subprocess.run(["cp", "-a", data, copy], check=True)
    server.start()
    yield
    server.stop("immediate")
    shutil.rmtree(data)
    copy.rename(data)
    server.start()


def end_of_log(source: Source) -> int:
    return source.number("SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")


@pytest.mark.parametrize("backlog", [None, 1])
@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_storage_that_was_put_back_and_has_written_past_is_refused(
    server: EmbeddedPostgres, backlog: int | None, stopped: bool
) -> None:
    """Its log is longer than what was read, of the same system and timeline; only its commits are others."""
    source, start = filled(server)
    with TcpProxy.before(source.url) as proxy:
        url = proxy.url(source.url)
        with streaming(source, url, start, backlog_bytes=backlog) as stream:
            insert(source, 1, 3)
            _, place = take(stream, start, 3)
            with put_back(server):
                insert(source, 4, 10)
                _, place = take(stream, place, 7)
                stream.confirm(place)
                eventually(lambda: source.confirmed() >= place.lsn)
                proxy.refuse()
                if stopped:
                    origin = stream.origin
                    stream.close()
            insert(source, 1004, 3000)
            assert end_of_log(source) > place.lsn
            confirmed = source.confirmed()
            proxy.resume()
            if stopped:
                place = Offset.from_json(place.to_json())
                with streaming(source, url, place, origin=origin, backlog_bytes=backlog) as again:
                    refused(again, place, Kind.OTHER_LOG, "put back to an earlier time")
            else:
                refused(stream, place, Kind.OTHER_LOG, "put back to an earlier time")
            assert source.confirmed() == confirmed, "else nobody could tell at the next start"


def test_a_storage_put_back_into_a_quiet_time_is_refused_for_what_it_has_there_now(
    server: EmbeddedPostgres,
) -> None:
    """Of one log what was read last is still there; of the other, whose reader is stopped, nothing was read.

    Both were empty from there up to a place that was handed out.
    """
    source, start = filled(server)
    fresh, beginning = filled(server, "fresh")
    with (
        TcpProxy.before(source.url) as proxy,
        streaming(source, proxy.url(source.url), start, idle_seconds=0.1) as stream,
    ):
        insert(source, 1, 3)
        _, place = take(stream, start, 3)
        with put_back(server):
            written = "SELECT (pg_logical_emit_message(false, 'x', repeat('x', 200000)) - '0/0')::bigint"
            end = source.number(written)  # flushed a moment later
            place = follow_nothing(stream, place, end)
            with streaming(fresh, proxy.url(fresh.url), beginning, idle_seconds=0.1) as other:
                empty = follow_nothing(other, beginning, end)
                origin = other.origin
            proxy.refuse()
        insert(source, 4, 4)
        insert(fresh, 4, 4)
        assert end_of_log(source) < min(place.lsn, empty.lsn), "these commits are where the log was empty"
        insert(source, 5, 5000)
        proxy.resume()
        refused(stream, place, Kind.OTHER_LOG, "was not there when the log was read")
        empty = Offset.from_json(empty.to_json())
        with streaming(fresh, proxy.url(fresh.url), empty, origin=origin) as again:
            refused(again, empty, Kind.OTHER_LOG, "was not there when the log was read")


def follow_nothing(stream: ChangeStream, place: Offset, end: int) -> Offset:
    """Follow the stream to a place without changes at `end` or behind."""
    while place.lsn < end:
        stream.confirm(place)
        place = next_batch(stream, place)
    return place


def test_a_crash_that_loses_no_commit_is_none_of_that(server: EmbeddedPostgres) -> None:
    """What was read last comes again, and is left out."""
    source, start = filled(server)
    with TcpProxy.before(source.url) as proxy, streaming(source, proxy.url(source.url), start) as stream:
        insert(source, 1, 3)
        _, place = take(stream, start, 3)
        insert(source, 4, 10)
        _, place = take(stream, place, 7)
        proxy.refuse()
        server.stop("immediate")
        server.start()
        assert source.confirmed() < place.lsn
        proxy.resume()
        insert(source, 11, 12)
        changes, place = take(stream, place, 2)
        assert ids(changes) == ["11", "12"]
        stream.confirm(place)
        eventually(lambda: source.confirmed() >= place.lsn)


@contextmanager
def standby_of(primary: EmbeddedPostgres, name: str, **settings: str) -> Iterator[EmbeddedPostgres]:
    """A streaming standby with a physical slot, whose copies of failover slots follow the primary's."""
    with connect(primary.url) as connection:
        execute(connection, "SELECT pg_create_physical_replication_slot($1)", (name,))
    place = f"host=127.0.0.1 port={primary.port} user=postgres password={primary._password} dbname=postgres"
    standby = short_lived_server(
        settings={
            "hot_standby_feedback": "on",
            "primary_slot_name": name,
            "primary_conninfo": place,
            "sync_replication_slots": "on",
            **settings,
        }
    )
    copied(primary, standby, "--write-recovery-conf")
    try:
        standby.start()
        yield standby
    finally:
        standby.close()


def promote(standby: EmbeddedPostgres) -> None:
    with connect(standby.url) as there:
        assert execute(there, "SELECT pg_promote()") == [(True,)]


def test_a_promoted_standby_with_the_slot_goes_on_without_loss(server: EmbeddedPostgres) -> None:
    """A failover slot's copy; what was read had reached the standby before it was promoted."""
    source = Source(server.create_database("shop"))
    source.sql(TABLE, "CREATE PUBLICATION headrace FOR ALL TABLES")
    create_slot(source.url, source.slot, failover=True).close()
    with standby_of(server, "physical") as standby, TcpProxy.before(source.url) as proxy:
        synchronise(source, standby)
        start = Offset(source.confirmed())
        stream = source.stream(start, proxy.url(source.url))
        insert(source, 1, 50)
        changes, place = take(stream, start, 50)
        insert(source, 51, 60)  # on both servers, and not read
        eventually(lambda: caught_up(server, standby))
        proxy.refuse()
        server.stop("fast")
        promote(standby)
        source.url = standby.database_url("shop")
        documents = source.stream(place, origin=stream.origin, same_timeline=True)
        refused(documents, place, Kind.CONTINUITY, "a standby was promoted", "documents")
        insert(source, 61, 100)
        proxy.resume()
        proxy.lead_to(standby.url)
        more, place = take(stream, place, 50)
        assert ids(changes + more) == [str(number) for number in range(1, 101)]
        assert stream.origin is not None
        assert stream.origin.timeline == 2
        source.kill_walsender()
        insert(source, 101, 101)
        assert ids(take(stream, place, 1)[0]) == ["101"]
        source.close()


def synchronise(source: Source, standby: EmbeddedPostgres) -> None:
    """Move the slot until the standby has a copy of it that outlives a promotion."""
    sql = "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = $1"

    def look() -> bool:
        source.sql("SELECT pg_log_standby_snapshot()")
        source.query("SELECT pg_replication_slot_advance($1, pg_current_wal_flush_lsn())", source.slot)
        with connect(standby.url) as there:
            return execute(there, sql, (source.slot,)) == [(True,)]

    eventually(look, 60)


def test_a_promoted_standby_without_the_slot_is_refused_by_name(server: EmbeddedPostgres) -> None:
    source, start = filled(server)
    with (
        standby_of(server, "physical") as standby,
        TcpProxy.before(source.url) as proxy,
        streaming(source, proxy.url(source.url), start) as stream,
    ):
        insert(source, 1, 5)
        _, place = take(stream, start, 5)
        eventually(lambda: caught_up(server, standby))
        proxy.refuse()
        server.stop("fast")
        promote(standby)
        proxy.resume()
        proxy.lead_to(standby.url)
        refused(stream, place, Kind.SLOT_UNKNOWN, "a standby was promoted", "no replication slot", "failover")


def test_a_server_without_the_history_of_its_timelines_is_read(server: EmbeddedPostgres) -> None:
    """As one that was restored without those files; it says each time that one is missing."""
    server.stop("fast")
    data = server._site.data
    (data / "standby.signal").touch()
    server.start()
    promote(server)
    source, start = filled(server)
    (data / "pg_wal" / "00000002.history").unlink()
    with streaming(source, source.url, start) as stream:
        insert(source, 1, 3)
        assert ids(take(stream, start, 3)[0]) == ["1", "2", "3"]
        assert stream.origin is not None
        assert (stream.origin.timeline, stream.origin.began) == (2, None)


def test_a_promoted_standby_that_lacks_what_was_read_is_refused(server: EmbeddedPostgres) -> None:
    """Also where it has written more than it lacked since, and has a slot of the name."""
    source, start = filled(server)
    with (
        standby_of(server, "physical") as standby,
        TcpProxy.before(source.url) as proxy,
        streaming(source, proxy.url(source.url), start) as stream,
    ):
        eventually(lambda: caught_up(server, standby))
        standby.stop("fast")
        insert(source, 1, 500)
        _, place = take(stream, start, 500)
        proxy.refuse()
        server.stop("immediate")
        standby.start()
        promote(standby)
        source.url = standby.database_url("shop")
        source.create_slot()
        insert(source, 1, 5000)
        proxy.resume()
        proxy.lead_to(standby.url)
        refused(stream, place, Kind.CONTINUITY, "timeline 2", "left timeline 1 at", "had not received")


@pytest.mark.long
@pytest.mark.parametrize("same_place", [False, True])
def test_the_other_of_two_standbys_that_were_promoted_is_refused(
    server: EmbeddedPostgres, same_place: bool
) -> None:
    """Both are on timeline 2; it is known by where that begins, else by the first transaction after it."""
    source = Source(server.create_database("shop"))
    source.sql(TABLE, "CREATE PUBLICATION headrace FOR ALL TABLES")
    create_slot(source.url, source.slot, failover=True).close()
    with (
        standby_of(server, "first") as first,
        standby_of(server, "second") as second,
        TcpProxy.before(source.url) as proxy,
    ):
        synchronise(source, first)
        synchronise(source, second)
        start = Offset(source.confirmed())
        stream = source.stream(start, proxy.url(source.url))
        insert(source, 1, 50)
        _, place = take(stream, start, 50)
        eventually(lambda: caught_up(server, second))
        if not same_place:
            second.stop("fast")
            insert(source, 51, 60)
            _, place = take(stream, place, 10)
        eventually(lambda: caught_up(server, first))
        proxy.refuse()
        server.stop("fast")
        if not same_place:
            second.start()
        promote(first)
        promote(second)
        source.url = first.database_url("shop")
        proxy.resume()
        proxy.lead_to(first.url)
        insert(source, 61, 100)
        _, place = take(stream, place, 40)
        stream.confirm(place)
        proxy.refuse()
        first.stop("immediate")
        source.url = second.database_url("shop")
        insert(source, 1061, 4000)
        proxy.resume()
        proxy.lead_to(second.url)
        words = ["which was read last"] if same_place else ["timeline 2 begins at", "this is the other one"]
        refused(stream, place, Kind.OTHER_LOG, *words)
        source.close()


def caught_up(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> bool:
    with connect(primary.url) as here, connect(standby.url) as there:
        [(end,)] = execute(here, "SELECT pg_current_wal_flush_lsn()::text")
        return execute(there, "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", (end,)) == [(True,)]
