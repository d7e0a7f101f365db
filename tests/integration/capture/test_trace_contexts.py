"""Trace contexts come out of a real log, whichever way it is read, with the commits that they belong to."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.capture import ChangeStream, Offset
from headrace.capture.trace_contexts import MOST_CONTEXTS
from headrace.model.trace import CommitContext, TraceContext
from headrace.postgres.quoting import identifier
from integration.capture.following import Source, eventually, next_batch

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
STREAM = {"backlog_bytes": None, "unfinished": False}
PIECES = {"backlog_bytes": None, "chunk_bytes": 100_000}
BACKLOG = {"backlog_bytes": 1, "backlog_window": 300_000}
LARGE = "INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series({}, {}) g"


@pytest.fixture
def start(source: Source) -> Offset:
    [(name,)] = source.query("SELECT current_database()")
    source.sql(
        "CREATE TABLE t (id int PRIMARY KEY, n text)",
        f"ALTER DATABASE {identifier(name)} SET logical_decoding_work_mem = '64kB'",
    )
    return source.publish()


def emit(number: int, prefix: str = "headrace.trace", *, transactional: bool = True) -> str:
    content = f"00-{TRACE}-{number:016x}-01"
    return f"SELECT pg_logical_emit_message({transactional}, '{prefix}', '{content}')"


def span(context: CommitContext) -> int:
    assert context.context is not None
    assert context.context == TraceContext(TRACE, context.context.span_id)
    return int(context.context.span_id, 16)


def read(stream: ChangeStream, start: Offset, rows: int) -> list[CommitContext]:
    """The contexts of the batches that hold the next `rows` changes."""
    contexts: list[CommitContext] = []
    while rows > 0:
        stream.confirm(start)
        end = next_batch(stream, start)
        rows -= sum(batch.num_rows for batch in stream.changes(start, end))
        contexts += stream.contexts(start, end)
        start = end
    assert rows == 0
    return contexts


@pytest.mark.parametrize("settings", [STREAM, PIECES, BACKLOG], ids=["stream", "pieces", "backlog"])
def test_each_way_gives_the_same(source: Source, start: Offset, settings: dict[str, Any]) -> None:
    source.transaction("INSERT INTO t VALUES (1)", emit(1))
    source.transaction(
        emit(2),
        LARGE.format(1001, 3000),
        *("SAVEPOINT s", emit(3), LARGE.format(5001, 7000), "ROLLBACK TO s"),
        emit(4, prefix="somebody.else"),
        emit(5),
    )
    source.sql(emit(6), emit(7, transactional=False))
    source.transaction("INSERT INTO t VALUES (2)")
    source.transaction(emit(8), "INSERT INTO t VALUES (3)")
    stream = source.stream(start, trace_contexts=True, **settings)
    contexts = read(stream, start, 1 + 2000 + 1 + 1)
    # In pieces, the server sends a message of a savepoint as one of the whole transaction.
    rolled_back = [3] if settings is PIECES else []
    assert [span(context) for context in contexts] == [1, 2, *rolled_back, 5, 8]
    lsns = [context.commit_lsn for context in contexts]
    assert lsns == sorted(lsns)
    assert lsns[1] == lsns[2]
    now = source.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    assert all(0 <= now - context.commit_time < 600_000_000 for context in contexts)


def test_a_batch_has_a_bounded_number_of_them(source: Source, start: Offset) -> None:
    for _ in range(2):
        source.transaction("INSERT INTO t VALUES (1)", *(emit(n) for n in range(1, MOST_CONTEXTS)))
        source.sql("DELETE FROM t")
    stream = source.stream(start, trace_contexts=True)
    stream.confirm(start)
    last = source.number("SELECT (pg_current_wal_lsn() - '0/0')::bigint")
    eventually(lambda: stream.changes(start, Offset(last)))
    assert len(stream.contexts(start, Offset(last))) == MOST_CONTEXTS


def test_the_server_sends_no_messages_unless_it_is_asked_for_them(source: Source, start: Offset) -> None:
    for traced in (False, True):
        source.transaction("INSERT INTO t VALUES (1)", "DELETE FROM t", emit(1))
        stream = source.stream(start, trace_contexts=traced, **STREAM)
        assert len(read(stream, start, 2)) == traced
        [(command,)] = source.query("SELECT query FROM pg_stat_activity WHERE pid = $1", source.walsender())
        assert ("messages" in command) == traced
        start = Offset(source.number("SELECT (pg_current_wal_lsn() - '0/0')::bigint"))
        stream.confirm(start)
        stream.close()
        eventually(lambda: source.walsender() is None)
