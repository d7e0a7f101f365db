"""Which position confirms, skips, limits? The slot against a stream's and a query's idea of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.capture import Offset
from headrace.model.lsn import Lsn, format_lsn
from headrace.pgoutput.batch import MessageBatch
from headrace.postgres.backlog import BacklogReader
from integration.capture.following import Source, eventually, take
from integration.facts.told import Wire, commits, peek, rows, told
from reference.pgoutput import Commit, decode_message

pytestmark = pytest.mark.long  # what PostgreSQL does, whatever Headrace is

T = "CREATE TABLE t (id int PRIMARY KEY)"

PAGE, SEGMENT = 8192, 16 << 20  # of the log (bytes)


def prepare(source: Source, transactions: int) -> list[Commit]:
    """So many transactions of one row each; where each was committed."""
    source.sql(T)
    source.publish()
    source.sql(*(f"INSERT INTO t VALUES ({number})" for number in range(1, transactions + 1)))
    return commits(peek(source))


def confirm(source: Source, lsn: Lsn) -> None:
    """Confirm through a stream, and wait until the slot shows it."""
    before = source.confirmed()
    with Wire(source) as wire:
        wire.confirm(lsn)
        eventually(lambda: source.confirmed() != before)
    eventually(lambda: source.walsender() is None)


def test_only_behind_the_commit_record_is_a_transaction_confirmed(source: Source) -> None:
    """One byte into the record is enough; its end is what the protocol names."""
    first, second = prepare(source, 2)
    assert first.commit_lsn < first.end_lsn <= second.commit_lsn
    confirm(source, first.commit_lsn)
    assert source.confirmed() == first.commit_lsn
    assert [new for *_, new in told(source)] == [("1",), ("2",)]
    confirm(source, first.commit_lsn + 1)
    assert [new for *_, new in told(source)] == [("2",)]
    confirm(source, second.end_lsn)
    assert told(source) == []


def test_a_stream_of_ours_confirms_the_end_of_the_commit(source: Source) -> None:
    first, second = prepare(source, 2)
    start = Offset(source.confirmed())
    stream = source.stream(start)
    _, end = take(stream, start, 2)
    stream.confirm(end)
    eventually(lambda: source.confirmed() == end.lsn)
    stream.close()
    assert first.end_lsn < end.lsn == second.end_lsn
    with Wire(source) as wire:
        source.sql("INSERT INTO t VALUES (3)")
        assert [new for *_, new in rows(wire.read(10, commits=1))] == [("3",)]


def test_a_later_start_skips_without_confirming_and_an_earlier_one_is_moved_up(source: Source) -> None:
    first, second = prepare(source, 3)[:2]
    before = source.confirmed()
    with Wire(source, second.end_lsn) as wire:
        assert [new for *_, new in rows(wire.read(10, commits=1))] == [("3",)]
    eventually(lambda: source.walsender() is None)
    assert source.confirmed() == before, "and closing without feedback confirms nothing"
    confirm(source, first.end_lsn)
    with Wire(source, before) as wire:
        assert [new for *_, new in rows(wire.read(10, commits=2))] == [("2",), ("3",)]


def test_closing_inside_a_transaction_delivers_all_of_it_again(source: Source) -> None:
    source.sql(T)
    source.publish()
    source.sql("INSERT INTO t SELECT generate_series(1, 500)")
    with Wire(source) as wire:
        cut = wire.read(10, commits=1)[:100]
    assert rows(cut)[-1][3] != ("500",)
    eventually(lambda: source.walsender() is None)
    with Wire(source) as wire:
        assert [new for *_, new in rows(wire.read(10, commits=1))] == [(str(n),) for n in range(1, 501)]


def test_a_query_up_to_a_commit_leaves_that_transaction_out(source: Source) -> None:
    """Unless its commit record begins a page: the record before then ends in front of the page's header."""
    _, second, _ = prepare(source, 3)
    header = 40 if second.commit_lsn % SEGMENT < PAGE else 24
    expected = [("1",), ("2",)] if second.commit_lsn % PAGE == header else [("1",)]
    assert [new for *_, new in rows(peek(source, upto=format_lsn(second.commit_lsn)))] == expected
    for upto in (second.commit_lsn + 1, second.end_lsn):
        assert [new for *_, new in rows(peek(source, upto=format_lsn(upto)))] == [("1",), ("2",)]


def test_our_backlog_reader_knows_that(source: Source) -> None:
    """It reads window after window; none is lost or doubled at their edges."""
    _, second, third = prepare(source, 3)
    with BacklogReader(source.url, source.slot, (source.publication,)) as reader:
        assert inserted(reader.read(second.commit_lsn)) == [("1",)]
        assert inserted(reader.read(second.end_lsn)) == [("2",)]
        assert inserted(reader.read(third.end_lsn)) == [("3",)]
    with BacklogReader(source.url, source.slot, (source.publication,)) as reader:
        reader.skip(second.end_lsn)
        assert inserted(reader.read(third.end_lsn)) == [("3",)]


def inserted(batches: Iterator[MessageBatch]) -> list[object]:
    messages = []
    for batch in batches:
        messages += [decode_message(batch.payload(index)) for index in range(len(batch))]
    return [new for *_, new in rows(messages)]


def test_a_query_for_one_change_returns_whole_transactions(source: Source) -> None:
    source.sql(T)
    source.publish()
    source.sql("INSERT INTO t SELECT generate_series(1, 300)", "INSERT INTO t VALUES (301)")
    messages = peek(source, count=1)
    assert len(rows(messages)) == 300
    assert isinstance(messages[-1], Commit)


def test_the_function_collects_everything_before_its_first_row(source: Source) -> None:
    """Why the backlog is read in windows: the server's disk holds what one call returns."""
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n text)")
    source.publish()
    source.sql("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 4000) g")
    source.transaction(
        "SET work_mem = '64kB'",
        "CREATE TEMP TABLE seen (size bigint)",
        f"""
        DO $$ DECLARE c CURSOR FOR SELECT data FROM pg_logical_slot_peek_binary_changes('{source.slot}', NULL,
            NULL, 'proto_version', '1', 'publication_names', 'headrace'); one bytea;
        BEGIN
            OPEN c; FETCH c INTO one;
            INSERT INTO seen SELECT sum(size) FROM pg_ls_tmpdir();
            CLOSE c;
        END $$
        """,
        "CREATE TABLE kept AS SELECT size FROM seen",
    )
    assert source.number("SELECT size FROM kept") > 4_000_000
